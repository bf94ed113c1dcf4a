"""`moor keys` against an API of canned answers: what is sent, and that a key's text is shown once."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from stub_api import OBJECT, StubApi

from moorage.cli.main import main

KEYS = "/namespaces/default/keys"


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


def key(**fields: Any) -> dict[str, Any]:
    plain = {"kind": "Key", "id": "key-1", **OBJECT, "name": "app", "state": "active", "hint": "moor-key.1"}
    return {**plain, "endpoints": [], "limits": {}, "expires_at": None, "revoked_at": None, "description": "", **fields}


def told(generation: int, **gateways: int) -> dict[str, Any]:
    return {"generation": generation, "gateways": [{"id": g, "generation": at} for g, at in gateways.items()]}


def test_a_new_key_s_text_is_shown_with_how_to_use_it(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"POST {KEYS}"] = (201, key(endpoints=["chat"], limits={"in_flight": 2}, key="moor-key.1.secret"))
    api.answers[f"GET {KEYS}/app"] = (200, key(**told(3, g1=3)))
    order = ["keys", "create", "app", "--endpoint", "chat", "--in-flight", "2", "--expires", "30d"]
    assert main(order, api.env) == 0
    assert api.sent("POST")[-1]["body"] == {
        "name": "app",
        "endpoints": ["chat"],
        "limits": {"in_flight": 2},
        "expires_in_s": 30 * 86400.0,
        "description": "",
    }
    said = capsys.readouterr().out
    assert "export OPENAI_API_KEY=moor-key.1.secret" in said
    assert "Authorization: Bearer" in said
    assert main([*order, "-o", "json"], api.env) == 0
    assert json.loads(capsys.readouterr().out)["key"] == "moor-key.1.secret"


def test_a_key_whose_text_was_lost_is_not_shown_as_one(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"POST {KEYS}"] = (201, key(key=None))
    assert main(["keys", "create", "app"], api.env) == 0
    said = capsys.readouterr().out
    assert "OPENAI_API_KEY" not in said
    assert "moor keys delete app" in said


def test_changing_one_limit_leaves_the_others_as_they_are(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"GET {KEYS}/app"] = (200, key(limits={"in_flight": 2, "requests_per_minute": 60}))
    api.answers[f"PATCH {KEYS}/app"] = (200, key(limits={"requests_per_minute": 60, "tokens_per_minute": 9}))
    assert main(["keys", "limit", "app", "--tokens-per-minute", "9", "--unlimited", "in-flight"], api.env) == 0
    assert api.sent("PATCH")[-1]["body"] == {"limits": {"requests_per_minute": 60, "tokens_per_minute": 9}}
    assert "requests per minute 60, tokens per minute 9" in capsys.readouterr().out
    assert main(["keys", "limit", "app", "--all-endpoints"], api.env) == 0
    assert api.sent("PATCH")[-1]["body"] == {"endpoints": []}
    assert main(["keys", "limit", "app"], api.env) == 2
    assert "nothing is to be changed" in capsys.readouterr().err


def test_keys_are_listed_revoked_and_deleted(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"GET {KEYS}"] = (
        200,
        {"items": [key(expires_at="2026-01-02T00:00:00Z", state="expired")], "next": None},
    )
    assert main(["keys", "ls"], api.env) == 0
    shown = capsys.readouterr().out.splitlines()[1].split()
    assert shown[:4] == ["app", "expired", "all", "-"]
    assert shown[5] == "ago"
    api.answers[f"POST {KEYS}/app/revoke"] = (200, key(state="revoked"))
    api.answers[f"GET {KEYS}/app"] = (200, key(state="revoked", **told(3, g1=3, g2=4)))
    assert main(["keys", "revoke", "app", "--text", "leaked"], api.env) == 0
    assert api.sent("POST")[-1]["body"] == {"text": "leaked"}
    api.answers[f"DELETE {KEYS}/app"] = (200, {"kind": "Key", "id": "key-1", "deleted": True})
    assert main(["keys", "delete", "app"], api.env) == 0
    assert capsys.readouterr().out.splitlines() == [
        "app: revoked; all 2 gateways refuse it",
        "app: deleted; its usage is told by  moor keys usage key-1",
    ]


def test_an_active_key_is_deleted_only_when_somebody_agreed(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    api.answers[f"GET {KEYS}/app"] = (200, key(**told(3, g1=3)))
    api.answers[f"DELETE {KEYS}/app"] = (200, {"kind": "Key", "id": "key-1", "deleted": True})
    assert main(["keys", "delete", "app", "--no-wait"], api.env) == 2
    said = capsys.readouterr().err
    assert "app is active" in said
    assert "say --yes" in said
    assert not api.sent("DELETE")
    assert main(["keys", "delete", "app", "--yes", "--no-wait"], api.env) == 0
    assert api.sent("DELETE")


def test_a_key_s_history_says_why_it_was_revoked(api: StubApi, capsys: pytest.CaptureFixture[str]) -> None:
    revoked = {"code": "key.revoked", "class": "by_person", "message": "Revoked: leaked", "params": {"text": "leaked"}}
    change = {"kind": "step", "at": "2026-01-01T00:00:00Z", "from": "active", "to": "revoked", "reason": revoked}
    api.answers[f"GET {KEYS}/app/history"] = (200, {"items": [change], "next": None})
    assert main(["keys", "history", "app"], api.env) == 0
    shown = capsys.readouterr().out
    assert "active → revoked" in shown
    assert "Revoked: leaked" in shown


def test_a_revoked_key_names_the_gateways_that_may_still_let_it_in(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.answers[f"POST {KEYS}/app/revoke"] = (200, key(state="revoked"))
    away = [{"id": "g9", "heard_at": "2026-01-01T00:00:00Z"}]
    api.answers[f"GET {KEYS}/app"] = (200, key(state="revoked", **told(3, g1=3), unreachable=away))
    assert main(["keys", "revoke", "app"], api.env) == 0
    said = capsys.readouterr().out
    assert "app: revoked; the gateway refuses it" in said
    assert "d ago); if it runs, it lets the key in" in said
    away = [{"id": "g9", "heard_at": None, "not_since": "2026-01-01T00:00:00Z", "address": "vm:7421"}]
    api.answers[f"GET {KEYS}/app"] = (200, key(state="revoked", **told(3, g1=3), unreachable=away))
    assert main(["keys", "revoke", "app"], api.env) == 0
    said = capsys.readouterr().out
    assert "gateway g9 at vm:7421 is out of reach" in said
    assert "(not heard since the control plane started at 2026-01-01T00:00:00Z)" in said
    api.answers[f"GET {KEYS}/app"] = (200, key(state="revoked", **told(3, g1=3, g2=2)))
    assert main(["keys", "revoke", "app", "--timeout", "0.3"], api.env) != 0
    said = capsys.readouterr().err
    assert "app is revoked, but not every gateway has confirmed" in said
    assert "these may let it in: g2" in said
    assert "moor keys revoke app --timeout 5m" in said
    assert main(["keys", "revoke", "app", "--no-wait"], api.env) == 0
    assert "gateways follow" in capsys.readouterr().out


def test_usage_is_shown_by_day_with_its_sum_and_what_was_only_counted(
    api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    sums = {"requests": 1200, "answered": 1190, "refused": 6, "failed": 3, "client_gone": 1}
    sums |= {"input_tokens": 50_000, "output_tokens": 7000, "counted_tokens": 40}
    items = [{"day": f"2026-01-0{n}", "endpoint": "chat", **sums} for n in (1, 2)]
    found = {"kind": "Usage", "key": "app", "key_id": "key-1", "from": "2026-01-01", "to": "2026-01-02"}
    found |= {"bucket": "day", "items": items, "total": sums}
    api.answers[f"GET {KEYS}/app/usage"] = (200, found)
    assert main(["keys", "usage", "app", "--since", "2026-01-01"], api.env) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[1].split() == ["2026-01-01", "chat", "1,200", "1,190", "6", "3", "1", "50,000", "7,000"]
    assert lines[3].split()[:2] == ["total", "1,200"]
    assert "40 of the output tokens were counted" in shown.err
    assert main(["keys", "usage", "app", "--since", "soon"], api.env) == 2
    assert "neither a day nor how long back" in capsys.readouterr().err
    api.answers[f"GET {KEYS}/app/usage"] = (200, {**found, "items": [], "total": dict.fromkeys(sums, 0)})
    assert main(["keys", "usage", "app"], api.env) == 0
    assert "app was not used from 2026-01-01 to 2026-01-02" in capsys.readouterr().err

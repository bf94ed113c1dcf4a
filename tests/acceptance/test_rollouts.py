"""A new revision under traffic: a good one takes over, a bad one never does, and no client notices either."""

from typing import Any

import pytest

from tests.acceptance.installation import Installation, Traffic, until

pytestmark = pytest.mark.acceptance


def revisions(installation: Installation, name: str) -> dict[int, str]:
    """State of each revision, by number."""
    listed = installation.asked(f"namespaces/default/deployments/{name}/revisions")["items"]
    return {int(r["number"]): str(r["state"]) for r in listed}


def apply(installation: Installation, name: str, *options: str, **parts: Any) -> str:
    """Apply a changed spec; the operation's id."""
    path = installation.spec(name, *options, **parts)
    return str(installation.json("apply", "-f", str(path))["operation"])


def test_a_good_revision_takes_over_under_traffic_and_goes_back_and_no_request_fails(shared: Installation) -> None:
    shared.apply("better")
    old = shared.server_pid("better")
    traffic = Traffic(shared, "better")
    traffic.start()
    traffic.more(20)
    apply(shared, "better", "--say", "second")
    until(lambda: revisions(shared, "better") == {1: "superseded", 2: "active"}, "revision 2 to take over")
    traffic.more(20)
    new = shared.server_pid("better")
    assert new != old
    shared.moor("rollback", "better")
    until(lambda: revisions(shared, "better") == {1: "active", 2: "superseded"}, "revision 1 to serve again")
    traffic.more(20)
    traffic.end()
    assert traffic.failures == []
    assert shared.server_pid("better") not in (old, new)
    codes = shared.codes("better")
    assert codes.count("revision.promoted") == 3
    assert "replica.failed" not in codes
    assert shared.deployment("better")["phase"] == "ACTIVE"


def test_a_slow_revision_is_rejected_under_traffic_and_never_serves(shared: Installation) -> None:
    shared.apply("slower")
    pid = shared.server_pid("slower")
    traffic = Traffic(shared, "slower")
    traffic.start()
    operation = apply(shared, "slower", "--delay-answer", "0.5")
    until(lambda: revisions(shared, "slower").get(2) == "rejected", "revision 2 to be rejected")
    traffic.more(20)
    traffic.end()
    assert traffic.failures == []
    assert shared.server_pid("slower") == pid
    ended = until(lambda: _over(shared, operation), "the apply to end")
    assert (ended["state"], ended["error"]["code"]) == ("failed", "revision_rejected")
    assert "latency" in ended["error"]["message"] or "longer" in ended["error"]["message"]
    assert shared.deployment("slower")["phase"] == "ACTIVE"


def _over(installation: Installation, operation: str) -> dict[str, Any] | None:
    found = dict(installation.asked(f"operations/{operation}"))
    return found if found["state"] in ("succeeded", "failed", "cancelled") else None

"""Keys are listed so that a person at 80 columns reads them: values stand under their headings, one line a key."""

from typing import Any

from moorage.cli.commands.keys import keys_table
from moorage.cli.output import plain

NOW = 1_780_000_000.0
LONG = "a-name-of-thirty-one-characters"
LIMITS = {"in_flight": 8, "requests_per_minute": 600, "tokens_per_minute": 20_000}


def _key(name: str, limits: dict[str, int]) -> dict[str, Any]:
    return {
        "name": name,
        "state": "active",
        "hint": "moor-Ab3d",
        "endpoints": [],
        "limits": limits,
        "expires_at": "2026-06-27T20:26:40Z",
        "usage": {"requests": 1_234_567, "input_tokens": 99_000_000, "output_tokens": 1_000_000},
        "created_at": "2026-05-01T00:00:00Z",
    }


def test_keys_without_limits_take_one_line_each_at_80_columns():
    lines = plain(keys_table([_key(LONG, {}), _key("v1", {})], NOW), 80).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    head, first, second = lines
    for title in ("STATE", "OPENS", "LIMITS", "EXPIRES"):
        at = head.index(title)
        assert first[at - 1] == second[at - 1] == " "
        assert first[at] != " "
        assert second[at] != " "
    assert first.index("1,234,567") + len("1,234,567") == head.index("REQUESTS 7d") + len("REQUESTS 7d")


def test_only_keys_that_have_limits_take_a_line_for_them_where_there_is_no_room_beside():
    lines = plain(keys_table([_key(LONG, LIMITS), _key("v1", {})], NOW), 80).splitlines()
    head, limits, first, its_limits, second = lines
    assert head.split()[-2:] == ["REQUESTS", "7d"]
    assert limits.strip() == "LIMITS"
    assert first.startswith(LONG)
    assert its_limits.strip() == "in flight 8, requests per minute 600, tokens per minute 20000"
    assert second.startswith("v1 ")


def test_where_there_is_room_nothing_is_left_out():
    head, line = plain(keys_table([_key(LONG, LIMITS)], NOW), None).splitlines()
    assert {"TOKENS", "BEGINS", "AGE"} <= set(head.split())
    assert {"100,000,000", "moor-Ab3d", "27d"} <= set(line.split())

"""`moor config show`: an empty value is no other one, and a narrow terminal gets a line a setting."""

from moorage.cli.commands.config import settings_table
from moorage.cli.output import plain

ROWS = [
    {"name": "MOORAGE_GATEWAY_TLS_HANDSHAKE_TIMEOUT_S", "value": "10s", "source": "default"},
    {"name": "MOORAGE_GATEWAY_ID", "value": "", "source": "default"},
    {"name": "MOORAGE_API", "value": "127.0.0.1:8620", "source": "/home/somebody/.moorage/run/server.json"},
]


def test_an_empty_value_is_a_dash_and_its_source_is_not_taken_for_it() -> None:
    lines = plain(settings_table(ROWS, None)).splitlines()
    assert lines[2].split() == ["MOORAGE_GATEWAY_ID", "-", "default"]


def test_in_eighty_columns_only_what_is_not_the_default_takes_another_line() -> None:
    lines = plain(settings_table(ROWS, 80), 80).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [line.split() for line in lines[2:]] == [
        ["MOORAGE_GATEWAY_TLS_HANDSHAKE_TIMEOUT_S", "10s"],
        ["MOORAGE_GATEWAY_ID", "-"],
        ["MOORAGE_API", "127.0.0.1:8620"],
        ["from", "/home/somebody/.moorage/run/server.json"],
    ]


def test_what_was_started_with_another_value_says_with_which_at_any_width() -> None:
    rows = [{**ROWS[0], "runs": "5s"}, {**ROWS[1], "runs": ""}, ROWS[2]]
    wide = [line.split() for line in plain(settings_table(rows, None)).splitlines()]
    assert [line[3:] for line in wide[1:]] == [["5s"], ["-"], []]
    narrow = plain(settings_table(rows, 80), 80)
    assert "started with 5s" in narrow
    assert "started with -" in narrow

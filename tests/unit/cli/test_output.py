"""What is printed fits where it is printed, and loses nothing in a pipe."""

import json

import pytest

from moorage.cli import times
from moorage.cli.output import Column, Table, fit, plain, print_value

LONG = "no machine has a GPU of this model; 3 machines have others, and one of them is cordoned by an operator"
TABLE = Table(
    (Column("NAME"), Column("STATE", state=True), Column("N", right=True), Column("REASON", flex=True)),
    (("gemma", "ACTIVE", "1/1", "ready"), ("a-much-longer-name", "FAILED", "0/12", LONG)),
)


def test_a_pipe_gets_every_character():
    assert LONG in plain(TABLE)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_terminal(width: int):
    assert max(len(line) for line in plain(TABLE, width).splitlines()) <= width


def test_only_reasons_are_cut_never_names_or_states():
    text = plain(TABLE, 60)
    assert "a-much-longer-name" in text
    assert "FAILED" in text
    assert "…" in text


def test_columns_stand_under_each_other():
    head, first, second = plain(TABLE).splitlines()
    assert head.index("STATE") == first.index("ACTIVE") == second.index("FAILED")
    assert first.index("1/1") + 3 == second.index("0/12") + 4


def test_a_terminal_too_narrow_still_shows_the_start_of_each_reason():
    assert fit(TABLE, 10)[-1] == 16


def test_json_is_the_object_exactly(capsys: pytest.CaptureFixture[str]):
    value = {"name": "größe", "reason": None, "n": 1.5, "list": []}
    print_value(value, "json")
    assert json.loads(capsys.readouterr().out) == value


def test_yaml_is_the_object_exactly(capsys: pytest.CaptureFixture[str]):
    import yaml

    value = {"name": "größe", "reason": None, "n": 1.5, "list": [{"a": 1}]}
    print_value(value, "yaml")
    assert yaml.safe_load(capsys.readouterr().out) == value


@pytest.mark.parametrize(
    ("length_s", "text"), [(0.2, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (200000, "2d")]
)
def test_ages_have_one_unit(length_s: float, text: str):
    assert times.span(length_s) == text


def test_an_unknown_age_is_a_dash():
    assert times.age(None, 0.0) == "-"


def test_an_age_counts_from_the_stamp():
    assert times.age("2026-01-01T00:00:00Z", times.seconds("2026-01-01T00:03:30Z")) == "3m"

"""What is printed fits where it is printed, and loses nothing in a pipe."""

import json

import pytest

from moorage.cli import rows, times
from moorage.cli.output import Column, Table, plain, print_value

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


@pytest.mark.parametrize("width", [30, 60, 80])
def test_reasons_go_on_in_lines_below_and_nothing_is_cut_or_broken(width: int):
    text = plain(TABLE, width)
    assert {"a-much-longer-name", "FAILED", "0/12", *LONG.split()} <= set(text.split())
    assert "…" not in text


def test_the_further_lines_of_a_reason_stand_under_its_first():
    head, *lines = plain(TABLE, 80).splitlines()
    at = head.index("REASON")
    assert [line[at - 2 : at] for line in lines] == ["  "] * len(lines)
    assert [line[:at].strip() for line in lines[2:]] == [""] * len(lines[2:])
    assert len(lines) > 2


def test_columns_stand_under_each_other():
    head, first, second = plain(TABLE).splitlines()
    assert head.index("STATE") == first.index("ACTIVE") == second.index("FAILED")
    assert first.index("1/1") + 3 == second.index("0/12") + 4


WORKER = "Worker wrk-mfrggzdfmztwq2lk"
WHY = "the process wrk-mfrggzdfmztwq2lk of machine box-1 ended with exit code 137 after it had run for 4 minutes"
EVENT = ("20:36:09.123", WORKER, "Provisioning → Initializing", "worker.process_started", WHY)
OPERATION = ("op-mfrggzdfmztwq2lk", "promote", "a-deployment-with-a-name", "waiting", "wait_ready", "12m", WHY)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
@pytest.mark.parametrize("table", [Table(rows.EVENTS, (EVENT,)), Table(rows._KINDS["operations"][0], (OPERATION,))])
def test_no_line_of_events_or_operations_is_broken_by_the_terminal(table: Table, width: int):
    text = plain(table, width)
    assert max(map(len, text.splitlines())) <= width
    minor = {cell for cell, column in zip(table.rows[0], table.columns, strict=True) if column.minor}
    wanted = {word for cell in set(table.rows[0]) - minor for word in cell.split()}
    assert wanted <= set(text.split())


def test_minor_columns_are_left_out_only_where_there_is_no_room():
    table = Table(rows.EVENTS, (EVENT,))
    assert "worker.process_started" in plain(table)
    assert "worker.process_started" in plain(table, 140)
    assert "worker.process_started" not in plain(table, 100)


def test_a_cell_never_steers_the_terminal_nor_breaks_its_line():
    text = plain(Table((Column("NAME"), Column("REASON", flex=True)), (("a\x1b[31m", "two\nlines\r"),)))
    assert text.splitlines()[1] == "a\\x1b[31m  two lines"


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

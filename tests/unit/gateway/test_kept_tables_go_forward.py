"""What processes of one gateway keep on disk is the newest table that any of them has, and costs no more to keep."""

from pathlib import Path

import pytest

from moorage.gateway import table as tables
from moorage.wire.routing import EndpointRoute, RoutingTable

MANY = tuple(EndpointRoute(name=f"m-{n}", deployment=f"d-{n}", mode="asleep") for n in range(2000))


def table(number: int, incarnation: str = "s", endpoints: tuple[EndpointRoute, ...] = ()) -> RoutingTable:
    return RoutingTable(incarnation=incarnation, number=number, endpoints=endpoints)


def kept(folder: Path) -> tuple[str, int]:
    found = tables.load(folder)
    assert found is not None
    return found.incarnation, found.number


@pytest.mark.parametrize("incarnation", ["s", 'a "store"', "back\\slash", "ünï", "x" * 1000])
def test_a_table_never_replaces_a_later_one_of_its_store(tmp_path: Path, incarnation: str) -> None:
    tables.save(tmp_path, table(7, incarnation, MANY))
    tables.save(tmp_path, table(6, incarnation))
    assert kept(tmp_path) == (incarnation, 7)
    tables.save(tmp_path, table(7, incarnation))
    tables.save(tmp_path, table(10, incarnation))
    assert kept(tmp_path) == (incarnation, 10)
    tables.save(tmp_path, table(3, "another"))
    assert kept(tmp_path) == ("another", 3)


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "{",
        "{half",
        "[]",
        "7",
        '{"incarnation":"s","number":"many"}',
        '{"incarnation":"s","number":null}',
        table(9).model_dump_json()[:-1],
        table(9, endpoints=MANY).model_dump_json()[:5000],
    ],
)
def test_a_file_that_nobody_can_start_from_is_replaced(tmp_path: Path, damaged: str) -> None:
    (tmp_path / tables.FILE_NAME).write_text(damaged)
    tables.save(tmp_path, table(2))
    assert kept(tmp_path) == ("s", 2)


def test_a_file_that_is_spelled_otherwise_is_understood(tmp_path: Path) -> None:
    (tmp_path / tables.FILE_NAME).write_text(table(9).model_dump_json(indent=2))
    tables.save(tmp_path, table(2))
    assert kept(tmp_path) == ("s", 9)


def test_a_table_is_kept_without_reading_the_whole_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.save(tmp_path, table(1, endpoints=MANY))

    def read_whole(path: Path) -> bytes:
        raise AssertionError(f"{path} was read whole")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", read_whole)
        tables.save(tmp_path, table(2, endpoints=MANY))
        tables.save(tmp_path, table(1))
    assert kept(tmp_path) == ("s", 2)

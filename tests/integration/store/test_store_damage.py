"""A damaged SQLite file: the store starts, or says clearly what was found and what is lost."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from moorage.clock import SystemClock
from moorage.domain.changes import Change, Create
from moorage.domain.errors import InvalidSpec, StoreUnusable
from moorage.domain.nouns import Worker
from moorage.domain.reasons import Reason, ReasonClass
from moorage.store import open_store

WHY = Reason("tested", ReasonClass.PROGRESS, "tested", {"filler": "x" * 500})
WORKERS = 50
"""Few enough that the log is not checkpointed (at 1000 pages), so that its tail holds the last of them."""


async def crashed_store(home: Path) -> tuple[Path, Path]:
    """The files as a kill leaves them: a database and a write-ahead log with committed work."""
    path = home / "live.db"
    store = await open_store(f"sqlite:///{path}", SystemClock())
    for n in range(WORKERS):
        await store.commit(Change((Create(Worker(uid=f"w{n:04d}"), WHY),), "test"))
    copy = home / "store.db"
    shutil.copy(path, copy)
    shutil.copy(f"{path}-wal", f"{copy}-wal")
    await store.close()
    return copy, Path(f"{copy}-wal")


async def left_after_opening(path: Path) -> tuple[list[str], str | None]:
    store = await open_store(f"sqlite:///{path}", SystemClock())
    try:
        uids = [w.uid for w in await store.find(Worker)]
        assert [h.object_uid for h in await store.history(limit=9999)] == uids
        await store.commit(Change((Create(Worker(uid="z-new"), WHY),), "test"))
        return uids, store.recovered
    finally:
        await store.close()


async def test_a_plain_crash_loses_nothing_and_says_nothing(tmp_path: Path) -> None:
    path, _ = await crashed_store(tmp_path)
    uids, said = await left_after_opening(path)
    assert (len(uids), said) == (WORKERS, None)


async def test_a_zeroed_tail_of_the_log_costs_the_last_transactions_and_is_told(tmp_path: Path) -> None:
    path, log = await crashed_store(tmp_path)
    data = bytearray(log.read_bytes())
    data[-40_000:] = bytes(40_000)
    log.write_bytes(data)
    uids, said = await left_after_opening(path)
    assert uids == [f"w{n:04d}" for n in range(len(uids))]
    assert 0 < len(uids) < WORKERS
    assert said is not None
    assert "zero bytes" in said or "dropped" in said


async def test_a_broken_page_in_the_log_is_told_with_the_number_of_lost_transactions(tmp_path: Path) -> None:
    path, log = await crashed_store(tmp_path)
    data = bytearray(log.read_bytes())
    data[-30_000] ^= 0xFF
    log.write_bytes(data)
    uids, said = await left_after_opening(path)
    assert 0 < len(uids) < WORKERS
    assert said is not None
    assert "transaction(s) behind it were dropped" in said


async def test_a_log_cut_in_the_middle_of_a_transaction_keeps_all_before_it(tmp_path: Path) -> None:
    path, log = await crashed_store(tmp_path)
    data = log.read_bytes()
    log.write_bytes(data[: len(data) * 2 // 3])
    uids, _ = await left_after_opening(path)
    assert uids == [f"w{n:04d}" for n in range(len(uids))]
    assert 0 < len(uids) < WORKERS


async def closed_store(home: Path) -> Path:
    path, _ = await crashed_store(home)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


async def test_a_zeroed_tail_of_the_database_is_refused_with_what_was_found(tmp_path: Path) -> None:
    path = await closed_store(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(data)
    with pytest.raises(StoreUnusable, match="damaged") as refused:
        await open_store(f"sqlite:///{path}", SystemClock())
    assert "backup" in str(refused.value.remedy)
    assert path.read_bytes() == data


async def test_a_truncated_database_is_refused_with_what_was_found(tmp_path: Path) -> None:
    path = await closed_store(tmp_path)
    path.write_bytes(path.read_bytes()[:-12_288])
    with pytest.raises(StoreUnusable, match="damaged"):
        await open_store(f"sqlite:///{path}", SystemClock())


@pytest.mark.parametrize(("content", "found"), [(bytes(8192), "zeros"), (b"#!/bin/sh\nexit 0\n", "begins with")])
async def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(StoreUnusable, match=found):
        await open_store(f"sqlite:///{path}", SystemClock())
    assert path.read_bytes() == content


async def test_an_emptied_database_beside_its_log_is_refused(tmp_path: Path) -> None:
    path, _ = await crashed_store(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(StoreUnusable, match="empty"):
        await open_store(f"sqlite:///{path}", SystemClock())


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "not a url"])
async def test_a_url_that_cannot_hold_a_store_is_refused(url: str) -> None:
    with pytest.raises(InvalidSpec):
        await open_store(url, SystemClock())


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="no directory"):
        await open_store(f"sqlite:///{tmp_path}/absent/store.db", SystemClock())

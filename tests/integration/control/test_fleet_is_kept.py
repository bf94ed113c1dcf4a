"""The scheduler's book that is kept up from the feed is the one that the store's rows make."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.clock import SystemClock
from moorage.control.scheduling import FLEET, SchedulingStep, load_book
from moorage.decide.scheduling.book import Book
from moorage.domain.changes import Change, Create, Release, Step, Update
from moorage.domain.nouns import Machine, Noun, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import MachineState
from moorage.store import open_store
from moorage.store.store import SqlStore

GPUS = [{"index": n, "vendor": "nvidia", "model": "H100", "memory_bytes": 1 << 36} for n in range(2)]
WHY = reason("worker.created")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = await open_store(f"sqlite:///{tmp_path}/m.db", SystemClock())
    yield opened
    await opened.close()


def contents(book: Book) -> Any:
    waiting = [(e.worker.uid, e.worker.version, e.run.version) for e in book.queue]
    held = sorted((h.worker.uid, h.worker.version, book.fleet.room(h.spot.row).machine.uid) for h in book.holders)
    rooms = [
        (r.machine.uid, r.machine.version, r.cpu_milli, sorted(r.gpus), sorted(r.owners)) for r in book.fleet.rooms()
    ]
    return waiting, held, sorted(rooms), sorted(book.ended)


async def made(store: SqlStore, *rows: Noun) -> None:
    await store.commit(Change(tuple(Create(row, WHY) for row in rows), "test"))


async def machine(store: SqlStore, name: str) -> None:
    capacity = {"cpu_milli": 8000, "memory_bytes": 1 << 40, "gpus": GPUS}
    await made(store, Machine(uid=f"m-{name}", name=name, state=MachineState.JOINING, capacity=capacity))
    await step(store, Machine, f"m-{name}", ("Ready", "joined"))


async def step(
    store: SqlStore, kind: type[Noun], uid: str, *steps: tuple[str, str], release: bool = False, **fields: Any
) -> None:
    row = await store.get(kind, uid)
    assert row is not None
    path = tuple(Step(to, trigger, WHY) for to, trigger in steps)
    update = Update(kind.kind, uid, row.version, path, fields)
    await store.commit(Change((update, *([Release(uid)] if release else [])), "test"))


async def test_a_kept_book_is_the_one_that_the_rows_make(store: SqlStore) -> None:
    scheduler = SchedulingStep(store, SystemClock())
    keeper = scheduler.keeper
    keeper.following = True
    cursor = await store.cursor()
    await keeper.book()

    async def same() -> Book:
        nonlocal cursor
        rows = await store.history(after=cursor)
        cursor = rows[-1].cursor if rows else cursor
        keeper.note(rows)
        kept, built = await keeper.book(), await load_book(store, SystemClock())
        assert contents(kept) == contents(built)
        return kept

    for name in "ab":
        await machine(store, name)
    await same()
    for n in range(3):
        run = Run(uid=f"run-{n}", name=f"job-{n}", spec={"groups": [{"name": "worker", "count": 2}], "gang": n == 1})
        workers = [
            Worker(uid=f"w-{n}-{rank}", name=f"w-{n}-{rank}", run=run.uid, rank=rank, request={"gpus": {"count": 1}})
            for rank in range(2)
        ]
        await made(store, run, *workers)
    assert len((await same()).queue) == 6
    await scheduler(FLEET)
    book = await same()
    assert len(book.holders) == 4
    placed = sorted(h.worker.uid for h in book.holders)
    await step(store, Worker, placed[0], ("Preparing", "picked_up"), ("Starting", "started"), ("Running", "running"))
    await same()
    await step(store, Worker, placed[0], ("Failed", "exited_nonzero"), release=True, ended_at=SystemClock().now())
    assert (await same()).ended
    await step(store, Machine, "m-a", cordoned="fan")
    keeper.heard("m-a")
    await same()
    await scheduler(FLEET)
    await same()
    await step(store, Machine, "m-b", ("Removed", "removed"))
    await same()

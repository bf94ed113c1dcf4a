"""Placements with durable commits: 80,000 waiting workers on 10,000 machines of 8 GPUs, from the scheduler's first look
to the last commit of the production step.

    .venv/bin/python benchmarks/bench_placements.py [--machines 10000] [--workers 80000] [--each 1] [--only sqlite]

A real store (SQLite: WAL, synchronous=FULL; PostgreSQL: synchronous_commit=on) is filled with machines and with runs
whose workers wait, `--each` workers a run, four kinds of requests of three resources, half of them with a label, uids
as random as in production. Two things are measured apart, each by a clock and by the CPU of the whole process:

- load: the book is built from the store, as once at the start of a leadership (later it is kept up from the feed).
- place: `SchedulingStep` is called as its loop calls it, under a held lease: it looks at its book, decides, and commits
  every placement with its history row, its holding and its GPUs, versions and fence checked, while a follower reads the
  change feed and tells the keeper, as in a control plane. The clock stops when the step's last commit is on disk.

Afterwards the store is asked whether every worker has its place, or was told why it waits, and no GPU two. The fleet
has exactly one GPU for each worker, and what is left in the end may lack CPU: in some draws one or a few wait.

The floor in the same run: bare `executemany` (PostgreSQL: one statement over arrays for each table and transaction) of
the very same rows into a database filled alike, in as many transactions of the same size; it decides nothing, reads
nothing, encodes nothing and checks nothing.
"""

import argparse
import asyncio
import gc
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg
from bench_scheduler import KINDS, machines

from moorage.clock import SystemClock
from moorage.control.scheduling import FLEET, SchedulingStep
from moorage.domain.changes import Change, Create, Fence, Step, Update
from moorage.domain.ids import UID_RANDOM_BYTES, new_uid, uid_bytes
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import MachineState
from moorage.store import open_store
from moorage.store.group import HISTORY
from moorage.store.sql import Bulk, Sql
from moorage.store.store import SqlStore

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.postgres import NoPostgres, PostgresServer

TARGET_PER_S = 10_000
AT_ONCE = 500
"""Rows of one change while the store is filled."""

SET = ("version", "updated_at", "reason", "machine", "doc")
"""Columns of a worker that a placement changes."""


def uid(kind: str) -> str:
    return new_uid(kind, uid_bytes(time.time(), os.urandom(UID_RANDOM_BYTES)))


class Stopwatch(SystemClock):
    """The system's clock, which notes when the step begins to rest: its last commit is on disk then."""

    rested_at: tuple[float, float] | None = None

    async def sleep(self, seconds: float) -> None:
        if self.rested_at is None:
            self.rested_at = time.perf_counter(), time.process_time()
        await super().sleep(0)


@dataclass(frozen=True)
class Took:
    """Seconds that something took, of a clock and of the process's CPU."""

    wall_s: float
    cpu_s: float


async def fill(store: SqlStore, fleet: int, workers: int, each: int) -> None:
    """Machines, and runs that wait."""
    why = reason("worker.created")
    joined = Step(MachineState.READY, "joined", reason("machine.joined"))
    rows: list[Any] = [replace(m, uid=uid("Machine"), state=MachineState.JOINING) for m in machines(fleet)]
    ready = [Update("Machine", row.uid, 1, (joined,)) for row in rows]
    now = time.time()
    for number in range(0, workers, each):
        count = min(each, workers - number)
        request, labels = KINDS[number // each % len(KINDS)]
        spec = {
            "groups": [{"name": "worker", "count": count, "runtime": {"command": ["python", "train.py"]}}],
            "placement": {"labels": labels},
        }
        run = Run(uid=uid("Run"), name=f"job-{number}", spec=spec, queued_at=now, planned_at=now)
        asked = {**request, "gpus": {"count": 1}}
        rows.append(run)
        for rank in range(count):
            name = f"job-{number}-{rank}"
            rows.append(Worker(uid=uid("Worker"), name=name, run=run.uid, rank=rank, request=asked, queued_at=now))
    for at in range(0, len(rows), AT_ONCE):
        await store.commit(Change(tuple(Create(row, why) for row in rows[at : at + AT_ONCE]), "bench"))
    for at in range(0, len(ready), AT_ONCE):
        await store.commit(Change(tuple(ready[at : at + AT_ONCE]), "bench"))


async def ours(store: SqlStore, workers: int) -> tuple[Took, Took]:
    """The production step over a filled store: what it took to load the book, and then to place."""
    clock = Stopwatch()
    step = SchedulingStep(store, clock)
    lease = await store.acquire("leader", "bench", 3600.0)
    assert lease is not None
    step.fence = Fence(lease.name, lease.generation)
    step.keeper.following = True
    following = asyncio.create_task(follow(store, step, await store.cursor()))
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)  # as the server does
    begun, cpu = time.perf_counter(), time.process_time()
    await step.keeper.book()
    loaded = Took(time.perf_counter() - begun, time.process_time() - cpu)
    begun, cpu = time.perf_counter(), time.process_time()
    await step(FLEET)
    assert clock.rested_at is not None
    took = Took(clock.rested_at[0] - begun, clock.rested_at[1] - cpu)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    held = await store.holdings()
    gpus = {(h["machine"], gpu) for h in held for gpu in h["gpus"]}
    told = [w for w in await store.find(Worker) if w.machine is None and w.placement is not None]
    assert len(held) == len(gpus) == workers - len(told), f"{len(held)} of {workers} hold {len(gpus)} GPUs"
    assert len(told) * 1000 <= workers, f"{len(told)} of {workers} wait"
    return loaded, took


async def follow(store: SqlStore, step: SchedulingStep, after: str) -> None:
    """The dispatcher's part: every row of the feed is read and told to the keeper."""
    async for rows in store.follow(after):
        step.keeper.note(rows)


# The floor


@dataclass(frozen=True)
class Written:
    """What the step wrote, group by group, as rows for the drivers."""

    workers: list[list[tuple[Any, ...]]]
    history: list[list[tuple[Any, ...]]]
    holdings: list[list[tuple[Any, ...]]]
    gpus: list[list[tuple[Any, ...]]]


def statements(sql: Sql) -> tuple[Bulk, Bulk, Bulk, Bulk]:
    tables = sql.tables
    return (
        sql.update(tables.nouns["Worker"], SET),
        sql.insert(tables.history, HISTORY),
        sql.insert(tables.holdings),
        sql.insert(tables.holding_gpus),
    )


def written(rows: "Rows", sql: Sql) -> Written:
    """What the database holds now that the filled one did not; one commit has one time."""
    history = rows("SELECT " + ", ".join(HISTORY) + " FROM history WHERE actor <> 'bench' ORDER BY at, seq")
    at = HISTORY.index("at")
    workers = {r[-1]: r for r in rows(f"SELECT {', '.join(SET)}, uid FROM worker")}
    holdings = {r[0]: r for r in rows(f"SELECT {', '.join(c.name for c in sql.tables.holdings.columns)} FROM holding")}
    columns = [c.name for c in sql.tables.holding_gpus.columns]
    gpus: dict[str, list[Any]] = {}
    for row in rows(f"SELECT {', '.join(columns)} FROM holding_gpu"):
        gpus.setdefault(row[columns.index("worker")], []).append(row)
    uid_at = HISTORY.index("object_uid")
    placed = (row for row in history if row[uid_at] in holdings)
    groups = [list(group) for _, group in groupby(placed, key=lambda row: row[at])]
    named = [[row[uid_at] for row in group] for group in groups]
    return Written(
        [[workers[uid] for uid in group] for group in named],
        groups,
        [[holdings[uid] for uid in group] for group in named],
        [[row for uid in group for row in gpus[uid]] for group in named],
    )


Rows = Any
"""query → rows"""


def sqlite_floor(filled: Path, done: Path) -> tuple[Took, int]:
    """Seconds for the same rows, raw; and how many transactions."""
    sql = Sql(postgres=False)
    source = sqlite3.connect(done)
    rows = written(lambda query: source.execute(query).fetchall(), sql)
    source.close()
    db = sqlite3.connect(filled, isolation_level=None, cached_statements=256)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-32768"):
        db.execute(f"PRAGMA {pragma}")
    texts = [bulk.text for bulk in statements(sql)]
    begun, cpu = time.perf_counter(), time.process_time()
    for parts in zip(rows.workers, rows.history, rows.holdings, rows.gpus, strict=True):
        db.execute("BEGIN IMMEDIATE")
        for text, some in zip(texts, parts, strict=True):
            db.executemany(text, some)
        db.execute("COMMIT")
    took = Took(time.perf_counter() - begun, time.process_time() - cpu)
    db.close()
    return took, len(rows.history)


def postgres_floor(filled: str, done: str) -> tuple[Took, int]:
    """The same on PostgreSQL."""
    sql = Sql(postgres=True)

    def rows_of(connection: "psycopg.Connection[Any]") -> Rows:
        psycopg.types.json.set_json_loads(lambda text: bytes(text).decode(), connection)
        return lambda query: connection.execute(query.encode()).fetchall()

    with psycopg.connect(done) as source:
        rows = written(rows_of(source), sql)
    with psycopg.connect(filled) as db:
        begun, cpu = time.perf_counter(), time.process_time()
        for parts in zip(rows.workers, rows.history, rows.holdings, rows.gpus, strict=True):
            for bulk, some in zip(statements(sql), parts, strict=True):
                columns = zip(*some, strict=True)
                db.execute(bulk.text.encode(), {n: list(c) for n, c in zip(bulk.names, columns, strict=True)})
            db.commit()
        return Took(time.perf_counter() - begun, time.process_time() - cpu), len(rows.history)


# Engines


def report(engine: str, workers: int, ours: tuple[Took, Took], floor: Took, transactions: int) -> Iterable[str]:
    loaded, took = ours
    rate, bare = workers / took.wall_s, workers / floor.wall_s
    print(f"\n{engine}: {workers} placements in {transactions} transactions, load {os.getloadavg()[0]:.1f}")
    for name, one in (
        ("load: the book, once", loaded),
        ("place: first look to last commit", took),
        ("floor: the same rows, bare", floor),
    ):
        wall, cpu = one.wall_s / workers * 1e6, one.cpu_s / workers * 1e6
        print(f"  {name:<33} {workers / one.wall_s:>8,.0f}/s   {wall:6.1f} µs each, {cpu:6.1f} µs of our CPU")
    yield f"RATIO placements_{engine}_per_s {rate:.0f} >={TARGET_PER_S}"
    yield f"RATIO placements_{engine}_per_cpu_s {workers / took.cpu_s:.0f} >={TARGET_PER_S}"
    yield f"RATIO placements_{engine}_vs_bare_rows {rate / bare:.2f} report"
    yield f"RATIO placements_{engine}_cpu_vs_bare_rows {took.cpu_s / floor.cpu_s:.2f} report"
    yield f"RATIO load_{engine}_workers_per_s {workers / loaded.wall_s:.0f} report"
    yield f"RATIO load_{engine}_workers_per_cpu_s {workers / loaded.cpu_s:.0f} report"


async def measured(url: str, given: argparse.Namespace, keep: Any) -> tuple[Took, Took]:
    store = await open_store(url, SystemClock())
    await fill(store, given.machines, given.workers, given.each)
    await store.close()
    keep()
    store = await open_store(url, SystemClock())
    try:
        return await ours(store, given.workers)
    finally:
        await store.close()


def sqlite_lines(given: argparse.Namespace, stack: ExitStack) -> list[str]:
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moorage-bench-", dir=given.dir)))
    path, filled = home / "moorage.db", home / "filled.db"

    def keep() -> None:
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        shutil.copy(path, filled)

    took = asyncio.run(measured(f"sqlite:///{path}", given, keep))
    return list(report("sqlite", given.workers, took, *sqlite_floor(filled, path)))


def postgres_lines(given: argparse.Namespace, stack: ExitStack) -> list[str]:
    try:
        server = stack.enter_context(PostgresServer.started(durable=True))
    except NoPostgres as error:
        print(f"\npostgres: left out: {error}")
        return []

    def order(text: str) -> None:
        with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
            connection.execute(text.encode())

    order("CREATE DATABASE ours")
    took = asyncio.run(measured(server.url("ours"), given, lambda: order("CREATE DATABASE filled TEMPLATE ours")))
    return list(report("postgres", given.workers, took, *postgres_floor(server.url("filled"), server.url("ours"))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=80_000)
    parser.add_argument("--each", type=int, default=1, help="workers of a run")
    parser.add_argument("--dir", help="where the SQLite files go (default: the temporary directory)")
    parser.add_argument("--only", choices=("sqlite", "postgres"), help="measure one engine only")
    given = parser.parse_args()
    lines: list[str] = []
    with ExitStack() as stack:
        if given.only != "postgres":
            lines += sqlite_lines(given, stack)
        if given.only != "sqlite":
            lines += postgres_lines(given, stack)
    print()
    print("\n".join(lines))


if __name__ == "__main__":
    main()

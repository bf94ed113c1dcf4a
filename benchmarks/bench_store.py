"""Durable transitions per second: the store against raw drivers doing the same SQL work, in interleaved rounds.

    .venv/bin/python benchmarks/bench_store.py [--seconds 2] [--rounds 7] [--postgres URL]

256 asynchronous writers each move a worker row of their own through its table: one row update (state, reason and a
field) and one history row a transition, acknowledged after the commit is on disk (SQLite synchronous=FULL, PostgreSQL
synchronous_commit=on).

- `store`: `moorage.store` through `commit`.
- `raw group commit`: what a program without a store would do by hand. The same 256 writers encode the same rows (the
  document with the time of the heartbeat by orjson, as the store does; a reason's text is made once, it never changes)
  and hand them to one thread with the raw driver, which commits what is queued in one transaction: the same two
  statements through `executemany`, the update guarded by the version it was decided on, the number of rows updated
  checked. No transition table, no feed, no keys or fences.
- `raw one by one`: the same thread with one transaction a transition.

The contestants take turns within each round; a ratio is the median of the ratios of the rounds, so that a busy machine
slows all alike. Beside the rate stands the CPU of the whole process (writers, event loop and database thread, user and
system) for each transition: what is left of the comparison where the disk is slow or the machine is shared. Without
--postgres a server is started in a temporary directory if its programs are installed.
"""

import argparse
import asyncio
import gc
import queue
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psycopg
from sqlalchemy.engine import make_url

from moorage.clock import SystemClock
from moorage.domain.changes import Change, Create, Step, Update
from moorage.domain.nouns import Worker
from moorage.domain.reasons import reason
from moorage.domain.states import WorkerState
from moorage.store import open_store
from moorage.store.flush import NOTIFY_CHANNEL
from moorage.store.group import HISTORY
from moorage.store.rows import image_of, reason_text, shape_of
from moorage.store.sql import Sql
from moorage.store.store import SqlStore

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.postgres import NoPostgres, PostgresServer

WRITERS = 256
TARGET = 0.8
SET = ("version", "updated_at", "state", "reason", "doc")
CYCLE = (("Stale", "heartbeat_late", reason("heartbeat.late")), ("Running", "heartbeat_back", reason("heartbeat.back")))

Transition = Callable[[int, int], Awaitable[Any]]
"""(writer, count so far) → after it is on disk"""


@dataclass(frozen=True)
class Contestant:
    name: str
    transition: Transition


def worker(number: int) -> Worker:
    return Worker(
        uid=f"w-{number:06d}-0123456789abcdef",
        name=f"train-{number}",
        run=f"r-{number:06d}-0123456789abcdef",
        machine=f"m-{number % 32}",
        gpus=(0, 1),
        request={"cpu_milli": 4000, "memory_bytes": 2**34, "gpus": {"count": 2}},
        process={"pid": 4242, "start_ticks": 123456789, "boot_id": "9c7a0a3e-0000-4000-8000-000000000000"},
        address="10.0.0.7:18000",
        epoch=1,
    )


async def fill(store: SqlStore) -> None:
    """One running worker a writer."""
    why = reason("worker.created")
    path = (("Preparing", "picked_up"), ("Starting", "started"), ("Running", "running"))
    steps = tuple(Step(to, trigger, why) for to, trigger in path)
    for number in range(WRITERS):
        row = worker(number)
        await asyncio.gather(
            store.commit(Change((Create(row, why),), "bench")),
            store.commit(Change((Update("Worker", row.uid, 1, steps),), "bench")),
        )


def through_store(store: SqlStore) -> Transition:
    uids = [worker(n).uid for n in range(WRITERS)]
    versions = [2] * WRITERS

    async def transition(number: int, count: int) -> None:
        to, trigger, why = CYCLE[count % 2]
        update = Update(
            "Worker", uids[number], versions[number], (Step(to, trigger, why),), {"heartbeat_at": time.time()}
        )
        done = await store.commit(Change((update,), "controller:bench"))
        versions[number] = done.versions[uids[number]]

    return transition


class RawThread:
    """One thread that runs `write(rows)` for what is queued: everything at once, or one by one."""

    def __init__(self, open_connection: Callable[[], Any], write: Callable[[Any, list[Any]], None], *, at_once: int):
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._open, self._write, self._at_once = open_connection, write, at_once
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, row: Any) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((row, future))
        return future

    async def close(self) -> None:
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _run(self) -> None:
        connection = self._open()
        while True:
            item = self._queue.get()
            items = []
            while item is not None:
                items.append(item)
                if len(items) >= self._at_once:
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            if items:
                self._write(connection, [row for row, _ in items])
                self._loop.call_soon_threadsafe(self._deliver, items)
            if item is None:
                break
        connection.close()

    def _deliver(self, items: list[Any]) -> None:
        for _, future in items:
            future.set_result(None)


class RawRow:
    """One row as a program without a store keeps it: what changes with each transition, and the texts that do not."""

    def __init__(self, number: int) -> None:
        shape = shape_of(Worker)
        row = image_of(shape, worker(number), reason="", now=time.time())
        self.uid, self.version, self.state = row.uid, 2, str(WorkerState.RUNNING)
        self.doc: dict[str, Any] = orjson.loads(row.doc)
        self.history = (shape.kind, row.uid, row.root, row.namespace, row.name, "change")

    def moved(self, to: str, why: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Parameters of the update and of the history row of the next transition."""
        now, source = time.time(), self.state
        self.doc["heartbeat_at"] = now
        self.version += 1
        self.state = to
        doc = orjson.dumps(self.doc).decode()
        return (
            (self.version, now, to, why, doc, self.uid, self.version - 1),
            (*self.history, source, to, why, "controller:bench", now, self.version),
        )


def through_raw(thread: RawThread) -> Transition:
    rows = [RawRow(n) for n in range(WRITERS)]
    cycle = [(to, reason_text(why)) for to, _, why in CYCLE]

    async def transition(number: int, count: int) -> None:
        await thread.submit(rows[number].moved(*cycle[count % 2]))

    return transition


def sqlite_raw(path: Path) -> tuple[Callable[[], Any], Callable[[Any, list[Any]], None]]:
    sql = Sql(postgres=False)
    update = sql.update(sql.tables.nouns["Worker"], SET).text + " AND version=?"
    insert = sql.insert(sql.tables.history, HISTORY).text

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-32768", "busy_timeout=10000"):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    def write(connection: sqlite3.Connection, rows: list[Any]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        updated = connection.executemany(update, [row for row, _ in rows]).rowcount
        assert updated == len(rows), "somebody else wrote"
        (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM history").fetchone()
        connection.executemany(insert, [(seq, *history) for seq, (_, history) in enumerate(rows, last + 1)])
        connection.execute("COMMIT")

    return connect, write


def postgres_raw(url: str) -> tuple[Callable[[], Any], Callable[[Any, list[Any]], None]]:
    sql = Sql(postgres=True)
    update = sql.update(sql.tables.nouns["Worker"], SET)
    guarded = f"{update.text} AND worker.version = anon_1.version - 1"
    insert = sql.insert(sql.tables.history, HISTORY)

    def connect() -> "psycopg.Connection[Any]":
        return psycopg.connect(url, autocommit=False)

    def arrays(names: tuple[str, ...], rows: list[Any]) -> dict[str, Any]:
        return {n: list(c) for n, c in zip(names, zip(*rows, strict=True), strict=True)}

    def write(connection: "psycopg.Connection[Any]", rows: list[Any]) -> None:
        updates = arrays(update.names, [row[:-1] for row, _ in rows])
        updated = connection.execute(guarded.encode(), updates).rowcount
        assert updated == len(rows), "somebody else wrote"
        history = [(seq, *values) for seq, (_, values) in enumerate(rows, 1)]
        connection.execute(insert.text.encode(), arrays(insert.names, history))
        connection.execute("SELECT pg_notify(%s, '')", (NOTIFY_CHANNEL,))
        connection.commit()

    return connect, write


@dataclass(frozen=True)
class Turn:
    """One turn of one contestant: transitions per second of all writers together, CPU of this process for each."""

    rate: float
    cpu_us: float


async def turn(transition: Transition, counts: list[int], seconds: float) -> Turn:
    end = time.perf_counter() + seconds
    done = 0

    async def one(number: int) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await transition(number, counts[number])
            counts[number] += 1
            done += 1

    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one(n) for n in range(WRITERS)))
    return Turn(done / (time.perf_counter() - begun), (time.process_time() - cpu) / done * 1e6)


async def compare(contestants: list[Contestant], rounds: int, seconds: float) -> dict[str, list[Turn]]:
    counts = {c.name: [0] * WRITERS for c in contestants}
    rates: dict[str, list[Turn]] = {c.name: [] for c in contestants}
    for number in range(rounds + 1):
        for contestant in contestants if number % 2 else contestants[::-1]:
            found = await turn(contestant.transition, counts[contestant.name], seconds if number else seconds / 2)
            if number:  # the first round only warms up
                rates[contestant.name].append(found)
    return rates


async def measure(
    urls: Callable[[str], str], raw: Callable[[str], Any], args: argparse.Namespace
) -> dict[str, list[Turn]]:
    """Each contestant has a database of its own, filled alike."""
    stores = {}
    for name in ("store", "raw group commit", "raw one by one"):
        stores[name] = await open_store(urls(name), SystemClock())
        await fill(stores[name])
    threads = []
    contestants = [Contestant("store", through_store(stores["store"]))]
    for name, at_once in (("raw group commit", 512), ("raw one by one", 1)):
        await stores[name].close()
        connect, write = raw(urls(name))
        threads.append(RawThread(connect, write, at_once=at_once))
        contestants.append(Contestant(name, through_raw(threads[-1])))
    # As the server does: what set-up and imports made stays for good, and what a group makes is not walked at once.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    found = await compare(contestants, args.rounds, args.seconds)
    await stores["store"].close()
    for thread in threads:
        await thread.close()
    return found


def report(engine: str, turns: dict[str, list[Turn]]) -> list[str]:
    print(f"\n{engine}: durable transitions, {WRITERS} writers (medians of {len(turns['store'])} rounds)")
    print(f"  {'':<18} {'per second':>10}   {'min – max':^17}   {'CPU µs each':>11}")
    middle = {name: statistics.median(t.rate for t in found) for name, found in turns.items()}
    for name, found in turns.items():
        rates = sorted(t.rate for t in found)
        cpu = statistics.median(t.cpu_us for t in found)
        print(f"  {name:<18} {middle[name]:>10,.0f}   {rates[0]:>7,.0f} – {rates[-1]:<7,.0f}   {cpu:>11.1f}")
    pairs = list(zip(turns["store"], turns["raw group commit"], strict=True))
    ratio = statistics.median(ours.rate / raw.rate for ours, raw in pairs)
    cpu = statistics.median(raw.cpu_us / ours.cpu_us for ours, raw in pairs)
    single = middle["store"] / middle["raw one by one"]
    return [
        f"RATIO store_{engine}_vs_raw_group_commit {ratio:.2f} >={TARGET}",
        f"RATIO store_{engine}_cpu_vs_raw_group_commit {cpu:.2f} >={TARGET}",
        f"RATIO store_{engine}_vs_raw_one_by_one {single:.1f} >=1",
    ]


def sqlite_lines(args: argparse.Namespace, stack: ExitStack) -> list[str]:
    home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moorage-bench-", dir=args.dir)))

    def urls(name: str) -> str:
        return f"sqlite:///{home / name.replace(' ', '-')}.db"

    rates = asyncio.run(measure(urls, lambda url: sqlite_raw(Path(url.removeprefix("sqlite:///"))), args))
    return report("sqlite", rates)


def postgres_lines(args: argparse.Namespace, stack: ExitStack) -> list[str]:
    if args.postgres is None:
        try:
            server = stack.enter_context(PostgresServer.started(durable=True))
        except NoPostgres as error:
            print(f"\npostgres: left out: {error}")
            return []
        base = server.url("postgres")
    else:
        base = args.postgres
    made: dict[str, str] = {}

    def urls(name: str) -> str:
        if name not in made:
            database = f"bench_{name.replace(' ', '_')}_{time.time_ns()}"
            with psycopg.connect(base, autocommit=True) as connection:
                connection.execute(f'CREATE DATABASE "{database}"'.encode())
            made[name] = make_url(base).set(database=database).render_as_string(hide_password=False)
        return made[name]

    return report("postgres", asyncio.run(measure(urls, postgres_raw, args)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one turn (default 2)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contestant (default 7)")
    parser.add_argument("--postgres", help="postgresql:// URL of a server to use (default: start one)")
    parser.add_argument("--dir", help="where the SQLite files go (default: the temporary directory)")
    parser.add_argument("--only", choices=("sqlite", "postgres"), help="measure one engine only")
    args = parser.parse_args()
    lines: list[str] = []
    with ExitStack() as stack:
        if args.only != "postgres":
            lines += sqlite_lines(args, stack)
        if args.only != "sqlite":
            lines += postgres_lines(args, stack)
    print()
    print("\n".join(lines))


if __name__ == "__main__":
    main()

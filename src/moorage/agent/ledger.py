"""What the agent must not forget: attempts, the highest epoch of each worker, reports not yet acknowledged.

A small SQLite file with full fsync, written by one thread so that the event loop never waits for a disk; writes are
applied in the order they were asked for, several waiting ones in one transaction. Read once, at the start.
"""

import asyncio
import json
import sqlite3
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from moorage.domain.errors import MoorageError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS attempts (
  worker TEXT PRIMARY KEY, epoch INTEGER NOT NULL, cookie TEXT NOT NULL, folder TEXT NOT NULL,
  assignment TEXT NOT NULL, digest TEXT NOT NULL, port INTEGER, state TEXT NOT NULL, ready INTEGER NOT NULL,
  stop TEXT, exit_code INTEGER, gone INTEGER NOT NULL, last_seq INTEGER NOT NULL, rendezvous INTEGER, started REAL);
CREATE TABLE IF NOT EXISTS epochs (worker TEXT PRIMARY KEY, epoch INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (seq INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
_ADDED = {"rendezvous": "INTEGER", "started": "REAL"}
"""Columns of attempts that ledgers of earlier versions lack; empty in them means the same as None."""


class LedgerUnusable(MoorageError):
    """The agent's ledger cannot be opened or written: it must not start anything without it."""

    code = "ledger_unusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One worker's attempt as the ledger keeps it; at most one a worker.

    Args:
        worker, epoch: whose, and the placement epoch.
        cookie: random; proves its processes.
        folder: its directory.
        assignment: the assignment as JSON.
        digest: of the intent, as the control plane named it.
        port: port of the pool, or None.
        state: last step reported.
        ready: whether it was reported ready.
        stop: the `Stop` as JSON once asked to stop, or None.
        exit_code: how it ended, when known.
        gone: its tree is proven gone.
        last_seq: number of its newest report.
        rendezvous: port of the pool at which the others of its gang meet it, or None.
        started: when it was first seen running or, as long as that is not known, when its start was ordered; on the
            machine's clock that never steps. None before.
    """

    worker: str
    epoch: int
    cookie: str
    folder: str
    assignment: str
    digest: str = ""
    port: int | None = None
    state: str = "Pending"
    ready: bool = False
    stop: str | None = None
    exit_code: int | None = None
    gone: bool = False
    last_seq: int = 0
    rendezvous: int | None = None
    started: float | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """Everything that was in the ledger at the start."""

    attempts: tuple[Attempt, ...]
    epochs: Mapping[str, int]
    outbox: tuple[tuple[int, str], ...]
    notes: Mapping[str, str]


_Statement = tuple[str, Sequence[Any]]
_COLUMNS = tuple(f.name for f in fields(Attempt))
_UPSERT = f"INSERT OR REPLACE INTO attempts ({','.join(_COLUMNS)}) VALUES ({','.join('?' * len(_COLUMNS))})"


class Ledger:
    """The agent's durable memory.

    Args:
        path: the SQLite file; made when it is not there.

    Raises:
        LedgerUnusable: it cannot be opened, or is not a ledger.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        self._waiting: list[tuple[list[_Statement], asyncio.Future[None]]] = []
        self._busy = False
        self._path = path
        try:
            self._db = self._thread.submit(_open, path).result()
        except sqlite3.Error as cause:
            raise LedgerUnusable(
                f"cannot open the agent's ledger {path}: {cause}",
                remedy="check the disk and the rights; move the file away only if nothing of it runs here any more",
            ) from cause

    def recall(self) -> Remembered:
        """Everything, at the start."""
        return self._thread.submit(_recall, self._db).result()

    async def intend(self, attempt: Attempt) -> None:
        """Write an attempt and its epoch; on disk when this returns. Before any fork."""
        await self._write([*_epoch(attempt.worker, attempt.epoch), _upsert(attempt)])

    async def saw(self, worker: str, epoch: int) -> None:
        """Write that this epoch was seen in a command."""
        await self._write(_epoch(worker, epoch))

    async def record(self, seq: int, body: str, attempt: Attempt | None) -> None:
        """Write a report that waits to be acknowledged, and the attempt (with its epoch) as it then is."""
        statements: list[_Statement] = [("INSERT OR REPLACE INTO outbox VALUES (?, ?)", (seq, body))]
        if attempt is not None:
            statements += [*_epoch(attempt.worker, attempt.epoch), _upsert(attempt)]
        await self._write(statements)

    async def update(self, attempt: Attempt) -> None:
        """Write an attempt as it now is."""
        await self._write([_upsert(attempt)])

    async def acknowledged(self, seq: int) -> None:
        """Drop reports up to `seq`."""
        await self._write([("DELETE FROM outbox WHERE seq <= ?", (seq,))])

    async def forget(self, worker: str) -> None:
        """Drop an attempt; its epoch stays."""
        await self._write([("DELETE FROM attempts WHERE worker = ?", (worker,))])

    async def note(self, values: Mapping[str, str]) -> None:
        """Keep small facts (machine id, credential, highest sequence number)."""
        await self._write([("INSERT OR REPLACE INTO notes VALUES (?, ?)", (k, v)) for k, v in values.items()])

    async def drop_notes(self, *names: str) -> None:
        """Forget small facts."""
        await self._write([("DELETE FROM notes WHERE name = ?", (name,)) for name in names])

    async def close(self) -> None:
        """Finish what waits and close."""
        await self._write([])
        await asyncio.wrap_future(self._thread.submit(self._db.close))
        self._thread.shutdown()

    async def _write(self, statements: list[_Statement]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((statements, done))
        if not self._busy:
            self._busy = True
            self._next()
        await done

    def _next(self) -> None:
        """Hand all that waits to the thread as one transaction."""
        batch, self._waiting = self._waiting, []
        if not batch:
            self._busy = False
            return
        statements = [s for group, _ in batch for s in group]
        work = asyncio.wrap_future(self._thread.submit(_apply, self._db, statements))
        work.add_done_callback(lambda w: self._finished(w, [f for _, f in batch]))

    def _finished(self, work: asyncio.Future[None], waiting: list[asyncio.Future[None]]) -> None:
        cause = None if work.cancelled() else work.exception()
        for future in waiting:
            if future.done():
                continue
            if cause is None:
                future.set_result(None)
            else:
                future.set_exception(LedgerUnusable(f"cannot write the agent's ledger {self._path}: {cause}"))
        self._next()


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.executescript(_SCHEMA)
    known = {row[1] for row in db.execute("PRAGMA table_info(attempts)")}
    for name, kind in _ADDED.items():
        if name not in known:
            db.execute(f"ALTER TABLE attempts ADD COLUMN {name} {kind}")
    path.chmod(0o600)
    return db


def _recall(db: sqlite3.Connection) -> Remembered:
    rows = db.execute(f"SELECT {','.join(_COLUMNS)} FROM attempts").fetchall()
    attempts = []
    for row in rows:
        values = dict(zip(_COLUMNS, row, strict=True))
        attempts.append(Attempt(**{**values, "ready": bool(values["ready"]), "gone": bool(values["gone"])}))
    return Remembered(
        tuple(attempts),
        dict(db.execute("SELECT worker, epoch FROM epochs").fetchall()),
        tuple(db.execute("SELECT seq, body FROM outbox ORDER BY seq").fetchall()),
        dict(db.execute("SELECT name, value FROM notes").fetchall()),
    )


def _apply(db: sqlite3.Connection, statements: Sequence[_Statement]) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        for sql, values in statements:
            db.execute(sql, values)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _upsert(attempt: Attempt) -> _Statement:
    values = asdict(attempt)
    return _UPSERT, [values[c] for c in _COLUMNS]


def _epoch(worker: str, epoch: int) -> list[_Statement]:
    raised = "INSERT INTO epochs VALUES (?, ?) ON CONFLICT (worker) DO UPDATE SET epoch = max(epoch, excluded.epoch)"
    return [(raised, (worker, epoch))]


def dump(value: Mapping[str, Any]) -> str:
    """JSON as the ledger keeps it."""
    return json.dumps(value, separators=(",", ":"))

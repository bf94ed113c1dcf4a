"""Looks at an SQLite store before it is used, and says what is wrong with it and what was lost.

A file that is not a database, or one with broken pages, is refused with what was found and what to do. A write-ahead
log whose end was cut off or zeroed is used up to its last whole transaction, and what was dropped is told. Called by
`opening.py`.
"""

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL
from sqlalchemy.exc import DatabaseError, OperationalError

from moorage.domain.errors import StoreUnusable, Unavailable

_MAGIC = b"SQLite format 3\x00"
_WAL_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")

CHECKED_ALWAYS_BYTES = 256 * 1024 * 1024
"""Up to this size every page is checked at each opening (well under a second); a larger file only after a crash."""

_REMEDY = (
    "stop every Moorage process, copy the file and its -wal aside, then restore a backup, or save what is readable "
    "with `sqlite3 FILE .recover | sqlite3 NEW`"
)


@dataclass(frozen=True, slots=True)
class _Log:
    """Frames of the write-ahead log as they lie in the file."""

    commits: tuple[int, ...]
    """numbers (from 1) of the frames of this log that end a transaction"""
    frames: int
    zeroed_bytes: int


def inspect(path: Path) -> str | None:
    """Check the file at `path` (none yet is fine); the answer says what the log lost, if anything.

    Raises:
        StoreUnusable: the file is damaged or not a database.
    """
    if not path.exists():
        if not path.parent.is_dir():
            raise StoreUnusable(f"cannot make {path}: there is no directory {path.parent}", remedy="make it first")
        return None
    log_file = path.with_name(path.name + "-wal")
    log_bytes = log_file.read_bytes() if log_file.exists() else b""
    _check_header(path, log_bytes)
    if path.stat().st_size == 0:
        return None
    log = _read_log(log_bytes)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        try:
            used = _recovered_frames(connection)
            if log_bytes or path.stat().st_size <= CHECKED_ALWAYS_BYTES:
                _check_pages(path, connection)
        except sqlite3.OperationalError as error:
            raise Unavailable(f"cannot open {path}: {error}", remedy="see who else uses the file") from error
        except sqlite3.DatabaseError as error:
            raise StoreUnusable(f"{path} is damaged: {error}", remedy=_REMEDY) from error
    return _loss(log_file, log, used)


@contextmanager
def explained(url: URL) -> Iterator[None]:
    """Turn the driver's errors of opening into ours."""
    where = url.render_as_string()
    try:
        yield
    except OperationalError as error:
        raise Unavailable(f"cannot use {where}: {error.orig}", remedy="see that it runs and is reachable") from error
    except DatabaseError as error:
        raise StoreUnusable(f"cannot use {where}: {error.orig}", remedy=_REMEDY) from error


def _check_header(path: Path, log: bytes) -> None:
    with path.open("rb") as file:
        head = file.read(16)
    if head == b"" and not log:
        return
    if head == _MAGIC:
        return
    if head.strip(b"\x00") == b"":
        found = f"its first {len(head)} bytes are zeros" if head else "it is empty, yet its write-ahead log is not"
    else:
        found = f"it begins with {head!r}"
    raise StoreUnusable(f"{path} is not an SQLite database: {found}", remedy=_REMEDY)


def _recovered_frames(connection: sqlite3.Connection) -> int:
    """How many frames of the log SQLite could use, up to the last whole transaction."""
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(frames)


def _check_pages(path: Path, connection: sqlite3.Connection) -> None:
    found = [str(line) for (line,) in connection.execute("PRAGMA quick_check(5)")]
    if found != ["ok"]:
        raise StoreUnusable(f"{path} is damaged: {'; '.join(found)}", remedy=_REMEDY)


def _read_log(data: bytes) -> _Log:
    if len(data) < _WAL_HEADER.size:
        return _Log((), 0, 0)
    _, _, page_bytes, _, *salts, _, _ = _WAL_HEADER.unpack_from(data)
    commits: list[int] = []
    frames, place = 0, _WAL_HEADER.size
    while place + _FRAME_HEADER.size <= len(data):
        _, pages_after, *frame_salts, _, _ = _FRAME_HEADER.unpack_from(data, place)
        if frame_salts != salts:
            # Frames of an older log lie behind the newer ones by design; zeros never do.
            break
        frames += 1
        if pages_after:
            commits.append(frames)
        place += _FRAME_HEADER.size + page_bytes
    rest = data[place:]
    zeros = len(rest) - len(rest.lstrip(b"\x00"))
    return _Log(tuple(commits), frames, zeros if zeros >= _FRAME_HEADER.size else 0)


def _loss(log_file: Path, log: _Log, used: int) -> str | None:
    lost = sum(1 for commit in log.commits if commit > used)
    if lost:
        return f"{log_file} is unreadable after frame {used}: {lost} transaction(s) behind it were dropped"
    if log.zeroed_bytes:
        return (
            f"{log_file} ends in {log.zeroed_bytes} zero bytes: whatever was written there was dropped "
            "(confirmed transactions only if the disk lost them)"
        )
    if log.frames > max(used, log.commits[-1] if log.commits else 0):
        return f"{log_file} ended in an unfinished transaction, never confirmed, which was dropped"
    return None

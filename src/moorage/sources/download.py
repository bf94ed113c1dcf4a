"""The files of a plan, brought into a folder: several at once, each going on where it ended, each proven.

Runs in `child` only.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, BinaryIO, cast

from huggingface_hub import constants, hf_hub_download, hf_hub_url
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # of its documented surface

from moorage.sources.child import Failed
from moorage.sources.listing import snapshot
from moorage.sources.messages import File, Order, Plan

AT_ONCE = 4
"""Files at a time: a hub gives each connection a part of the line only."""
PIECE_BYTES = 1 << 20
CHUNK_BYTES = 1 << 18
"""So much is taken from a connection at a time: what breaks off loses less than this, and a slow line shows that it
moves. (huggingface_hub's own 10 MiB are lost with each break.)"""
SAY_S = 0.2


class Counter:
    """Bytes that are here, of all files together, and those that came now; said a few times a second.

    Args:
        say: whom both are told.
    """

    def __init__(self, say: Callable[[int, int], None]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._done = self._came = 0
        self._said_at = 0.0

    def add(self, count: int, came: bool = True) -> None:
        """So many more (or fewer: what was here is begun anew); `came`: not found here, but brought."""
        with self._lock:
            self._done += count
            self._came += max(count, 0) if came else 0
            if time.monotonic() - self._said_at >= SAY_S:
                self._said_at = time.monotonic()
                self._say(self._done, self._came)

    def last(self) -> None:
        """Say it as it is now."""
        with self._lock:
            self._say(self._done, self._came)


class Part:
    """A file on its way: what is written to it is counted, and proven on the way.

    Args:
        file: open for reading and writing, at its end.
        size: what the whole will have.
        count: told of each piece.
    """

    def __init__(self, file: BinaryIO, size: int, count: Callable[[int, bool], None]) -> None:
        self._file = file
        self._size = size
        self._count = count
        self._begin()
        file.seek(0)
        while piece := file.read(PIECE_BYTES):
            self._take(piece, came=False)

    def _begin(self) -> None:
        self.have = 0
        self._sha256 = hashlib.sha256()
        self._git = hashlib.sha1(b"blob %d\0" % self._size, usedforsecurity=False)

    def _take(self, piece: bytes, *, came: bool = True) -> None:
        self._sha256.update(piece)
        self._git.update(piece)
        self.have += len(piece)
        self._count(len(piece), came)

    def write(self, piece: bytes) -> int:
        """More of it."""
        written = self._file.write(piece)
        self._take(piece)
        return written

    def tell(self) -> int:
        """Where it is."""
        return self._file.tell()

    def seek(self, at: int, whence: int = 0) -> int:
        """Only ever to its beginning: the other side could not go on where it ended."""
        return self._file.seek(at, whence)

    def truncate(self, size: int | None = None) -> int:
        """Begin anew."""
        left = self._file.truncate(size)
        self._count(-self.have, False)
        self._begin()
        return left

    @property
    def sha256(self) -> str:
        """Of what is here."""
        return self._sha256.hexdigest()

    def why_not(self, wanted: File) -> str | None:
        """What is wrong with it, now that it should be whole."""
        if self.have != wanted.size:
            return f"it has {self.have} bytes instead of {wanted.size}"
        if wanted.sha256 is not None and self.sha256 != wanted.sha256:
            return f"its sha256 is {self.sha256} instead of {wanted.sha256}"
        if wanted.git is not None and self._git.hexdigest() != wanted.git:
            return f"its git id is {self._git.hexdigest()} instead of {wanted.git}"
        return None


def fetch(order: Order, plan: Plan, say: Callable[[int, int], None]) -> list[dict[str, Any]]:
    """Bring them all; {path, size, sha256, proven} of each.

    Raises:
        Failed: what came is not what the hub names.
        Exception: of huggingface_hub, or of the disk. What came before stays, to go on from.
    """
    constants.DOWNLOAD_CHUNK_SIZE = CHUNK_BYTES
    folder, counter = Path(order.folder or "."), Counter(say)
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        jobs = [pool.submit(_one, order, plan.commit, file, folder, counter) for file in plan.files]
        got = [job.result() for job in as_completed(jobs)]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after an error the rest is given up with this process
    counter.last()
    return sorted(got, key=lambda told: str(told["path"]))


def _one(order: Order, commit: str, file: File, folder: Path, counter: Counter) -> dict[str, Any]:
    target = folder / file.path
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():  # whole already; looked at again, since nobody knows how long it lay here
        target.replace(part)
    with part.open("a+b") as opened:
        written = Part(opened, file.size, counter.add)
        if written.have > file.size:
            written.seek(0)
            written.truncate()
        if written.have < file.size:
            _bring(order, commit, file, written)
        wrong = written.why_not(file)
        if wrong is not None:
            part.unlink()
            counter.add(-written.have)
            raise Failed("corrupt", f"{file.path} is not what the hub names: {wrong}")
        opened.flush()
        os.fsync(opened.fileno())
    part.replace(target)
    proven = "sha256" if file.sha256 else "git" if file.git else "size"
    return {"path": file.path, "size": file.size, "sha256": written.sha256, "proven": proven}


def _bring(order: Order, commit: str, file: File, part: Part) -> None:
    if constants.HF_HUB_OFFLINE:
        _copy(snapshot(order) / file.path, part)
        return
    if file.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
        _bring_in_chunks(order, commit, file, part)
        return
    headers = build_hf_headers(token=order.token)
    headers["Accept-Encoding"] = "identity"
    url = hf_hub_url(order.repo, file.path, revision=commit)
    sink = cast(BinaryIO, part)  # it writes, tells, seeks and truncates, and no more is asked of it
    http_get(url, sink, resume_size=part.have, headers=headers, expected_size=file.size)


def _bring_in_chunks(order: Order, commit: str, file: File, part: Part) -> None:
    """What a hub gives out by its own protocol only (above 50 GB); that goes on from chunks which it keeps itself."""
    aside = Path(order.folder or ".") / ".whole"
    path = Path(hf_hub_download(order.repo, file.path, revision=commit, token=order.token, local_dir=aside))
    part.seek(0)
    part.truncate(0)
    _copy(path, part)
    path.unlink()


def _copy(path: Path, part: Part) -> None:
    with path.open("rb") as kept:
        kept.seek(part.have)
        while piece := kept.read(PIECE_BYTES):
            part.write(piece)

"""Drives on this machine: where their data lies, copies of those of other machines, and sending them there.

A drive that this machine keeps is `DATA/drives/NAMESPACE/NAME`. A copy belongs to one run on one machine
(`DATA/copies/RUN/NAME`), is made under another name and takes its own only once it is proven whole, so that a copy that
broke off is never seen and is simply begun anew. Called by `providing` and, for what others wait for, by the session.
"""

import asyncio
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import structlog

from moorage.agent.asked import Asked
from moorage.agent.link import Link, LinkError
from moorage.wire.giving import DriveRequest

CHUNK_BYTES = 1 << 18
ASIDE = ".gone-"
COMPLETE = ".moorage-complete"
"""Last entry of a copy on its way: how many files and bytes came before it."""


class DriveBroken(Exception):
    """A copy did not arrive whole; it may be asked for again."""


def kept_at(data: Path, namespace: str, name: str) -> Path:
    """Where a drive of this machine lies."""
    return data / "drives" / namespace / name


def copy_at(data: Path, run: str, name: str) -> Path:
    """Where a run's copy of a drive of another machine lies."""
    return data / "copies" / run / name


def location(data: Path) -> dict[str, Any]:
    """The data location as the join reports it."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    usage = shutil.disk_usage(data)
    return {"path": str(data), "total_bytes": usage.total, "free_bytes": usage.free}


def set_aside(data: Path, runs: Iterable[str]) -> tuple[Path, ...]:
    """Rename the copies of runs that nothing here belongs to any more; what is to be removed, now or before.

    Renamed first, since removing takes long: a worker of the same run that comes meanwhile begins a copy of its own.
    """
    known, folder = set(runs), data / "copies"
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    aside = [path for path in found if path.name.startswith(ASIDE)]
    for path in found:
        if path not in aside and path.name not in known:
            aside.append(Path(tempfile.mkdtemp(prefix=ASIDE, dir=folder)))
            path.rename(aside[-1] / path.name)
    return tuple(aside)


def remove(folders: Iterable[Path], log: structlog.stdlib.BoundLogger) -> None:
    """Remove what was set aside."""

    def stays(_: object, path: str, why: tuple[type[BaseException], BaseException, object]) -> None:
        log.warning("a copy stays", path=path, why=str(why[1]))

    for folder in folders:
        shutil.rmtree(folder, onerror=stays)


class Fillings:
    """Who makes a copy now: the first of its run's workers; the others wait for that one."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}

    def __call__(self, copy: str) -> asyncio.Lock:
        """The lock of one copy."""
        return self._locks.setdefault(copy, asyncio.Lock())


async def fill(target: Path, pieces: AsyncIterator[bytes], moved: Callable[[], None]) -> None:
    """Make a copy from the stream of another machine.

    Args:
        target: where it will be; it is there whole when this returns, and not at all when it raises.
        pieces: the stream.
        moved: called whenever more has come.

    Raises:
        DriveBroken: it ended early, or is not what it says.
        OSError: it cannot be written.
    """
    filling = target.with_name(f".{target.name}.filling")
    await asyncio.to_thread(_begin, filling)
    reading, writing = os.pipe()
    unpacking = asyncio.ensure_future(asyncio.to_thread(_unpack, reading, filling))
    try:
        try:
            async for piece in pieces:
                await _write(writing, piece, unpacking)
                moved()
        finally:
            os.close(writing)
        await unpacking
    finally:
        await asyncio.gather(unpacking, return_exceptions=True)
    await asyncio.to_thread(filling.replace, target)


async def _write(pipe: int, piece: bytes, unpacking: "asyncio.Future[None]") -> None:
    try:
        await asyncio.to_thread(_write_whole, pipe, piece)
    except BrokenPipeError:  # whoever unpacks has ended: its own error says why
        await unpacking
        raise DriveBroken("more came than the copy has") from None


def _write_whole(pipe: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(pipe, view) :]


def _begin(filling: Path) -> None:
    shutil.rmtree(filling, ignore_errors=True)
    filling.mkdir(mode=0o755, parents=True)


def _unpack(pipe: int, folder: Path) -> None:
    files = size = 0
    told: dict[str, int] | None = None
    try:
        with os.fdopen(pipe, "rb") as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                if entry.name == COMPLETE:
                    body = archive.extractfile(entry)
                    told = json.loads(body.read()) if body else None
                    continue
                archive.extract(entry, folder, filter="data")  # nothing outside of the folder, no devices, no owners
                files, size = files + 1, size + entry.size
            while stream.read(CHUNK_BYTES):
                pass  # padding after the end, which the sender must be able to get rid of
    except (tarfile.TarError, ValueError, EOFError) as cause:
        raise DriveBroken(f"the copy broke off: {cause}") from cause
    if told != {"files": files, "bytes": size}:
        raise DriveBroken(f"the copy broke off after {files} files and {size} bytes")


async def pack(folder: Path) -> AsyncIterator[bytes]:
    """A drive as a stream that says at its end what it was made of.

    Raises:
        OSError: it cannot be read, or changed while it was.
    """
    reading, writing = os.pipe()
    packing = asyncio.ensure_future(asyncio.to_thread(_pack, folder, writing))
    try:
        with os.fdopen(reading, "rb", buffering=0) as stream:
            while piece := await asyncio.to_thread(stream.read, CHUNK_BYTES):
                yield piece
    finally:
        await asyncio.gather(packing, return_exceptions=True)
    packing.result()


def _pack(folder: Path, pipe: int) -> None:
    files = size = 0
    with os.fdopen(pipe, "wb") as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        for path in sorted(folder.rglob("*")):
            entry = archive.gettarinfo(path, arcname=str(path.relative_to(folder)))
            if entry is None or not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
                continue  # a socket or FIFO is nothing that could be copied
            _add(archive, entry, path)
            files, size = files + 1, size + entry.size
        body = json.dumps({"files": files, "bytes": size}).encode()
        last = tarfile.TarInfo(COMPLETE)
        last.size = len(body)
        archive.addfile(last, io.BytesIO(body))


def _add(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    if entry.isreg():
        with path.open("rb") as content:
            archive.addfile(entry, content)
    else:
        archive.addfile(entry)


class DriveDesk:
    """Sends drives of this machine to others that wait for a copy.

    Args:
        link: to the control plane, which passes them on.
        data: the data location.
        log: of the agent.
    """

    def __init__(self, link: Link, data: Path, log: structlog.stdlib.BoundLogger) -> None:
        self._link = link
        self._data = data
        self._log = log
        self.take = Asked(self._send, log).take

    async def _send(self, wish: DriveRequest) -> None:
        folder = kept_at(self._data, wish.namespace, wish.name)
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        try:
            await self._link.send_drive(wish.id, pack(folder))
        except (LinkError, OSError) as cause:
            self._log.warning("a drive was not sent whole", drive=f"{wish.namespace}/{wish.name}", why=str(cause))

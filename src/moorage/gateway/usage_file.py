"""Usage that is not acknowledged, on disk: what a process leaves when it ends, or may lose while nobody takes reports.

One file a process, in `usage/` of the gateway's folder, named by its incarnation. Whoever finds the file of another one
tells it in that one's name; that two do is no harm, since sums are told whole. `write`, `read` and `remove` block as
the disk does; `Leftovers`, which `control` calls, has them run off the event loop.
"""

import asyncio
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from moorage.gateway.config import GatewayConfig
from moorage.gateway.usage import Sums
from moorage.wire.routing import GatewayReportAnswer, Usage

if TYPE_CHECKING:
    from moorage.gateway.hub import Hub

FOLDER: Final = "usage"
LOOK_EVERY_S: Final = 60.0
"""How often a process looks for what others left: one that is replaced ends after its successor began."""

WRITE_EVERY_S: Final = 30.0
"""While no report is answered: so much is lost at most when the process is killed."""


@dataclass(frozen=True, slots=True)
class Left:
    """What one file says.

    Args:
        stamp: tells whether it was written again.
    """

    path: Path
    stamp: tuple[int, int]
    usage: tuple[Usage, ...]


def write(state_dir: Path, incarnation: str, usage: Iterable[Usage]) -> None:
    """Leave it, in place of what was left before; whole or not at all.

    Raises:
        OSError: the disk would not take it.
    """
    rows = [json.loads(one.model_dump_json(exclude_none=True)) for one in usage]
    path = state_dir / FOLDER / f"{incarnation}.json"
    if not rows:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("w") as file:
        json.dump(rows, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def read(state_dir: Path, *, but: Iterable[Path] = ()) -> tuple[list[Left], list[str]]:
    """What others left, and what is wrong with files that cannot be read.

    Args:
        but: of these nothing: the own one, and those that are known.
    """
    known, found, wrong = set(but), [], []
    for path in sorted((state_dir / FOLDER).glob("*.json")):
        if path in known:
            continue
        try:
            stamp, text = _stamp(path), path.read_text()
            found.append(Left(path, stamp, tuple(Usage.model_validate(row) for row in json.loads(text))))
        except FileNotFoundError:
            continue  # another process has told it
        except (OSError, ValueError, TypeError, ValidationError) as error:
            wrong.append(f"{path}: {error}")
    return found, wrong


def remove(left: Left) -> None:
    """What it said is acknowledged; what was written to it since then stays."""
    try:
        if _stamp(left.path) == left.stamp:
            left.path.unlink()
    except FileNotFoundError:
        return  # another process was first


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


class Leftovers:
    """What this process may leave, and what it tells of others.

    Args:
        hub: whose usage it is.
        incarnation: of this process.
    """

    def __init__(self, hub: "Hub", config: GatewayConfig, incarnation: str) -> None:
        self._hub = hub
        self._config = config
        self._incarnation = incarnation
        self._own = config.state_dir / FOLDER / f"{incarnation}.json"
        self._known = {self._own}
        self._open: dict[Path, tuple[Left, set[Sums]]] = {}
        self._written = False
        self._look_at = self._write_at = 0.0

    async def taken(self, answer: GatewayReportAnswer) -> None:
        """A report was answered: what is on disk there need not be here. Now and then others' files are looked for."""
        now = self._hub.time()
        for sums in self._hub.usage.acknowledged(answer.usage_sequence):
            for left, open_ in list(self._open.values()):
                open_.discard(sums)
                if not open_:
                    del self._open[left.path]
                    self._known.discard(left.path)
                    await self._on_disk(remove, left)
        if self._written and not self._unsaid():
            await self.save()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY_S
            await self._look()

    async def not_taken(self) -> None:
        """No report is answered: what would be lost with this process is kept, now and then."""
        self._hub.usage.not_taken()
        now = self._hub.time()
        if now >= self._write_at and self._unsaid():
            await self.save()

    async def save(self) -> None:
        """Keep what is not acknowledged; nothing where all is."""
        unsaid = self._unsaid()
        self._write_at = self._hub.time() + WRITE_EVERY_S
        self._written = bool(unsaid)
        await self._on_disk(write, self._config.state_dir, self._incarnation, unsaid)

    def _unsaid(self) -> list[Usage]:
        return self._hub.usage.left(self._config.gateway_id, self._incarnation)

    async def _look(self) -> None:
        found, wrong = await asyncio.to_thread(read, self._config.state_dir, but=frozenset(self._known))
        for said in wrong:
            self._hub.log.warning("usage.unreadable", error=said)
        for left in found:
            self._known.add(left.path)
            self._open[left.path] = (left, set(self._hub.usage.take_over(left.usage)))

    async def _on_disk(self, work: Callable[..., None], *args: object) -> None:
        try:
            await asyncio.to_thread(work, *args)
        except OSError as error:
            self._hub.log.warning("usage.not_kept", error=str(error))

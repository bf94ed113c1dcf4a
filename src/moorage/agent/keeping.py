"""What of ended workers stays on disk: their directories, for the logs, and what they wrote as output.

A directory (one attempt) stays until it is old, or until all of them together need more room than they may have: then
those of attempts that succeeded go first, the longest ended before the others, then those of attempts that failed, and
last what is still wanted: what somebody reads, what has only just ended, and what belongs to a run of which something
is still here. How many there are says nothing, so an array of a thousand workers takes nobody's log away. Sizes are
measured once, when an attempt ends. Made and fed by the roster; what is read is told by `logs`.
"""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from moorage.ports import Clock

ENDED_FILE = "ended"
"""In the directory of an ended attempt: its run and whether it failed; its age counts from when this was written."""
BUDGET_BYTES_MAX = 10 << 30
BUDGET_OF_DISK = 0.05
"""Without a setting: the smaller of both."""
LEFT = 0.9
"""So much of the room is used after a pruning, so that the next one is not due at once."""
WANTED_S = 600.0
"""What was read or ended within this is still wanted: a reader comes to it late, or reads slowly."""
LOOK_S = 60.0
"""Between two looks for what has become too old."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The directory of an ended attempt.

    Args:
        folder: where.
        run: uid of its run; empty where that is not known.
        failed: whether it did anything but succeed.
        ended_at: seconds since the epoch.
        size_bytes: on disk.
    """

    folder: Path
    run: str
    failed: bool
    ended_at: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class InUse:
    """What is held now: the directories of attempts, and the runs that they are of."""

    folders: frozenset[Path]
    runs: frozenset[str]


class Keeping:
    """Keeps the directories of ended attempts, and removes them in time.

    Args:
        base: holds a directory a worker, and in it one an attempt.
        clock: wall time for ages, and the pause between looks.
        log: told of what was removed for lack of room, and of what cannot be removed.
        budget_bytes: room for all of them together; None: 10 GiB, or 5 % of the disk where that is less.
        age_s: so long after its end an attempt's directory stays.
        in_use: what is held now.
    """

    def __init__(
        self,
        base: Path,
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
        *,
        budget_bytes: int | None,
        age_s: float,
        in_use: Callable[[], InUse],
    ) -> None:
        self._base = base
        self._budget_bytes = budget_bytes
        self._age_s = age_s
        self._clock = clock
        self._log = log
        self._in_use = in_use
        self._kept: dict[Path, Kept] = {}
        self._total_bytes = 0
        self._read_at: dict[Path, float] = {}
        self._new: list[tuple[Path, str, bool]] = []
        self._news = asyncio.Event()

    def ended(self, folder: Path, run: str, *, failed: bool) -> None:
        """An attempt is over and held no more."""
        self._new.append((folder, run, failed))
        self._news.set()

    def reading(self, folder: Path) -> None:
        """Somebody reads this log now. From any thread."""
        self._read_at[folder] = self._clock.now()

    async def keep(self) -> None:
        """Look at what an earlier agent left, then do what is due, for ever; to be cancelled."""
        if self._budget_bytes is None:
            self._budget_bytes = await asyncio.to_thread(default_budget, self._base)
        for kept in await asyncio.to_thread(_found, self._base):
            self._note(kept)
        while True:
            await self.look()
            await self._pause()

    async def look(self) -> None:
        """Take in what has ended, and remove what is too old or has no room any more."""
        self._news.clear()
        new, self._new = self._new, []
        for kept in await asyncio.to_thread(_measured, new, self._clock.now()):
            self._note(kept)
        chosen = self._chosen()
        if chosen:
            for kept in await asyncio.to_thread(self._remove, chosen):
                self._total_bytes -= self._kept.pop(kept.folder).size_bytes
                _remove_empty(kept.folder.parent)  # on the loop, where the next attempt's directory is made as well

    def _note(self, kept: Kept) -> None:
        before = self._kept.get(kept.folder)
        self._total_bytes += kept.size_bytes - (before.size_bytes if before is not None else 0)
        self._kept[kept.folder] = kept

    def _chosen(self) -> list[Kept]:
        """What has to go now."""
        now, used = self._clock.now(), self._in_use()
        self._read_at = {folder: at for folder, at in self._read_at.items() if now - at < WANTED_S}
        may_go = [kept for kept in self._kept.values() if kept.folder not in used.folders]
        chosen = [k for k in may_go if now - k.ended_at > self._age_s and k.folder not in self._read_at]
        budget = self._budget_bytes if self._budget_bytes is not None else BUDGET_BYTES_MAX
        if self._total_bytes <= budget:
            return chosen
        left_bytes, old = self._total_bytes - sum(k.size_bytes for k in chosen), {k.folder for k in chosen}

        def order(kept: Kept) -> tuple[bool, bool, float]:
            recent = now - kept.ended_at < WANTED_S or kept.folder in self._read_at
            return recent or kept.run in used.runs, kept.failed, kept.ended_at

        for kept in sorted((k for k in may_go if k.folder not in old), key=order):
            if left_bytes <= budget * LEFT:
                break
            chosen.append(kept)
            left_bytes -= kept.size_bytes
        if len(chosen) > len(old):
            self._log.info("no room for all logs: the oldest go", removed=len(chosen), budget_bytes=budget)
        return chosen

    def _remove(self, chosen: Iterable[Kept]) -> list[Kept]:
        removed = []
        for kept in chosen:
            try:
                shutil.rmtree(kept.folder)
            except FileNotFoundError:
                removed.append(kept)
            except OSError as cause:  # tried again the next time: nothing else waits for it
                self._log.warning("cannot remove an ended worker's directory", folder=str(kept.folder), why=str(cause))
            else:
                removed.append(kept)
        return removed

    async def _pause(self) -> None:
        """Until something has ended, or it is time to look for what is too old."""
        pause = asyncio.ensure_future(self._clock.sleep(LOOK_S))
        news = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({pause, news}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            news.cancel()


def default_budget(base: Path) -> int:
    """Room for the directories of ended attempts where no setting says how much."""
    place = base
    while not place.exists():
        place = place.parent
    return min(BUDGET_BYTES_MAX, int(shutil.disk_usage(place).total * BUDGET_OF_DISK))


def prune_outputs(base: Path, used: Collection[Path]) -> None:
    """Remove output directories in which nothing was written. What was written is the user's and stays.

    Args:
        base: holds a directory a run, and in it one a rank.
        used: those of workers that may still write.
    """
    for rank in base.glob("*/*"):
        if rank not in used:
            _remove_empty(rank)
    runs_in_use = {p.parent for p in used}
    for run in base.glob("*"):
        if run not in runs_in_use:
            _remove_empty(run)


def remove_output(output: Path, used: Collection[Path]) -> None:
    """Remove one rank's output directory, and then its run's, where nothing was written and nobody may write.

    Args:
        output: of a worker that is forgotten.
        used: those of workers that may still write.
    """
    if output in used:
        return
    _remove_empty(output)
    if output.parent not in {p.parent for p in used}:
        _remove_empty(output.parent)


def _found(base: Path) -> list[Kept]:
    """All attempts' directories; one without a word of its end (its agent was killed) is taken for one that failed."""
    out = []
    for folder in base.glob("*/*-*"):
        kept = _kept(folder)
        if kept is not None:
            out.append(kept)
    for worker in base.glob("*"):
        _remove_empty(worker)
    return out


def _measured(ended: Iterable[tuple[Path, str, bool]], now: float) -> list[Kept]:
    """What has ended, written down in its directory and measured."""
    out = []
    for folder, run, failed in ended:
        try:
            (folder / ENDED_FILE).write_text(json.dumps({"run": run, "failed": failed}))
            os.utime(folder / ENDED_FILE, (now, now))
        except FileNotFoundError:
            continue  # nothing was ever made there
        except OSError:
            pass  # a full disk: it is known in memory, and after a restart counts as failed
        out.append(Kept(folder, run, failed, now, _size(folder)))
    return out


def _kept(folder: Path) -> Kept | None:
    try:
        told = folder / ENDED_FILE
        try:
            fields, at = json.loads(told.read_text()), told.stat().st_mtime
        except (FileNotFoundError, ValueError):
            fields, at = {}, folder.stat().st_mtime
        return Kept(folder, str(fields.get("run", "")), bool(fields.get("failed", True)), at, _size(folder))
    except FileNotFoundError:
        return None  # removed meanwhile


def _size(folder: Path) -> int:
    """Bytes that a directory and all in it take on the disk."""
    total = 0
    try:
        total += folder.stat(follow_symlinks=False).st_blocks * 512
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += _size(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return total  # not to be looked into, or gone meanwhile
    return total


def _remove_empty(folder: Path) -> None:
    """Remove it if nothing is in it; decided by the kernel, so that nothing written meanwhile is lost."""
    try:
        folder.rmdir()
    except OSError:
        return  # something is in it, or it is no directory of ours

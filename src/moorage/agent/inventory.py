"""What this machine has, as its heartbeats tell it: GPUs, their health, strangers on them, and what it is short of.

Looks once in a while, in threads, and keeps what was seen last: a heartbeat never waits for a driver. What is told is a
level, not an event, so that an answer that was lost loses nothing. Built by `agent`; read by the session.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from moorage.agent import pressure
from moorage.devices.bounded import Bounded
from moorage.devices.port import Devices, DevicesUnavailable, Health, Reading
from moorage.ports import Clock
from moorage.runners.belonging import Mark, belonging, visible
from moorage.wire.gpus import Gpu

LOOK_S = 10.0
"""Between looks: as often as heartbeats. A look takes a driver some milliseconds."""

LIMIT_S = 10.0
"""For one look. A driver that wakes a sleeping GPU takes one or two seconds for each."""

CLOSE_S = 2.0
"""For the driver to let go at the end, which is courtesy."""

SILENT_S = 60.0
"""A driver that has answered nothing for so long hangs: work placed on its GPUs would hang too."""

FOREIGN_BYTES = 256 << 20
"""Memory of strangers from which on a GPU is theirs. A display or a monitoring tool takes some tens of MiB; the bare
context of a program that computes takes more than this on the boards that models are served on."""

GONE = "the driver does not show it any more"


@dataclass(frozen=True, slots=True)
class Ours:
    """What of the GPUs is used by what is held here, as of now.

    Args:
        marks: by which processes of held workers are known.
        gpus: indexes of those that were given to held workers.
    """

    marks: tuple[Mark, ...] = ()
    gpus: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Seen:
    readings: tuple[Reading, ...]
    ours: frozenset[int]
    visible: frozenset[int]
    held: frozenset[int]


class Inventory:
    """The last look.

    Args:
        devices: the GPUs.
        places: directories whose disks may get full.
        clock: time.
        log: told of what cannot be looked at.
    """

    def __init__(
        self, devices: Devices, places: Iterable[Path], clock: Clock, log: structlog.stdlib.BoundLogger
    ) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """called when something is to be told"""
        self.gpus: tuple[Gpu, ...] = ()
        self.pressure: tuple[str, ...] = ()
        self._devices = devices
        self._clock = clock
        self._ours: Callable[[], Ours] = Ours
        self._now_ours = Ours()
        self._log = log
        self._look = Bounded(self._observe, clock, LIMIT_S, "the GPUs' driver")
        where = tuple(places)
        self._levels = Bounded(lambda: pressure.look(where), clock, LIMIT_S, "the file system of the agent's home")
        self._suspected: frozenset[int] = frozenset()
        self._answered_at = clock.monotonic()
        self._failing = False

    def attend(self, ours: Callable[[], Ours]) -> None:
        """From now on ask this what is held here."""
        self._ours = ours

    async def keep(self) -> None:
        """Look again and again; runs until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Look once, for a bounded time."""
        before = self.gpus, self.pressure
        self._now_ours = self._ours()
        await asyncio.gather(self._look_at_gpus(first=not self.gpus), self._look_at_levels())
        if (self.gpus, self.pressure) != before:
            self.on_change()

    async def close(self) -> None:
        """Let go of the driver, unless a look is still in it; the end of the program does so then."""
        if self._look.busy:
            return
        try:
            await Bounded(self._devices.close, self._clock, CLOSE_S, "the GPUs' driver")()
        except DevicesUnavailable as cause:
            self._log.warning("cannot let go of the GPUs' driver", why=cause.message)

    # Pressure

    async def _look_at_levels(self) -> None:
        try:
            levels = await self._levels()
        except (DevicesUnavailable, OSError) as cause:
            self._log.warning("cannot see what this machine is short of", why=str(cause))
            return
        now = pressure.conditions(levels, self.pressure)
        if now != self.pressure:
            self._log.warning("under pressure" if now else "no longer under pressure", conditions=now)
        self.pressure = now

    # GPUs

    def _observe(self) -> _Seen:
        """In a thread: the driver, and whose the processes on its GPUs are."""
        try:
            return self._seen()
        except DevicesUnavailable:
            raise
        except Exception as cause:  # a driver's library may fail in any way; workers must not lose their agent to it
            raise DevicesUnavailable(f"the look at the GPUs failed: {cause!r}") from cause

    def _seen(self) -> _Seen:
        ours, readings = self._now_ours, self._devices.read()
        numbers = {use.number for reading in readings for use in reading.uses or ()}
        shown = frozenset(number for number in numbers if visible(number))
        return _Seen(readings, belonging(shown, ours.marks), shown, ours.gpus)

    async def _look_at_gpus(self, *, first: bool) -> None:
        try:
            seen = await self._look()
        except DevicesUnavailable as cause:
            self._missed(cause)
            return
        self._failing, self._answered_at = False, self._clock.monotonic()
        found = {r.device.index: strangers(r, seen.ours, seen.visible, seen.held) for r in seen.readings}
        many = frozenset(index for index, (bytes_, _) in found.items() if bytes_ >= FOREIGN_BYTES)
        told = many if first else many & self._suspected
        self._suspected = many
        gpus = [_gpu(r, *(found[r.device.index] if r.device.index in told else (0, ()))) for r in seen.readings]
        self.gpus = tuple(sorted([*gpus, *_gone(self.gpus, gpus)], key=lambda gpu: gpu.index))

    def _missed(self, cause: DevicesUnavailable) -> None:
        """No answer: what was seen last stands for a while; then no GPU of such a driver is of use."""
        if not self._failing:
            self._log.warning("cannot look at the GPUs", why=cause.message)
        self._failing = True
        silent_s = self._clock.monotonic() - self._answered_at
        if silent_s >= SILENT_S:
            faulty = {"health": str(Health.FAULTY), "fault": cause.message}
            self.gpus = tuple(gpu.model_copy(update=faulty) for gpu in self.gpus)


def strangers(
    reading: Reading, ours: frozenset[int], shown: frozenset[int], held: frozenset[int]
) -> tuple[int, tuple[int, ...]]:
    """Memory on a GPU that is used by nobody known here, in bytes, and the processes that have it.

    What /proc does not show may be a held worker's (a driver that counts pids as another namespace does), so on a GPU
    that is held it is taken for the holder's; on one that nobody holds, all memory in use is a stranger's.

    Args:
        reading: of the GPU.
        ours: processes that are part of held workers.
        shown: processes that /proc shows.
        held: GPUs that held workers have.
    """
    is_held = reading.device.index in held
    uses = [u for u in reading.uses or () if u.number not in ours and (u.number in shown or not is_held)]
    listed = sum(use.bytes or 0 for use in uses)
    if not is_held and reading.used_bytes is not None:
        known = sum(use.bytes or 0 for use in reading.uses or () if use.number in ours)
        listed = max(listed, reading.used_bytes - known)
    return listed, tuple(use.number for use in uses)


def _gpu(reading: Reading, foreign_bytes: int, numbers: Sequence[int]) -> Gpu:
    device = reading.device
    return Gpu(
        index=device.index,
        uuid=device.uuid,
        vendor=device.vendor,
        model=device.model,
        name=device.name,
        memory_bytes=device.memory_bytes,
        health=str(reading.health),
        fault=reading.fault,
        foreign_bytes=-(-foreign_bytes // FOREIGN_BYTES) * FOREIGN_BYTES,
        foreign_pids=tuple(numbers),
    )


def _gone(before: Sequence[Gpu], now: Sequence[Gpu]) -> list[Gpu]:
    """GPUs that were there, whose place no other has taken: faulty, since somebody may count on them."""
    taken, known = {gpu.index for gpu in now}, {gpu.uuid for gpu in now if gpu.uuid}
    gone = [gpu for gpu in before if gpu.index not in taken and gpu.uuid not in known]
    return [gpu.model_copy(update={"health": str(Health.FAULTY), "fault": GONE}) for gpu in gone]

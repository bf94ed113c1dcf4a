"""What a cycle decides: who is placed where, and what a unit that is not placed waits for.

Made by `assign`, put into words by `writes`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from moorage.decide.scheduling.bulk import Fill
from moorage.decide.scheduling.fleet import Ints
from moorage.decide.scheduling.gang import Found
from moorage.decide.scheduling.ledger import Ledger
from moorage.decide.scheduling.line import Line
from moorage.decide.scheduling.order import Unit
from moorage.decide.scheduling.preempt import Plan
from moorage.decide.scheduling.quota import Full
from moorage.decide.scheduling.reserve import Head


class Why(Enum):
    """What a unit waits for."""

    ROOM = "room"
    """it fits nowhere, and nothing that ends by itself would change that"""
    HEAD = "head"
    BEHIND = "behind"
    """there is none left for it beside the head"""
    STOPPING = "stopping"
    """others are being stopped for it, as of this cycle"""
    PLANNED = "planned"
    """others were stopped for it and are not gone yet"""
    FABRIC = "fabric"
    """only its patience keeps it waiting"""
    QUOTA = "quota"
    """its namespace may not hold so much more"""


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """A unit that waits.

    Args:
        until: when this wait ends at the latest, where that is known.
        behind: the head it waits behind.
        plan: whom it has stopped.
        left: how many of those are not gone.
        full: the quota that it would exceed.
    """

    unit: Unit
    why: Why
    until: float | None = None
    behind: Unit | None = None
    plan: Plan | None = None
    left: int = 0
    full: Full | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Same:
    """Workers that wait for what others alike were found to wait for, in columns.

    Args:
        where: their places in the line.
        like: for each of them, which of `Waits.known` it is like.
    """

    where: Ints
    like: Ints

    def __len__(self) -> int:
        return len(self.where)


class Waits:
    """Every wait of a cycle, in order. Those of workers alike are made when they are read.

    Args:
        line: whose units wait.
    """

    def __init__(self, line: Line | None = None) -> None:
        self.line = line
        self.parts: list[Wait | Same] = []
        self.known: list[Wait] = []
        """what workers alike wait for"""
        self._count = 0

    @staticmethod
    def of(waits: Iterable[Wait]) -> "Waits":
        """Just these."""
        found = Waits()
        for wait in waits:
            found.append(wait)
        return found

    def copy(self) -> "Waits":
        """Another one with the same waits."""
        other = Waits(self.line)
        other.parts, other.known, other._count = list(self.parts), list(self.known), self._count
        return other

    def append(self, wait: Wait) -> None:
        """One more, looked at by itself."""
        self.parts.append(wait)
        self._count += 1

    def extend(self, same: Same) -> None:
        """More that are like some that are known."""
        self.parts.append(same)
        self._count += len(same)

    @property
    def last(self) -> Wait | None:
        """The last one, if it was looked at by itself."""
        part = self.parts[-1] if self.parts else None
        return part if isinstance(part, Wait) else None

    @property
    def single(self) -> Iterator[Wait]:
        """Those that were looked at by themselves."""
        return (part for part in self.parts if isinstance(part, Wait))

    def each(self, same: Same, begin: int = 0, end: int | None = None) -> Iterator[Wait]:
        """The waits of a part."""
        if self.line is None:
            return
        for at, like in zip(same.where[begin:end].tolist(), same.like[begin:end].tolist(), strict=True):
            yield replace(self.known[like], unit=self.line.units[at])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Wait]:
        for part in self.parts:
            if isinstance(part, Wait):
                yield part
            else:
                yield from self.each(part)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a cycle decides.

    Args:
        alone: units that were placed one by one, with their room.
        fills: workers that were placed together because their order could not matter.
        waits: the others, in order.
        wake_at: when to run again even if nothing happens.
        ledger: what is left free, the head's and all other kept room taken out.
        head: the next to run.
    """

    alone: tuple[Found, ...]
    fills: tuple[Fill, ...]
    waits: Waits
    wake_at: float | None
    ledger: Ledger
    head: Head | None = None

    @property
    def placed(self) -> Iterator[Found]:
        """Every unit that is placed, with its room."""
        yield from self.alone
        for fill in self.fills:
            yield from fill.found()

    @property
    def count(self) -> int:
        """Workers that are placed."""
        return sum(len(found) for found in self.alone) + sum(len(fill) for fill in self.fills)

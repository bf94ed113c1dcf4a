"""What a cycle decides: who is placed where, and what a unit that is not placed waits for.

Made by `assign`, put into words by `writes`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from moorage.decide.scheduling.bulk import Fill
from moorage.decide.scheduling.gang import Found
from moorage.decide.scheduling.ledger import Ledger
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
    waits: tuple[Wait, ...]
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

"""What a unit that is not placed waits for. Made by `assign`, put into words by `writes`."""

from dataclasses import dataclass
from enum import Enum

from moorage.decide.scheduling.order import Unit
from moorage.decide.scheduling.preempt import Plan
from moorage.decide.scheduling.quota import Full


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

"""What the rows show of one durable operation: the meeting point of the engine and of what each operation does.

The engine in `operations` knows leases, attempts, waiting and ends; what apply, promote, stop or delete have done so
far is read from the rows by a function of theirs, which returns `Facts`. Nothing here decides.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STEPS: Mapping[str, tuple[str, ...]] = {
    "apply": ("record", "provision", "ready", "activate"),
    "promote": ("record", "scale", "activate"),
    "reject": ("record", "withdraw"),
    "rollback": ("record", "provision", "activate"),
    "stop": ("withdraw", "drain", "stop"),
    "adopt": ("record", "reach"),
    "delete": ("withdraw", "drain", "stop", "prove_absence", "tombstone"),
}
"""Named checkpoints per operation, in order."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The step failed and is tried again.

    Args:
        error: what went wrong, a sentence.
        at: when the next attempt begins, seconds since the epoch, where whoever makes it has decided that; each new
            time is one more attempt. None: the engine counts attempts and backs off.
    """

    error: str
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rows show of one operation.

    Args:
        done: how many of its steps are done; all of them: it succeeded.
        error: it failed for good: the public error object.
        cancelled_by: what took its object away (a stop or delete, a later apply).
        waiting: what its step waits for. Without counts that change all the time: each new text is a row of history.
        retry: its step failed and is tried again.
        attention: what is there cannot be told for certain, and nothing is touched until a person says: the evidence.
    """

    done: int
    error: Mapping[str, Any] | None = None
    cancelled_by: str | None = None
    waiting: str | None = None
    retry: Retry | None = None
    attention: str | None = None


def first_steps(operation: str, done: int, now: float) -> tuple[dict[str, Any], ...]:
    """The steps of a new operation, of which the first `done` are done by the very change that creates it."""
    return tuple(
        {"name": name, "state": "done" if i < done else "pending", "at": now if i < done else None}
        for i, name in enumerate(STEPS[operation])
    )

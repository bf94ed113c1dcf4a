"""The loop of every wait: read, judge, sleep, until the goal is reached, cannot be reached, or time is over.

Time is the transport's monotonic clock. Each read has a limit of its own, so that a server which takes a connection
and says nothing cannot hold the wait beyond its time-out; a server that cannot be reached is asked again until then.
There is always one last look at the deadline, and what it shows counts. Called by the resources with a `wait`.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

from moorage.client.calls import NoAnswer, Transport
from moorage.client.session import INTERVAL_S
from moorage.client.waiting import Done, Failed, Verdict
from moorage.domain.errors import InvalidSpec, MoorageError, NotFound, WaitFailed, WaitTimeout

POLL_LIMIT_S = 10.0
"""A healthy control plane answers in milliseconds; after ten seconds another connection is the better try."""

LAST_LOOK_S = 0.5
"""Least limit of a read, so that the one at the deadline can still be answered."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sight:
    """One look: the object, the verdict on it."""

    object: Json
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """A wait that reached its goal.

    Attributes:
        goal: what was waited for.
        serving: whether a ready replica answers now.
        desired: replicas wanted now; 0 is a deployment at rest.
        last: the object as last read.
    """

    goal: str
    serving: bool
    desired: int | None
    last: Json

    def __str__(self) -> str:
        desired = "" if self.desired is None else f", desired: {self.desired}"
        return f"{self.goal} (serving: {str(self.serving).lower()}{desired})"


@dataclass(frozen=True, slots=True)
class Watch:
    """What is waited for, and how it is told.

    Args:
        goal: the word of the goal.
        subject: `Deployment default/gemma`.
        name: for the commands that a remedy names.
        timeout_s: None waits for ever.
        interval_s: between two reads.
        on_status: called with each object read.
        look: how to look further, where `moor why` and `moor logs` tell nothing of it.
    """

    goal: str
    subject: str
    name: str
    timeout_s: float | None
    interval_s: float = INTERVAL_S
    on_status: Callable[[Json], None] | None = None
    look: str = ""

    @property
    def remedy(self) -> str:
        """How to look further."""
        return self.look or f"look further with `moor why {self.name}` and `moor logs {self.name}`"

    @property
    def onward(self) -> str:
        """How to wait on, once time is over; empty where the remedy tells it already."""
        return "" if self.look else f"; wait on with `moor wait {self.name} --for {self.goal}`"


def watch_of(
    kind: str,
    goals: Collection[str],
    where: str,
    name: str,
    goal: str,
    *,
    timeout_s: float | None,
    interval_s: float,
    on_status: Callable[[Json], None] | None,
) -> Watch:
    """What is waited for: the `kind` `where`/`name`.

    Raises:
        InvalidSpec: `goal` is none of the goals of this kind.
    """
    if goal not in goals:
        known = ", ".join(sorted(goals))
        raise InvalidSpec(f"a {kind.lower()} cannot be waited for until {goal!r}", remedy=f"wait for one of: {known}")
    return Watch(str(goal), f"{kind} {where}/{name}", name, timeout_s, interval_s, on_status)


async def watch(what: Watch, look: Callable[[float], Awaitable[Sight]], transport: Transport) -> Outcome:
    """Wait.

    Args:
        what: see `Watch`.
        look: reads and judges, within the seconds it is given.
        transport: its clock.

    Raises:
        WaitFailed: the goal will not be reached.
        WaitTimeout: time is over.
        NotFound: there was nothing of that name to begin with.
    """
    began = transport.monotonic()
    until = None if what.timeout_s is None else began + what.timeout_s
    last: Json = {}
    said = "was never read"
    reached = False
    while True:
        left_s = POLL_LIMIT_S if until is None else until - transport.monotonic()
        try:
            sight = await look(min(POLL_LIMIT_S, max(left_s, LAST_LOOK_S)))
        except MoorageError as error:
            if not _passing(error):
                raise
            reached = reached or not isinstance(error.__cause__, NoAnswer)
            said = error.message if reached else f"the control plane was never reached; {error.message}"
        else:
            reached = True
            last = sight.object
            if what.on_status is not None:
                what.on_status(last)
            if isinstance(sight.verdict, Done):
                return Outcome(what.goal, sight.verdict.serving, sight.verdict.desired, last)
            if isinstance(sight.verdict, Failed):
                raise _failed(what, sight.verdict, last)
            said = sight.verdict.why
        left_s = what.interval_s if until is None else until - transport.monotonic()
        if left_s <= 0:
            raise _timed_out(what, said, last)
        await transport.sleep(min(what.interval_s, left_s))


def _passing(error: MoorageError) -> bool:
    """Whether the same read may go well later: no answer, or a server in trouble."""
    return error.retryable or (error.status >= 500 and not isinstance(error, NotFound))


def _failed(what: Watch, verdict: Failed, last: Json) -> WaitFailed:
    return WaitFailed(
        f"{what.subject} will not be {what.goal}: {verdict.why}{_because(verdict, last)}",
        last=last,
        reason=verdict.reason,
        remedy=what.remedy,
        target=what.subject,
    )


def _timed_out(what: Watch, said: str, last: Json) -> WaitTimeout:
    told = {} if what.look else last.get("rollout") or last.get("reason") or {}
    because = f"; {told['message']}" if told.get("message") else ""
    return WaitTimeout(
        f"{what.subject} was not {what.goal} within {what.timeout_s:g} s: {said}{because}",
        last=last,
        remedy=what.remedy + what.onward,
        target=what.subject,
    )


def _because(verdict: Failed, last: Json) -> str:
    """The reason's sentence, and where a failure is the cause its exit code and the end of its log."""
    reason = verdict.reason
    parts = [str(reason["message"])] if reason and reason.get("message") else []
    failure = last.get("last_failure") or {} if verdict.by_failure else {}
    code = failure.get("exit_code", last.get("exit_code") if verdict.by_failure else None)
    if code is not None:
        parts.append(f"exit code {code}")
    lines = str(failure.get("log") or "").strip().splitlines()
    if lines:
        parts.append(f"its log ends: {lines[-1]}")
    return f": {'; '.join(parts)}" if parts else ""

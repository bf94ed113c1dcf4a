"""Where a model stands, and the one way its state changes: checked against the RUNNER table, then told to followers."""

import asyncio

from moorage.domain.lifecycles.runner import RUNNER
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import RunnerState
from moorage.runners.library.parts import Parts
from moorage.runners.library.views import Failure, StateChange


class Standing:
    """The part of a model that changes.

    Attributes:
        state: written by `move` alone.
        since: seconds since the epoch.
        reason: of the last change, or of what it waits for.
        restarts: since the last start or reset.
        ready_times: how often it got to running.
    """

    def __init__(self, name: str, parts: Parts) -> None:
        self._name = name
        self._parts = parts
        self._changed: asyncio.Future[None] | None = None
        self.state = RunnerState.STOPPED
        self.since = parts.clock.now()
        self.reason: Reason = reason("stop.default")
        self.restarts = 0
        self.next_restart_at: float | None = None
        self.last_failure: Failure | None = None
        self.pulled: tuple[int, int] | None = None
        self.ready_times = 0

    def move(self, target: RunnerState, trigger: str, why: Reason) -> None:
        """Change the state.

        Raises:
            IllegalTransition: the table has no such row.
        """
        RUNNER.check(self.state, target, trigger)
        source, self.state, self.since, self.reason = self.state, target, self._parts.clock.now(), why
        self._parts.seq += 1
        self._parts.feed.publish(
            StateChange(
                seq=self._parts.seq,
                model=self._name,
                source=source,
                target=target,
                trigger=trigger,
                reason=why,
                at=self.since,
                restarts=self.restarts,
                next_restart_at=self.next_restart_at,
            )
        )
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    async def next_change(self) -> None:
        """Wait until the state is written again."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

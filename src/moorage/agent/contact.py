"""When the control plane last answered a heartbeat, also across a restart of the agent.

For workers that are to be stopped when this machine is cut off (`on_disconnect: stop`): somebody counts on them being
gone a given time after that answer, so an agent that was started again meanwhile must not begin to count anew. The
moment counts from when the heartbeat was sent, which is never later than when it was taken. Kept by the session's
heartbeats, asked by held workers.
"""

import json
from collections.abc import Mapping

from moorage.agent.ledger import Ledger
from moorage.agent.limits import until
from moorage.ports import Clock

ANSWERED = "heartbeat_answered"


class Contact:
    """The last answered heartbeat.

    Args:
        ledger: where it is kept.
        clock: its clock that never steps counts.
        boot_id: of this start of the machine: an earlier one's moments mean nothing.
        notes: what the ledger remembered.
    """

    def __init__(self, ledger: Ledger, clock: Clock, boot_id: str, notes: Mapping[str, str]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._boot_id = boot_id
        self.answered_at = clock.monotonic()
        kept = json.loads(notes.get(ANSWERED, "null"))
        if kept is not None and kept["boot"] == boot_id:
            self.answered_at = min(self.answered_at, float(kept["at"]))

    def answered(self, sent_at: float) -> None:
        """A heartbeat sent at this moment was answered."""
        self.answered_at = max(self.answered_at, sent_at)

    async def save(self) -> None:
        """Keep it; on disk when this returns."""
        await self._ledger.note({ANSWERED: json.dumps({"boot": self._boot_id, "at": self.answered_at})})

    async def lost_for(self, seconds: float, *, since: float) -> None:
        """Wait until so long has passed since the last answer.

        Args:
            seconds: how long.
            since: when the work that asks was taken up: the control plane was there then, heartbeat or not.
        """
        while self._clock.monotonic() < (end := max(self.answered_at, since) + seconds):
            await until(self._clock, end)

"""What workers of this machine ask the control plane for while they are set up, and the wait between two tries.

One desk a machine: it knows for whom it speaks (told by the session at each join), and everybody who waits at it is
woken when the control plane has said something new, so that a secret that was just set is asked for at once. Called by
`providing` and `certificates`.
"""

import asyncio
from collections.abc import AsyncIterator

from moorage.agent.link import Link, LinkError
from moorage.ports import Clock
from moorage.wire.giving import IdentityAnswer, SecretsAnswer, SecretsRequest

PAUSES_S = (0.5, 1.0, 2.0, 3.0)
"""Between tries, when nothing wakes: a worker is set up seconds after what it lacked is there, whoever set it."""


class Desk:
    """Asks.

    Args:
        link: to the control plane.
        clock: for the pauses.
    """

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._machine = self._incarnation = ""
        self._woken = asyncio.Event()

    def speaks_for(self, machine: str, incarnation: str) -> None:
        """The control plane has this machine under these from now on."""
        self._machine, self._incarnation = machine, incarnation
        self.wake()

    def wake(self) -> None:
        """There is news: whoever pauses asks again now."""
        self._woken.set()
        self._woken = asyncio.Event()

    async def secrets(self, worker: str, epoch: int) -> SecretsAnswer | None:
        """The values that a worker's spec names; None when nobody can answer that now."""
        try:
            return await self._link.secrets(self._request(worker, epoch))
        except LinkError:
            return None

    async def identity(self, worker: str, epoch: int) -> IdentityAnswer:
        """A certificate, or why there is none."""
        try:
            return await self._link.identity(self._request(worker, epoch))
        except LinkError:
            return IdentityAnswer(why="the control plane does not answer")

    def drive(self, name: str, worker: str, epoch: int) -> AsyncIterator[bytes]:
        """A drive of another machine, as it comes."""
        return self._link.drive(name, worker, epoch, self._incarnation)

    @property
    def machine(self) -> str:
        """Uid of this machine; empty before the first join."""
        return self._machine

    async def pause(self, tries: int) -> None:
        """Wait before the next try, the longer the more there were; news ends it."""
        woken = asyncio.ensure_future(self._woken.wait())
        slept = asyncio.ensure_future(self._clock.sleep(PAUSES_S[min(tries, len(PAUSES_S)) - 1]))
        try:
            await asyncio.wait({woken, slept}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            slept.cancel()

    def _request(self, worker: str, epoch: int) -> SecretsRequest:
        return SecretsRequest(machine=self._machine, incarnation=self._incarnation, worker=worker, epoch=epoch)

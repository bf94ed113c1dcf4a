"""Copies of drives on their way: what one machine sends is passed to the machine that waits for it, as it comes.

Agents pull, so the wish travels with the next `Work` of the machine that has the data; its agent sends it with one
request, and each piece is passed on before the next is taken. Nothing is kept here. A side that breaks off breaks the
other off too, and the copy is begun anew. Called by the API's agent routes, and by whoever builds `Work` (`pending`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from moorage.domain.errors import NotFound, Unavailable
from moorage.ports import Clock
from moorage.wire.giving import DriveRequest

CONNECT_S = 30.0
"""A machine whose agent polls begins to send within a round trip or two."""


@dataclass(slots=True)
class _Wish:
    machine: str
    request: DriveRequest
    pieces: "asyncio.Queue[bytes | None]" = field(default_factory=lambda: asyncio.Queue(1))
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class DriveRelay:
    """Puts the two machines together.

    Args:
        clock: how long to wait for the sender.
        new_id: unguessable ids.

    Attributes:
        on_change: called with the uid of the machine that has the data, to end its long-poll.
    """

    def __init__(self, clock: Clock, new_id: Callable[[], str]) -> None:
        self.on_change: Callable[[str], None] = lambda machine: None
        self._clock = clock
        self._new_id = new_id
        self._wishes: dict[str, _Wish] = {}

    def pending(self, machine: str) -> tuple[DriveRequest, ...]:
        """What the machine's next `Work` should carry."""
        return tuple(w.request for w in self._wishes.values() if w.machine == machine and not w.begun.is_set())

    async def fetch(self, machine: str, namespace: str, name: str) -> AsyncIterator[bytes]:
        """Pieces of a drive's copy, from the machine that has it.

        Raises:
            Unavailable: that machine does not begin to send, or broke off.
        """
        wish = _Wish(machine, DriveRequest(id=self._new_id(), namespace=namespace, name=name))
        self._wishes[wish.request.id] = wish
        self.on_change(machine)
        try:
            await self._begun(wish)
            while (piece := await wish.pieces.get()) is not None:
                if not piece:
                    raise Unavailable("the machine that has the drive broke off")
                yield piece
        finally:
            wish.over.set()
            del self._wishes[wish.request.id]

    async def pass_on(self, machine: str, id: str, pieces: AsyncIterator[bytes]) -> None:
        """Everything that the machine sends for a wish, piece by piece as it is taken.

        Raises:
            NotFound: nobody waits for it (any more).
        """
        wish = self._wishes.get(id)
        if wish is None or wish.machine != machine or wish.begun.is_set():
            raise _over(id)
        wish.begun.set()
        whole = False
        try:
            async for piece in pieces:
                if piece:
                    await self._put(wish, piece)
            whole = True
        finally:
            if not wish.over.is_set():
                await self._put(wish, None if whole else b"")

    async def _put(self, wish: _Wish, piece: bytes | None) -> None:
        putting, over = asyncio.ensure_future(wish.pieces.put(piece)), asyncio.ensure_future(wish.over.wait())
        try:
            await asyncio.wait({putting, over}, return_when=asyncio.FIRST_COMPLETED)
            if not putting.done():
                raise _over(wish.request.id)
        finally:
            putting.cancel()
            over.cancel()

    async def _begun(self, wish: _Wish) -> None:
        begun, late = asyncio.ensure_future(wish.begun.wait()), asyncio.ensure_future(self._clock.sleep(CONNECT_S))
        try:
            await asyncio.wait({begun, late}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            begun.cancel()
            late.cancel()
        if not wish.begun.is_set():
            raise Unavailable("the machine that has the drive does not answer")


def _over(id: str) -> NotFound:
    return NotFound(f"nobody waits for the drive of wish {id}", remedy="send nothing more", code="question_over")

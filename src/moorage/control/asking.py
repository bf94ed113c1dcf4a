"""Questions to machines that have one answer: carried with the machine's next `Work`, answered by its agent's POST.

Agents pull, so a question ends the machine's long-poll and is told with each `Work` until it is answered or nobody
waits any more. Nothing is kept. Called by whoever asks, by what builds `Work` (`pending`), and by the agent routes.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from moorage.domain.errors import NotFound
from moorage.ports import Clock


class Question(Protocol):
    """What can be asked."""

    @property
    def id(self) -> str:
        """By which its answer is known."""
        ...


Q = TypeVar("Q", bound=Question)
A = TypeVar("A")


@dataclass(slots=True)
class _Wish(Generic[Q, A]):
    machine: str
    question: Q
    answered: "asyncio.Future[A]"


class Asking(Generic[Q, A]):
    """Questions of one kind.

    Args:
        clock: how long an answer may take.

    Attributes:
        on_change: called with the uid of a machine that is asked, to end its long-poll.
    """

    def __init__(self, clock: Clock) -> None:
        self.on_change: Callable[[str], None] = lambda machine: None
        self._clock = clock
        self._wishes: dict[str, _Wish[Q, A]] = {}

    def pending(self, machine: str) -> tuple[Q, ...]:
        """What the machine's next `Work` should carry."""
        return tuple(w.question for w in self._wishes.values() if w.machine == machine and not w.answered.done())

    async def ask(self, machine: str, question: Q, limit_s: float) -> A | None:
        """The machine's answer; None when it gives none in time."""
        wish = _Wish[Q, A](machine, question, asyncio.get_running_loop().create_future())
        self._wishes[question.id] = wish
        late = asyncio.ensure_future(self._clock.sleep(limit_s))
        try:
            self.on_change(machine)
            ends: set[asyncio.Future[Any]] = {wish.answered, late}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return wish.answered.result() if wish.answered.done() else None
        finally:
            late.cancel()
            del self._wishes[question.id]

    def answer(self, machine: str, id: str, answer: A) -> None:
        """The machine's answer.

        Raises:
            NotFound: nobody waits for it (any more).
        """
        wish = self._wishes.get(id)
        if wish is None or wish.machine != machine or wish.answered.done():
            raise NotFound(f"nobody waits for the answer to {id}", remedy="send nothing more", code="question_over")
        wish.answered.set_result(answer)

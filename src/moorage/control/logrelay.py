"""Log lines fetched from machines: a question waits here until the machine's agent answers it.

Agents pull, so a question travels with the machine's next `Work` and the lines come back in a request of their own
(`POST /agent/logs/{id}`). Nothing is stored: a question lives in this process until it is answered or its time is
over. Called by `control.logtail`, by whatever builds `Work` (`pending`), and by the API's agent routes (`sent`,
`answer`).
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from moorage.domain.errors import Unavailable
from moorage.ports import Clock
from moorage.wire.agent import LogLines, LogRequest

TIMEOUT_S = 10.0
"""A machine whose agent polls answers within a round trip; one that needs longer is better named than waited for."""

RESEND_S = 3.0
"""After a `Work` that carried the question left, it is not sent again before this: long enough for an agent to read a
file, short enough that a lost answer does not use up the whole time-out."""

PENDING_MAX = 64
"""Questions to one machine at a time; more means its agent does not answer, and they are refused at once."""


@dataclass(slots=True)
class _Question:
    machine: str
    request: LogRequest
    answer: "asyncio.Future[LogLines]"
    sent_at: float | None = None


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)


def _nobody(machine: str) -> None:
    """Nobody listens yet."""


class LogRelay:
    """Carries questions for log lines to machines and answers back.

    Args:
        clock: monotonic time and the time-out.
        new_id: unguessable ids for questions.
        timeout_s: seconds a question waits for its answer.

    Attributes:
        on_change: called with a machine's uid when it has a new question, to end its long-poll.
    """

    def __init__(self, clock: Clock, new_id: Callable[[], str], timeout_s: float = TIMEOUT_S) -> None:
        self.on_change: Callable[[str], None] = _nobody
        self._clock = clock
        self._new_id = new_id
        self._timeout_s = timeout_s
        self._questions: dict[str, _Question] = {}

    def pending(self, machine: str) -> tuple[LogRequest, ...]:
        """What the machine's next `Work` should carry; asking again before it was `sent` gives the same."""
        now = self._clock.monotonic()
        return tuple(
            q.request
            for q in self._questions.values()
            if q.machine == machine and (q.sent_at is None or now - q.sent_at >= RESEND_S)
        )

    def sent(self, ids: Iterable[str]) -> None:
        """These questions are on their way; `pending` leaves them out for a while."""
        now = self._clock.monotonic()
        for uid in ids:
            if question := self._questions.get(uid):
                question.sent_at = now

    def answer(self, machine: str, uid: str, lines: LogLines) -> bool:
        """Resolve a question.

        Args:
            machine: uid of the machine that answers; only the one that was asked can.
            uid: the question's id.
            lines: its answer.

        Returns:
            Whether anybody still waited for it.
        """
        question = self._questions.get(uid)
        if question is None or question.machine != machine or question.answer.done():
            return False
        question.answer.set_result(lines)
        return True

    async def fetch(
        self,
        machine: str,
        worker: str,
        *,
        lines: int = 200,
        after: int | None = None,
        epoch: int | None = None,
        previous: bool = False,
        name: str | None = None,
    ) -> LogLines:
        """Lines of one worker's log.

        Args:
            machine, worker: uids.
            lines: at most this many.
            after: sequence number after which to read; None means the last `lines`.
            epoch: of that placement; None means the newest.
            previous: of the attempt before.
            name: the machine's name, for the message of the error.

        Raises:
            Unavailable: the machine did not answer in time.
        """
        request = LogRequest(id=self._new_id(), worker=worker, epoch=epoch, lines=lines, after=after, previous=previous)
        called = name or machine
        if sum(q.machine == machine for q in self._questions.values()) >= PENDING_MAX:
            raise _unanswered(called, f"has {PENDING_MAX} questions for logs unanswered")
        question = _Question(machine, request, asyncio.get_running_loop().create_future())
        self._questions[request.id] = question
        try:
            self.on_change(machine)
            return await self._wait(question, called)
        finally:
            del self._questions[request.id]

    async def _wait(self, question: _Question, called: str) -> LogLines:
        """The answer; the machine is woken again where one `Work` may have been lost."""
        until = self._clock.monotonic() + self._timeout_s
        while not question.answer.done():
            left_s = until - self._clock.monotonic()
            if left_s <= 0:
                asked = "was asked and did not answer" if question.sent_at is not None else "did not ask for work"
                raise _unanswered(called, f"{asked} within {self._timeout_s:g} s")
            await self._answered_or(question, min(left_s, RESEND_S))
            if not question.answer.done() and question.sent_at is not None:
                self.on_change(question.machine)
        return question.answer.result()

    async def _answered_or(self, question: _Question, seconds: float) -> None:
        limit = asyncio.create_task(_sleep(self._clock, seconds))
        waited: set[asyncio.Future[Any]] = {question.answer, limit}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()


def _unanswered(machine: str, what: str) -> Unavailable:
    return Unavailable(
        f"machine {machine} {what}",
        remedy=f"see whether its agent runs and reaches the server: moor get machine {machine}",
        target=f"Machine {machine}",
        code="machine_silent",
        retry_after_s=5.0,
    )

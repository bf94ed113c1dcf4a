"""Log lines fetched from machines: a question waits here until the machine's agent answers it.

Agents pull, so a question travels with the machine's next `Work` and the lines come back in a request of their own
(`POST /agent/logs/{id}`). A question that follows is answered again and again; its answers wait here, one at a time,
until they are taken, and the agent waits with the next: a reader that is slow holds up nobody but itself, and this
process keeps one answer for each log that is followed. Nothing is stored: a question lives in this process until it is
answered, let go, or its time is over. Called by `control.logtail`, by whatever builds `Work` (`pending`), and by the
API's agent routes (`sent`, `deliver`).
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from moorage.domain.errors import Unavailable
from moorage.ports import Clock
from moorage.wire.agent import LogLines, LogRequest

TIMEOUT_S = 10.0
"""A machine whose agent polls answers within a round trip; one that needs longer is better named than waited for."""

RESEND_S = 3.0
"""After a `Work` that carried the question left, it is not sent again before this: long enough for an agent to read a
file, short enough that a lost answer does not use up the whole time-out."""

HOLD_S = 4.0
"""So long the answer to a followed log waits for the one before it to be taken, well within an agent's time-out."""

SILENT_S = 25.0
"""A followed log of which nothing was heard for so long, though agents give a sign of life every 10 s: its machine is
said not to answer."""

FOLLOWED_BYTES = 256 << 10
"""Of one answer to who follows: 64 workers of a run are at most 16 MiB then, for each reader."""

ROUND_S = 0.5
"""Between two questions to an agent that cannot follow a log by itself."""

PENDING_MAX = 64
"""Questions to one machine at a time; more means its agent does not answer, and they are refused at once."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines of a worker's log.

    Args:
        lines: at most this many (of who follows: to begin with).
        after: sequence number after which to read; None means the last `lines`.
        epoch: of that placement; None means the newest.
        previous: of the placement before.
        attempt: of that attempt; `epoch` and `previous` are for agents that do not know attempts.
        since_s: only those of the last so many seconds.
        grep: only those in which this pattern is found.
        total_bytes: of one answer, about.
    """

    lines: int = 200
    after: int | None = None
    epoch: int | None = None
    previous: bool = False
    attempt: int | None = None
    since_s: float | None = None
    grep: str | None = None
    total_bytes: int = 4 << 20

    def request(self, uid: str, worker: str, *, follow: bool = False) -> LogRequest:
        """As a machine is asked."""
        return LogRequest(id=uid, worker=worker, follow=follow, **asdict(self))


LAST_LINES = Wanted()


@dataclass(slots=True)
class _Question:
    machine: str
    request: LogRequest
    answer: "asyncio.Future[LogLines]"
    sent_at: float | None = None

    def due(self, now: float) -> bool:
        """Whether the machine has to be told of it."""
        return self.sent_at is None or now - self.sent_at >= RESEND_S


class Followed:
    """One worker's log being followed.

    Args:
        relay: which it goes through.
        machine: uid.
        request: as it was asked first.
        on_news: called when there is something to `take`.
    """

    def __init__(self, relay: "LogRelay", machine: str, request: LogRequest, on_news: Callable[[], None]) -> None:
        self.machine = machine
        self.request = request
        self.sent_at: float | None = None
        self.heard_at: float | None = None
        self.began_at = relay.clock.monotonic()
        self.ended = False
        self._relay = relay
        self._on_news = on_news
        self._kept: LogLines | None = None
        self._free = asyncio.Event()
        self._free.set()
        self._ask_again_at: float | None = None

    def due(self, now: float) -> bool:
        """Whether the machine has to be told of it (again)."""
        if self.ended or (self._ask_again_at is not None and now < self._ask_again_at):
            return False
        unheard = self.heard_at is None or now - self.heard_at >= SILENT_S / 2
        return (unheard or self._ask_again_at is not None) and (self.sent_at is None or now - self.sent_at >= RESEND_S)

    @property
    def has_news(self) -> bool:
        """Whether there is something to take."""
        return self._kept is not None

    @property
    def was_asked(self) -> bool:
        """Whether the machine took the question."""
        return self.sent_at is not None

    @property
    def silent(self) -> bool:
        """Whether its machine does not answer."""
        since = self.began_at if self.heard_at is None else self.heard_at
        limit = self._relay.timeout_s if self.heard_at is None else SILENT_S
        return not self.ended and self._relay.clock.monotonic() - since >= limit

    async def put(self, lines: LogLines) -> bool:
        """Take an answer in. False: the one before was not taken yet, in all the time that an agent can wait."""
        self.heard_at = self._relay.clock.monotonic()
        try:
            async with asyncio.timeout(HOLD_S):
                while self._kept is not None:
                    self._free.clear()
                    await self._free.wait()
        except TimeoutError:
            return False
        if not self.ended:
            self._kept = lines
            self._on_news()
        return True

    def take(self) -> LogLines | None:
        """What has come since, each line once."""
        lines, self._kept = self._kept, None
        self._free.set()
        if lines is None:
            return None
        self.heard_at = self._relay.clock.monotonic()
        lines = _unseen(lines, self.request.after)
        seen = self.request.after or 0
        self.request = self.request.model_copy(update={"after": max(lines.next_seq - 1, seen)})
        if lines.ended:
            self.close()
        elif not lines.follows:  # an agent that answers once: it is asked anew
            self._relay.renew(self)
            self._ask_again_at = self._relay.clock.monotonic() + ROUND_S
        else:
            self._ask_again_at = None
        return lines

    def nudge(self) -> None:
        """Have the machine told again where that is due."""
        if self.due(self._relay.clock.monotonic()):
            self._relay.on_change(self.machine)

    def close(self) -> None:
        """Let it go: the next answer of its agent is the last."""
        self.ended = True
        self._free.set()
        self._relay.forget(self)


def _unseen(lines: LogLines, after: int | None) -> LogLines:
    """Without what came before already: an answer whose receipt was lost is sent again."""
    old = (after or 0) + 1 - lines.first_seq
    if after is None or not lines.lines or old <= 0:
        return lines
    if lines.seqs:
        old = sum(seq <= after for seq in lines.seqs)
    left = {"lines": lines.lines[old:], "seqs": lines.seqs[old:], "times": lines.times[old:], "missed": 0}
    return lines.model_copy(update={**left, "first_seq": lines.first_seq if lines.seqs else lines.first_seq + old})


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)


def _nobody(machine: str) -> None:
    """Nobody listens yet."""


class LogRelay:
    """Carries questions for log lines to machines and answers back.

    Args:
        clock: monotonic time and the time-out.
        new_id: unguessable ids for questions.
        timeout_s: seconds a question waits for its answer, and how long a followed log's first one is waited for.

    Attributes:
        on_change: called with a machine's uid when it has a new question, to end its long-poll.
    """

    def __init__(self, clock: Clock, new_id: Callable[[], str], timeout_s: float = TIMEOUT_S) -> None:
        self.on_change: Callable[[str], None] = _nobody
        self.clock = clock
        self.timeout_s = timeout_s
        self._new_id = new_id
        self._questions: dict[str, _Question | Followed] = {}

    def pending(self, machine: str, *, afresh: bool = False) -> tuple[LogRequest, ...]:
        """What the machine's next `Work` should carry; asking again before it was `sent` gives the same.

        Args:
            machine: uid.
            afresh: its agent begins anew and knows of no question.
        """
        now = self.clock.monotonic()
        mine = [q for q in self._questions.values() if q.machine == machine]
        return tuple(q.request for q in mine if q.due(now) or (afresh and isinstance(q, Followed)))

    def sent(self, ids: Iterable[str]) -> None:
        """These questions are on their way; `pending` leaves them out for a while."""
        now = self.clock.monotonic()
        for uid in ids:
            if question := self._questions.get(uid):
                question.sent_at = now

    async def deliver(self, machine: str, uid: str, lines: LogLines) -> bool:
        """An answer has come: for a question that is followed it waits until the one before was taken.

        Args and returns as `answer`.

        Raises:
            Unavailable: the reader is slower than an agent can wait; it sends the same again.
        """
        question = self._questions.get(uid)
        if not isinstance(question, Followed) or question.machine != machine:
            return self.answer(machine, uid, lines)
        if not await question.put(lines):
            raise Unavailable("its reader has not taken the lines before", code="reader_slow", retry_after_s=1.0)
        return not question.ended

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
        if not isinstance(question, _Question) or question.machine != machine or question.answer.done():
            return False
        question.answer.set_result(lines)
        return True

    async def fetch(
        self, machine: str, worker: str, wanted: Wanted = LAST_LINES, *, name: str | None = None
    ) -> LogLines:
        """Lines of one worker's log.

        Args:
            machine, worker: uids.
            wanted: which lines.
            name: the machine's name, for the message of the error.

        Raises:
            Unavailable: the machine did not answer in time.
        """
        request = wanted.request(self._new_id(), worker)
        called = name or machine
        waiting = sum(isinstance(q, _Question) and q.machine == machine for q in self._questions.values())
        if waiting >= PENDING_MAX:
            raise _unanswered(called, f"has {PENDING_MAX} questions for logs unanswered")
        question = _Question(machine, request, asyncio.get_running_loop().create_future())
        self._questions[request.id] = question
        try:
            self.on_change(machine)
            return await self._wait(question, called)
        finally:
            del self._questions[request.id]

    def follow(self, machine: str, worker: str, wanted: Wanted, on_news: Callable[[], None]) -> Followed:
        """Follow one worker's log until it has ended or is closed.

        Args:
            machine, worker: uids.
            wanted: where to begin.
            on_news: called when there is something to take.
        """
        request = wanted.request(self._new_id(), worker, follow=True)
        followed = Followed(self, machine, request.model_copy(update={"total_bytes": FOLLOWED_BYTES}), on_news)
        self._questions[request.id] = followed
        self.on_change(machine)
        return followed

    def renew(self, followed: Followed) -> None:
        """Ask under another id, which its agent has not answered yet."""
        self.forget(followed)
        followed.request = followed.request.model_copy(update={"id": self._new_id()})
        followed.sent_at = None
        self._questions[followed.request.id] = followed

    def forget(self, followed: Followed) -> None:
        """It is followed no more."""
        self._questions.pop(followed.request.id, None)

    async def _wait(self, question: _Question, called: str) -> LogLines:
        """The answer; the machine is woken again where one `Work` may have been lost."""
        until = self.clock.monotonic() + self.timeout_s
        while not question.answer.done():
            left_s = until - self.clock.monotonic()
            if left_s <= 0:
                asked = "was asked and did not answer" if question.sent_at is not None else "did not ask for work"
                raise _unanswered(called, f"{asked} within {self.timeout_s:g} s")
            await self._answered_or(question, min(left_s, RESEND_S))
            if not question.answer.done() and question.sent_at is not None:
                self.on_change(question.machine)
        return question.answer.result()

    async def _answered_or(self, question: _Question, seconds: float) -> None:
        limit = asyncio.create_task(_sleep(self.clock, seconds))
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

"""When a process that does not answer has hung: asked again and again, silent to all of it, for long enough.

Here: the rule, over moments that are given. Not here: how it is asked (`wire.alive`, `gateway.orders`), what becomes of
one that hung (`app.supervisor`, `gateway.master`). Whoever asks holds one `Silence` for each process.

An answer that comes late is an answer: nothing is asked with a limit of its own, so a slow machine trips over nothing
short of the whole limit. Silence counts only while whoever asks was awake itself: stopped, starved or frozen together
with the process, it has seen nothing. A process is judged from its first answer on: how long a start takes is for
others to bound.
"""

from dataclasses import dataclass, field

HANG_AFTER_S = 60.0
"""The limit where nothing else is set, seconds."""

DUMP_LIMIT_S = 10.0
"""How long a process that hung may take to write its stacks and end, before it is killed."""

ASKS = 6
"""How often a process is asked within the limit."""

FIRST_S = 1.0
"""Until its first answer a process is asked so often, seconds: one that hangs before that goes unnoticed."""

UNANSWERED_MIN = 4
"""Fewer unanswered questions prove nothing, however long ago the first one was."""

LATE = 1.5
"""Who looks again only after so many times the span between two questions was away itself."""


@dataclass(slots=True)
class Silence:
    """Of one process.

    Args:
        limit_s: seconds without any answer after which it has hung.
    """

    limit_s: float
    answered: bool = field(default=False, init=False)
    """whether it ever did"""
    _since: float | None = field(default=None, init=False)
    _unanswered: int = field(default=0, init=False)
    _asked_at: float | None = field(default=None, init=False)
    _looked_at: float | None = field(default=None, init=False)

    @property
    def every_s(self) -> float:
        """Seconds between two questions, and between two looks at most."""
        return self.limit_s / ASKS

    def due(self, now: float) -> float:
        """The moment of the next question."""
        if self._asked_at is None:
            return now
        return self._asked_at + (self.every_s if self.answered else min(FIRST_S, self.every_s))

    def asked(self, now: float) -> None:
        """It was asked."""
        self._asked_at = now
        self._unanswered += 1
        if self._since is None:
            self._since = now

    def not_asked(self, now: float) -> None:
        """It could not be asked, which says nothing of it."""
        self._asked_at = now
        self.forget()

    def heard(self) -> None:
        """It answered, whichever question."""
        self.answered = True
        self.forget()

    def forget(self) -> None:
        """Silence so far does not count."""
        self._since, self._unanswered = None, 0

    def look(self, now: float) -> float | None:
        """For how many seconds it has been silent, where that is a hang; None where it is not."""
        before, self._looked_at = self._looked_at, now
        if before is not None and now - before > self.every_s * LATE:
            self.forget()
        if not self.answered or self._since is None or self._unanswered < UNANSWERED_MIN:
            return None
        silent_s = now - self._since
        return silent_s if silent_s >= self.limit_s else None

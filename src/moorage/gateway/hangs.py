"""Whether workers of a gateway have hung: asking each of them whether it lives, and ending one that does not answer.

Here: what one master knows of its workers' silence, and that the master itself answers whoever keeps it. Not here: the
rule (`domain.silence`), what comes in the place of one that ended (`master`, the only caller). It never waits.
"""

import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from moorage.domain.silence import DUMP_LIMIT_S, Silence
from moorage.gateway.crew import HUNG, SERVING, Adopted, Worker
from moorage.gateway.telling import say
from moorage.wire.alive import Answering


class Heard(Protocol):
    """What the master's loop waits for."""

    def fileno(self) -> int:
        """Readable when there is something."""

    def hear(self) -> None:
        """Take it."""


class Hangs:
    """What one master knows.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: float | None = None

    def look(self, workers: Iterable[Worker], limit_s: float) -> None:
        """End those that serve and have answered nothing for `limit_s` seconds; ask those that are due.

        Args:
            limit_s: 0: nobody is asked.
        """
        now = self._clock()
        self._due = None
        for worker in workers if limit_s > 0 else ():
            if worker.state != SERVING:
                continue
            silence = worker.silence
            if silence is None or silence.limit_s != limit_s:
                silence = worker.silence = Silence(limit_s)
                if not isinstance(worker.child, Adopted):  # who is of our own release said that it serves
                    silence.heard()
            silent_s = silence.look(now)
            if silent_s is not None and _waits_for_disk(worker.child.pid):
                silence.forget()  # no signal would end it before the disk answers, and then it goes on
            elif silent_s is not None:
                _give_up(worker, silent_s, now)
                continue
            if now >= silence.due(now):
                (silence.asked if worker.ask() else silence.not_asked)(now)
            due = silence.due(now)
            self._due = due if self._due is None else min(self._due, due)

    def due(self) -> list[float]:
        """The moment of the next question, if there is one."""
        return [] if self._due is None else [self._due]


def answering(config: Path) -> Heard | None:
    """What answers whoever keeps this master; None where there can be nothing."""
    try:
        return Answering(config)
    except OSError as error:
        say("gateway.cannot_be_asked", "warning", error=error.strerror or str(error))
        return None


def _give_up(worker: Worker, silent_s: float, now: float) -> None:
    worker.state, worker.hung_s, worker.kill_at = HUNG, silent_s, now + DUMP_LIMIT_S
    say("worker.hung", "error", pid=worker.child.pid, gateway_id=worker.order.gateway_id, silent_s=round(silent_s, 1))
    if isinstance(worker.child, Adopted):
        worker.child.kill()
        return
    worker.child.send_signal(signal.SIGABRT)  # it writes the stacks of its threads
    worker.child.send_signal(signal.SIGCONT)  # which one that is stopped cannot


def _waits_for_disk(pid: int) -> bool:
    """Whether its main thread is in the kernel, where no signal reaches it (False where the system does not tell)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "D"
    except (OSError, IndexError):
        return False

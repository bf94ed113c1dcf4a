"""Whether a part has hung: asking each of them whether it lives, and how one that does not answer is ended.

Here: the questions and answers of one supervisor, and the end of a part that is given up. Not here: the rule
(`domain.silence`), when a part is started again (`supervisor`, the only caller). It never waits.
"""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from moorage.app import processes
from moorage.app.home import Home
from moorage.app.processes import Identity
from moorage.domain.silence import HANG_AFTER_S, Silence
from moorage.wire.alive import Asking


def hang_after_s(home: Home) -> float:
    """The setting of this home, seconds; 0: parts are not asked."""
    try:
        return float(json.loads(home.config("supervisor").read_text())["hang_after_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return HANG_AFTER_S  # a home of a release before this one


class Hangs:
    """What one supervisor knows of its parts' silence.

    Args:
        folder: where the configurations of the parts lie.
        limit_s: seconds of silence that are a hang; 0: nobody is asked.
        clock: monotonic seconds.
        tell: called with what keeps parts from being asked.
    """

    def __init__(
        self, folder: Path, limit_s: float, *, clock: Callable[[], float], tell: Callable[[str], None]
    ) -> None:
        self._limit_s = limit_s
        self._clock = clock
        self._watched: dict[str, tuple[Identity, Silence]] = {}
        self._news: list[str] = []
        self._asking: Asking | None = None
        if limit_s > 0:
            try:
                self._asking = Asking(folder)
            except OSError as cause:
                tell(f"parts cannot be asked whether they live ({cause.strerror or cause}): none is ended for hanging")

    def fileno(self) -> int | None:
        """Readable when a part has answered; None where none is asked."""
        return None if self._asking is None else self._asking.fileno()

    def watch(self, name: str, identity: Identity, *, answered: bool = False) -> None:
        """This process is the part now; `answered`: it did so to a supervisor before this one."""
        silence = Silence(self._limit_s)
        if answered:
            silence.heard()
        self._watched[name] = (identity, silence)

    def forget(self, name: str) -> None:
        """Nobody is the part now."""
        self._watched.pop(name, None)

    def hear(self) -> None:
        """Take the answers that have come."""
        if self._asking is None:
            return
        for answer in self._asking.answers():
            watched = self._watched.get(answer.name)
            if watched is not None and watched[0].pid == answer.pid:
                self._news += [] if watched[1].answered else [answer.name]
                watched[1].heard()

    def first_answers(self) -> list[str]:
        """The parts that have answered for the first time, each once."""
        news, self._news = self._news, []
        return news

    def look(self) -> Iterator[tuple[str, float]]:
        """Each part that has hung, with the seconds of its silence; asks those that are due."""
        if self._asking is None:
            return
        self.hear()  # what came while something else was done here counts
        now = self._clock()
        for name, (identity, silence) in list(self._watched.items()):
            silent_s = silence.look(now)
            if silent_s is not None and processes.waits_for_disk(identity):
                silence.forget()  # no signal would end it before the disk answers, and then it goes on
            elif silent_s is not None:
                yield name, silent_s
                continue
            if now >= silence.due(now):
                (silence.asked if self._asking.ask(name) else silence.not_asked)(now)

    def due(self) -> float | None:
        """The moment of the next question."""
        if self._asking is None:
            return None
        now = self._clock()
        return min((silence.due(now) for _, silence in self._watched.values()), default=None)


def abort(identity: Identity) -> None:
    """Have a process write the stacks of its threads to its log and end; one that is stopped goes on for that."""
    processes.send(identity, signal.SIGABRT)
    processes.send(identity, signal.SIGCONT)

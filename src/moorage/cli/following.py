"""One run followed to its end: what it waits for, then its output, then how it ended; and what Ctrl-C means meanwhile.

Ctrl-C never ends the run by itself: on a terminal it is asked what is meant, elsewhere the watching ends and the run
goes on. Called by `run` and `restart`.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from moorage.cli.failures import FAILED, OK, Interrupted, last_seen, say
from moorage.cli.logview import LogView
from moorage.cli.output import print_line
from moorage.cli.session import Session
from moorage.cli.watching import LOOK_EVERY_S, namespace_flag, sentence

Json = dict[str, Any]
ENDED = frozenset({"Completed", "Failed", "Cancelled"})
CANCEL, LEAVE = ("cancel", "c"), ("leave", "l")
CHOICES = (*CANCEL, *LEAVE)
PAST_LINES = 5_000
"""Lines that were written before the output was first asked for; a job may write much in its first second."""


def follow(session: Session, run: Json) -> int:
    """Show the run's output until it has ended; returns what the command should exit with.

    Args:
        session: the command's.
        run: the run as it was accepted.

    Raises:
        Interrupted: Ctrl-C, and it goes on.
    """
    ended = _Following(session, run).to_its_end()
    if not session.human:
        print_line(ended)
    return told(session, ended)


def told(session: Session, run: Json) -> int:
    """Say how it ended, on stderr; returns the exit code: the program's own where it failed with one.

    The end of its log was shown as it came, and is not shown again.
    """
    name, state = run["name"], run["state"]
    if state == "Completed":
        return OK
    if session.human:
        flag = namespace_flag(session)
        failure = {k: v for k, v in (run.get("last_failure") or {}).items() if k not in ("log", "reason")}
        lines = [f"{name}: {state}", *last_seen({"reason": run.get("reason"), "last_failure": failure})]
        say("\n".join([*lines, f"  to do: look further with `moor why {name}{flag}`"]))
    code = run.get("exit_code")
    return code if state == "Failed" and isinstance(code, int) and 0 < code < 256 else FAILED


class _Following:
    def __init__(self, session: Session, run: Json) -> None:
        self._session = session
        self._runs = session.client.runs
        self._uid, self._name = str(run["id"]), str(run["name"])
        self._alone = False

    def to_its_end(self) -> Json:
        """The run as it ended."""
        for step in (self._until_it_runs, self._output, self._until_ended):
            if not self._may_be_cut(step):
                break
        run: Json = self._runs.get(self._uid)
        return run if run["state"] in ENDED else self._ended_at_last()

    def _may_be_cut(self, step: Callable[[], object]) -> bool:
        """Whether the step came to its end; False: the run was cancelled meanwhile, and only its end is waited for."""
        try:
            step()
        except KeyboardInterrupt:
            self._ask()
            return False
        return True

    def _ended_at_last(self) -> Json:
        try:
            return self._until_ended()
        except KeyboardInterrupt:
            raise self._detached() from None

    def _until_it_runs(self) -> None:
        progress = self._session.progress()
        try:
            while True:
                run = self._runs.get(self._uid)
                if run.get("started_at") or run["state"] in ENDED:
                    self._alone = (run.get("workers") or {}).get("total") == 1
                    return
                progress.update(f"{self._name}: {sentence(run)}")
                time.sleep(LOOK_EVERY_S)
        finally:
            progress.clear()

    def _output(self) -> None:
        view = LogView(human=self._session.human, prefix=not self._alone)
        for line in self._runs.logs(self._uid, follow=True, lines=PAST_LINES):
            view.show(line)

    def _until_ended(self) -> Json:
        progress = self._session.progress()

        def show(seen: Mapping[str, Any]) -> None:
            if seen["state"] not in ENDED:
                progress.update(f"{self._name}: {sentence(seen)}; waiting for its end")

        try:
            outcome = self._runs.wait(self._uid, "stopped", timeout_s=None, interval_s=LOOK_EVERY_S, on_status=show)
            return dict(outcome.last)
        finally:
            progress.clear()

    def _ask(self) -> None:
        """What Ctrl-C is to mean."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise self._detached() from None
        try:
            answer = ""
            while answer not in CHOICES:
                question = f"\n{self._name} still runs. Cancel it, or leave it running? (cancel, leave)"
                answer = str(click.prompt(question, default="leave", err=True)).strip().lower()
        except (click.Abort, KeyboardInterrupt):
            answer = "leave"
        if answer in LEAVE:
            raise self._detached()
        self._runs.cancel(self._uid)

    def _detached(self) -> Interrupted:
        return Interrupted(f"moor logs -f {self._name}{namespace_flag(self._session)}")

"""Exit codes, and how an error is shown: one block that says what, where and what to do; never a traceback.

    0   done
    1   the goal failed (a deployment failed, a conflict, a limit)
    2   usage, or a bad spec or setting
    3   the time-out passed first
    4   not found
    5   the control plane cannot be reached, or cannot answer now
    130 Ctrl-C: the watching ended, the work goes on

With `--output json` the error is also on stdout: `{"error": {code, category, message, retryable, remedy, …}}`, as the
API says it.

A defect of ours prints a short line and leaves its traceback in a file. Called by `main` and by `app.commands`.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from moorage.cli.output import legible, print_value
from moorage.domain.errors import (
    Gone,
    InvalidSpec,
    MoorageError,
    NotFound,
    Unavailable,
    WaitFailed,
    WaitTimeout,
)

OK, FAILED, USAGE, TIMEOUT, NOT_FOUND, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
DEFECT = 70
SHOWN_ERRORS = 20
SHOWN_LOG_LINES = 15

_CODES: tuple[tuple[type[MoorageError], int], ...] = (
    (WaitTimeout, TIMEOUT),
    (WaitFailed, FAILED),
    (InvalidSpec, USAGE),
    (NotFound, NOT_FOUND),
    (Gone, NOT_FOUND),
    (Unavailable, UNREACHABLE),
)


class Interrupted(Exception):
    """Ctrl-C while watching work that goes on without us.

    Args:
        resume: the command that watches it again.
    """

    def __init__(self, resume: str) -> None:
        super().__init__(resume)
        self.resume = resume


class NotAcknowledged(Exception):
    """Ctrl-C before the control plane answered to what a command sends.

    Args:
        name: of what it sends.
        maybe: whether it may have been sent.
        look: the commands that show whether it was.
        key: with which sending it again changes nothing twice; None where that takes none.
    """

    def __init__(self, name: str, *, maybe: bool, look: str, key: str | None) -> None:
        super().__init__(name)
        self.name, self.maybe, self.look, self.key = name, maybe, look, key

    def __str__(self) -> str:
        if not self.maybe:
            return f"{self.name}: nothing was sent"
        again = f"with --key {self.key} " if self.key else ""
        told = f"{self.name}: it may have been sent: {self.look} shows whether"
        return f"{told}; sending it again {again}changes nothing twice"


def exit_code(error: MoorageError) -> int:
    """The exit code of an error."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def block(error: MoorageError) -> str:
    """The error as people read it."""
    lines = [f"error: {error.message}"]
    if error.target and error.target.lower() not in error.message.lower():
        lines.append(f"  on:    {error.target}")
    if isinstance(error, InvalidSpec):
        untold = _untold(error)
        lines += [_spec_line(item) for item in untold[:SHOWN_ERRORS]]
        if len(untold) > SHOWN_ERRORS:
            lines.append(f"  … and {len(untold) - SHOWN_ERRORS} more")
    if isinstance(error, (WaitFailed, WaitTimeout)):
        lines += last_seen(error.last, error.message)
    if error.remedy:
        lines.append(f"  to do: {error.remedy}")
    return "\n".join(lines)


def last_seen(last: dict[str, Any], told: str = "") -> list[str]:
    """The state, reason and log that a wait ended with, but for what `told` says already."""
    word = last.get("phase") or last.get("state") or last.get("status")
    if last.get("serving"):
        word = f"{word}; it goes on serving"
    failure = last.get("last_failure") or {}
    cause = failure.get("reason") if isinstance(failure.get("reason"), dict) else None
    facts = [
        ("state", word),
        ("why", (last.get("reason") or {}).get("message")),
        ("cause", (cause or {}).get("message")),
        ("exit", None if failure.get("exit_code") is None else f"exit code {failure['exit_code']}"),
    ]
    lines = [f"  {name + ':':<7}{text}" for name, text in facts if text and str(text) not in told]
    log = str(failure.get("log") or "").splitlines()
    if len(log) > 1 or (log and log[0] not in told):
        lines += ["  last lines of its log:", *(f"    | {line}" for line in log[-SHOWN_LOG_LINES:])]
    return lines


def _untold(error: InvalidSpec) -> list[dict[str, Any]]:
    """What its message does not say yet: that tells one problem, and several places may have the very same one."""
    told = next((at for at, item in enumerate(error.errors) if str(item.get("message")) in error.message), None)
    return [item for at, item in enumerate(error.errors) if at != told]


def _spec_line(item: dict[str, Any]) -> str:
    told = "did you mean" in str(item.get("message"))
    line = f"line {item['line']}: " if item.get("line") else ""
    near = f" (did you mean `{item['nearest']}`?)" if item.get("nearest") and not told else ""
    return f"  {line}{item.get('path') or '.'}: {item.get('message', '')}{near}"


def guarded(work: Callable[[], int | None], *, as_json: bool = False) -> int:
    """Run a command and turn whatever ends it into an exit code and one readable block on stderr.

    Args:
        work: the command.
        as_json: say an error on stdout as well, as JSON.
    """
    try:
        return _guarded(work, as_json)
    except BrokenPipeError:
        # the reader of our output (head, less) went away; nothing more can be written, not even by the interpreter
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def _guarded(work: Callable[[], int | None], as_json: bool) -> int:
    try:
        return work() or OK
    except MoorageError as error:
        say(block(error))
        if as_json:
            print_error(error)
        return exit_code(error)
    except Interrupted as cut:
        say(f"\nstopped watching; the work goes on. To watch again:  {cut.resume}")
        return INTERRUPTED
    except NotAcknowledged as cut:
        say(f"\ninterrupted; {cut}")
        return INTERRUPTED
    except KeyboardInterrupt:
        say("\ninterrupted")
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except Exception as defect:
        say(_defect(defect))
        if as_json:
            print_error(MoorageError(f"{type(defect).__name__}: {defect}", code="defect", remedy="please report it"))
        return DEFECT


def print_error(error: MoorageError) -> None:
    """The API's error object on stdout, for programs that asked for JSON."""
    print_value({"error": error.to_wire()}, "json")


def say(text: str) -> None:
    """A line on stderr, without anything that would steer a terminal."""
    sys.stderr.write(legible(text) + "\n")
    sys.stderr.flush()


def _defect(defect: Exception) -> str:
    import tempfile
    import time
    import traceback

    fd, name = tempfile.mkstemp(prefix=f"moorage-defect-{time.strftime('%H%M%S')}-", suffix=".txt")
    with os.fdopen(fd, "w") as file:
        file.write("".join(traceback.format_exception(defect)))
    return (
        f"error: this is a defect of moor itself: {type(defect).__name__}: {defect}\n"
        f"  to do: please report it, with the traceback that was written to {name}"
    )

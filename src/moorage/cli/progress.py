"""Saying what is being waited for: one line that changes on a terminal, plain lines elsewhere. Always on stderr.

No Rich and no threads here: a command that waits a second must not load anything first. Called by all that waits.
"""

import re
import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from moorage.cli.output import legible

COUNTING_S = 15.0
"""Between two lines of a log in which only numbers differ."""

_DIGITS = re.compile(r"\d+")


class Progress:
    """A waiting line.

    Args:
        stream: where to write (stderr by default).
        quiet: write nothing at all (`--output json`).
        monotonic: the clock that the elapsed seconds are of.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stream = stream or sys.stderr
        self.quiet = quiet
        self.live = self.stream.isatty()
        self.monotonic = monotonic
        self.began = monotonic()
        self._last = ""
        self._drawn = False
        self._said, self._said_at = "", self.began

    def update(self, text: str) -> None:
        """What is waited for now. On a terminal it replaces the line before; elsewhere it is written on change."""
        if self.quiet:
            return
        text = legible(text)
        if self.live:
            elapsed = f"  {self.monotonic() - self.began:.0f}s"
            room = shutil.get_terminal_size((80, 24)).columns - len(elapsed) - 1
            shown = text if len(text) <= room else text[: max(0, room - 1)] + "…"
            self.stream.write(f"\r\x1b[K{shown}{elapsed}")
            self._drawn = True
        elif text != self._last and self._is_news(text):
            self.stream.write(text + "\n")
            self._said, self._said_at = _DIGITS.sub("#", text), self.monotonic()
        self._last = text
        self.stream.flush()

    def _is_news(self, text: str) -> bool:
        """Where lines stay, one that differs in its numbers alone is written now and then."""
        return _DIGITS.sub("#", text) != self._said or self.monotonic() - self._said_at >= COUNTING_S

    def clear(self) -> None:
        """Take the live line away."""
        if self._drawn:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self._drawn = False

    def say(self, text: str) -> None:
        """A lasting line above the live one."""
        if self.quiet:
            return
        self.clear()
        self.stream.write(legible(text) + "\n")
        self.stream.flush()

"""How the demonstration speaks: numbered steps, commands it runs, what was measured. Prints; decides nothing."""

import contextlib
import shutil
import sys
import textwrap
import time

from moorage.cli.times import took

_BOLD, _DIM, _GREEN, _RED, _CYAN, _OFF = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[31m", "\x1b[36m", "\x1b[0m"
INDENT = "   "


def write(text: str) -> None:
    """Show it. Where the terminal went away nobody reads it, and the work (the clean-up above all) goes on."""
    with contextlib.suppress(OSError):
        sys.stdout.write(text)
        sys.stdout.flush()


class Narrator:
    """Writes to stdout; colours only on a terminal."""

    def __init__(self) -> None:
        self.live = sys.stdout.isatty()
        self.began = time.monotonic()
        self.step_began = self.began
        self._passing = False

    @property
    def width(self) -> int:
        """Columns to write in."""
        return min(100, shutil.get_terminal_size((80, 24)).columns)

    def title(self, text: str) -> None:
        """The first lines."""
        self._write(f"{self._paint(_BOLD, text)}\n")

    def step(self, number: int, total: int, text: str) -> None:
        """A new step begins."""
        self.step_began = time.monotonic()
        self._write(f"\n{self._paint(_BOLD + _CYAN, f'[{number}/{total}]')} {self._paint(_BOLD, text)}\n")

    def command(self, *args: str) -> None:
        """A command, as it could be typed."""
        self._write(f"{INDENT}{self._paint(_DIM, '$')} {self._paint(_BOLD, ' '.join(args))}\n")

    def tell(self, text: str) -> None:
        """A sentence, wrapped."""
        self._write(textwrap.fill(text, self.width, initial_indent=INDENT, subsequent_indent=INDENT) + "\n")

    def line(self, text: str) -> None:
        """One line as it is, cut at the terminal's edge."""
        room = self.width - len(INDENT)
        self._write(f"{INDENT}{text if len(text) <= room or not self.live else text[: room - 1] + '…'}\n")

    def passing(self, text: str) -> None:
        """A line that the next one replaces; only on a terminal."""
        if self.live:
            self._write(f"{INDENT}{self._paint(_DIM, text[: self.width - len(INDENT)])}")
            self._passing = True

    def quote(self, text: str) -> None:
        """Output of something else, marked as such."""
        room = self.width - len(INDENT) - 2
        for line in text.rstrip().splitlines():
            indent = " " * (len(line) - len(line.lstrip()))
            for part in textwrap.wrap(line, room, subsequent_indent=f"{indent}  ", break_on_hyphens=False) or [""]:
                self._write(f"{INDENT}│ {part}\n")

    def measured(self, what: str, length_s: float) -> None:
        """A figure."""
        self._write(f"{INDENT}{what.ljust(44)} {self._paint(_BOLD, took(length_s).rjust(9))}\n")

    def good(self, text: str) -> None:
        """Something that was checked and holds."""
        self._write(f"{INDENT}{self._paint(_GREEN, '✓')} {text}\n")

    def bad(self, text: str) -> None:
        """Something that was checked and does not hold."""
        self._write(f"{INDENT}{self._paint(_RED, '✗')} {text}\n")

    def closing(self, well: bool) -> None:
        """The last line."""
        text = f"Done in {took(time.monotonic() - self.began)}." if well else "It did not all come out as told."
        self._write(f"\n{self._paint(_BOLD, text)}\n")

    def stream(self) -> "Stream":
        """Where an answer appears piece by piece."""
        return Stream(self.width - len(INDENT) - 2)

    def _paint(self, style: str, text: str) -> str:
        return f"{style}{text}{_OFF}" if self.live else text

    def _write(self, text: str) -> None:
        if self._passing:
            text = f"\r\x1b[K{text}"
            self._passing = False
        write(text)


class Stream:
    """Words as they come, wrapped at the edge.

    Args:
        width: columns for the words.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.column = 0
        self.word = ""

    def __call__(self, piece: str) -> None:
        """Show a piece. A word is written once it is whole, so that it can go to the next line."""
        for character in piece:
            if character in " \n":
                self._flush(character)
            else:
                self.word += character

    def end(self) -> None:
        """The answer is over."""
        self._flush("\n")
        if self.column:
            write("\n")

    def _flush(self, after: str) -> None:
        if self.column and self.column + len(self.word) + 1 > self.width:
            write("\n")
            self.column = 0
        if self.word:
            lead = f"{INDENT}│ " if self.column == 0 else " "
            write(lead + self.word)
            self.column += len(self.word) + 1
        if after == "\n" and self.column:
            write("\n")
            self.column = 0
        self.word = ""

"""How lines of a log are shown: each after its worker's name where there are several, in a colour of its own on a
terminal; what happened between them goes to stderr, so that stdout holds the output and nothing else.

Called by `logs`, and by whoever follows a run.
"""

import sys
import time
from typing import Any

import click

from moorage.cli.output import print_line

Json = dict[str, Any]
COLOURS = (
    "cyan",
    "green",
    "yellow",
    "magenta",
    "blue",
    "bright_cyan",
    "bright_green",
    "bright_yellow",
    "bright_magenta",
)


class LogView:
    """Prints lines as the API gives them.

    Args:
        human: for people; else every line is printed as JSON.
        prefix: the worker's name in front of each.
        timestamps: the time in front of each, in the local time zone.
    """

    def __init__(self, *, human: bool, prefix: bool, timestamps: bool = False) -> None:
        self._human = human
        self._prefix = prefix
        self._timestamps = timestamps
        self._colours: dict[str, str] = {}
        self._width = 0

    def show(self, line: Json) -> None:
        """Print one."""
        if not self._human:
            print_line(line)
        elif line.get("kind") == "event":
            click.echo(f"{self._front(line, err=True)}-- {line.get('line', '')} --", err=True)
        elif line.get("kind") != "heartbeat":
            told = f"{_time(line.get('at'))} " if self._timestamps else ""
            click.echo(f"{self._front(line)}{told}{line.get('line', '')}")

    def _front(self, line: Json, *, err: bool = False) -> str:
        worker = line.get("worker")
        if not self._prefix or not worker:
            return ""
        self._width = max(self._width, len(worker))
        colour = self._colours.setdefault(worker, COLOURS[len(self._colours) % len(COLOURS)])
        text = f"{worker:{self._width}} | "
        return click.style(text, fg=colour) if (sys.stderr if err else sys.stdout).isatty() else text


def _time(at: float | None) -> str:
    if at is None:
        return "-"
    shown = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
    return f"{shown}.{int(at * 1000) % 1000:03d}{time.strftime('%z', time.localtime(at))}"

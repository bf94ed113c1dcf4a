"""Printing: API objects as JSON or YAML exactly, or a table that fits the terminal. Results go to stdout.

On a terminal a table is drawn with Rich (loaded only then), cut to the width it has; in a pipe it is plain aligned
text, never cut, so that `grep` and `awk` see everything. What stands in the columns is in `rows`.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GAP = 2
FLEX_LEAST = 16

STYLES = {
    "good": ("ACTIVE", "Running", "Ready", "running", "succeeded", "Completed", "active", "live"),
    "bad": (
        *("FAILED", "DEPLOY_FAILED", "BUILD_FAILED", "UNHEALTHY", "Failed", "Down", "NotReady"),
        *("failed", "rejected", "needs_attention"),
    ),
}
_COLOURS = {"good": "green", "bad": "bold red", "": "yellow"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Args:
        title: its heading.
        flex: may be cut to fit; one that is not is always shown whole.
        state: holds a state word, which gets a colour.
        right: numbers, set to the right.
    """

    title: str
    flex: bool = False
    state: bool = False
    right: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """What a command shows to people."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str = "nothing here"


def print_value(value: Any, form: str) -> None:
    """Print an API object (or several) as `json` or `yaml`, unchanged."""
    if form == "yaml":
        import yaml

        sys.stdout.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))
    else:
        sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_line(value: Any) -> None:
    """One compact JSON line, for what is followed (events, logs)."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_table(table: Table) -> None:
    """Draw a table on a terminal, or write it plainly elsewhere. An empty one says so on stderr."""
    if not table.rows:
        sys.stderr.write(table.empty + "\n")
    elif (width := terminal_width()) is not None:
        _draw(table, width)
    else:
        sys.stdout.write(plain(table) + "\n")
        sys.stdout.flush()


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is; None where it is none, and nothing needs to fit."""
    return shutil.get_terminal_size((80, 24)).columns if sys.stdout.isatty() else None


def plain(table: Table, width: int | None = None) -> str:
    """The table as aligned text, cut to `width` columns where one is given."""
    widths = fit(table, width)
    head = tuple(column.title for column in table.columns)
    return "\n".join(_line(table, row, widths) for row in (head, *table.rows))


def fit(table: Table, width: int | None) -> list[int]:
    """Column widths: whole for most; the flexible ones share what is left, and never get less than a glance's worth."""
    natural = [
        max(len(column.title), *(len(row[i]) for row in table.rows), 0) for i, column in enumerate(table.columns)
    ]
    over = 0 if width is None else sum(natural) + GAP * (len(natural) - 1) - width
    flexible = sorted((i for i, c in enumerate(table.columns) if c.flex), key=lambda i: natural[i])
    while over > 0 and flexible:
        widest = flexible.pop()
        cut = min(over, max(0, natural[widest] - FLEX_LEAST))
        natural[widest] -= cut
        over -= cut
    return natural


def cut(text: str, width: int) -> str:
    """Text of at most `width` characters, with `…` where something was left out."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def _line(table: Table, row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cut(cell, w).rjust(w) if column.right else cut(cell, w).ljust(w)
        for cell, w, column in zip(row, widths, table.columns, strict=True)
    ]
    return (" " * GAP).join(cells).rstrip()


def _draw(table: Table, width: int) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(width=width, highlight=False)
    widths = fit(table, width)
    heading = _line(table, tuple(c.title for c in table.columns), widths)
    console.print(Text(heading, style="bold"), no_wrap=True, crop=True)
    for row in table.rows:
        line = Text(no_wrap=True)
        for i, (cell, w, column) in enumerate(zip(row, widths, table.columns, strict=True)):
            shown = cut(cell, w).rjust(w) if column.right else cut(cell, w).ljust(w)
            line.append(shown, style=colour(cell) if column.state else "")
            line.append(" " * GAP if i + 1 < len(row) else "")
        line.rstrip()
        console.print(line, no_wrap=True, crop=True)


def colour(word: str) -> str:
    """The style of a state word."""
    kind = next((kind for kind, words in STYLES.items() if word in words), "")
    return _COLOURS[kind]

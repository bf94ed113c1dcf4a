"""Printing: API objects as JSON or YAML exactly, or a table that fits the terminal. Results go to stdout.

On a terminal a table is drawn with Rich (loaded only then), laid out for the width it has; in a pipe each row is one
line, so that `grep` and `awk` see everything. What stands in the columns is in `rows`, how it is laid out in `layout`.
"""

import json
import shutil
import sys
from typing import Any

from moorage.cli.layout import Column, Table, layout, legible, text_of

__all__ = [
    "Column",
    "Table",
    "colour",
    "legible",
    "plain",
    "print_line",
    "print_table",
    "print_value",
    "terminal_width",
]

STYLES = {
    "good": ("ACTIVE", "Running", "Ready", "running", "succeeded", "Completed", "active", "live"),
    "bad": (
        *("FAILED", "DEPLOY_FAILED", "BUILD_FAILED", "UNHEALTHY", "Failed", "Down", "NotReady"),
        *("failed", "rejected", "needs_attention"),
    ),
}
_COLOURS = {"good": "green", "bad": "bold red", "": "yellow"}


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
    """The table as aligned text that fits `width` columns where one is given."""
    return text_of(layout(table, width))


def _draw(table: Table, width: int) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(width=width, highlight=False)
    titles = {column.title for column in table.columns}
    for line in layout(table, width):
        text = Text(no_wrap=True)
        for piece, word in line:
            style = "bold" if piece.strip() in titles else colour(word) if word else ""
            text.append(piece, style=style)
        text.rstrip()
        console.print(text, no_wrap=True, crop=False, overflow="ignore")


def colour(word: str) -> str:
    """The style of a state word."""
    kind = next((kind for kind, words in STYLES.items() if word in words), "")
    return _COLOURS[kind]

"""Tables as lines of text that fit a width: which columns there is room for, where their cells break.

Nothing is cut, and no word or id is broken: a cell that may flow (a reason) wraps at words; where little room is left
for it, minor columns go first, and then it stands below its row. Pure; printing is in `output`, which calls this.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

GAP = 2
FLOW_LEAST = 36
"""Columns below which a flowing cell reads badly: some five words."""
BELOW = "    "
NOTHING = "-"
"""A cell that says that there is nothing; below its row it would be a line for nothing."""

Piece = tuple[str, str]
"""Text, and the state word whose colour it has (or an empty one)."""
Line = list[Piece]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Args:
        title: its heading.
        flex: text that may flow over several lines; what is in any other column is one word or id, shown whole.
        state: holds a state word, which gets a colour.
        right: numbers, set to the right.
        minor: left out where there is no room for everything.
    """

    title: str
    flex: bool = False
    state: bool = False
    right: bool = False
    minor: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """What a command shows to people."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    empty: str = "nothing here"


_CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def legible(text: str) -> str:
    """Text whose control characters are written out: names and messages must not steer a terminal."""
    return text if text.isprintable() else text.translate(_CONTROL)


def wrapped(text: str, width: int, indent: str = "") -> str:
    """Text broken at words to `width` columns; lines after the first begin with `indent`."""
    lines = textwrap.wrap(text, max(width, 1), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def layout(table: Table, width: int | None, *, least: Sequence[int] = (), heading: bool = True) -> list[Line]:
    """The lines of a table.

    Args:
        table: what is shown.
        width: columns there are; None where nothing needs to fit.
        least: least widths of its columns, so that tables printed one after another stand under each other.
        heading: begin with the titles.
    """
    cells = [tuple(_one_line(cell) for cell in row) for row in table.rows]
    heads = [tuple(column.title for column in table.columns)] if heading else []
    natural = [
        max(len(column.title) if heading else 0, *(len(row[i]) for row in cells), *least[i : i + 1], 0)
        for i, column in enumerate(table.columns)
    ]
    kept = list(range(len(natural)))
    while True:
        shares = _shares(table, cells, natural, kept, width)
        if shares is not None:
            return [line for row in (*heads, *cells) for line in _beside(table, row, shares)]
        minor = [i for i in kept if table.columns[i].minor]
        if not minor:
            break
        kept.remove(minor[-1])
    assert width is not None
    body = [line for row in cells for line in _below(table, row, natural, kept, width)]
    return [*(line for row in heads for line in _below(table, row, natural, kept, width)), *body]


def text_of(lines: Sequence[Line]) -> str:
    """Lines without colours."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def _one_line(cell: str) -> str:
    return legible(" ".join(cell.split()) if any(mark in cell for mark in "\n\t") else cell)


def _shares(
    table: Table, cells: Sequence[Sequence[str]], natural: Sequence[int], kept: Sequence[int], width: int | None
) -> dict[int, int] | None:
    """Widths of the kept columns beside each other; None where the flowing ones would get too little."""
    shares = {i: natural[i] for i in kept}
    over = 0 if width is None else sum(shares.values()) + GAP * (len(kept) - 1) - width
    flowing = sorted((i for i in kept if table.columns[i].flex), key=lambda i: natural[i])
    while over > 0 and flowing:
        widest = flowing.pop()
        longest = max((len(word) for row in cells for word in row[widest].split()), default=0)
        taken = min(over, max(0, shares[widest] - max(FLOW_LEAST, longest)))
        shares[widest] -= taken
        over -= taken
    return None if over > 0 else shares


def _beside(table: Table, row: Sequence[str], shares: dict[int, int]) -> Iterator[Line]:
    """A row whose cells stand beside each other; the flowing ones go on in lines below."""
    stacks = {i: _stack(table.columns[i], row[i], share) for i, share in shares.items()}
    for number in range(max(len(stack) for stack in stacks.values())):
        line: Line = []
        for i, stack in stacks.items():
            part = stack[number] if number < len(stack) else ""
            line += [_piece(table.columns[i], part, shares[i]), (" " * GAP, "")]
        yield line[:-1]


def _below(table: Table, row: Sequence[str], natural: Sequence[int], kept: Sequence[int], width: int) -> Iterator[Line]:
    """A row whose flowing cells stand below the others, which go on in a second line where one is too short."""
    line: Line = []
    used = 0
    for i in (i for i in kept if not table.columns[i].flex):
        if line and used + natural[i] > width and used + len(row[i]) > width:
            yield line
            line, used = [(BELOW, "")], len(BELOW)
        line += [_piece(table.columns[i], row[i], natural[i]), (" " * GAP, "")]
        used += natural[i] + GAP
    yield line[:-1]
    for i in (i for i in kept if table.columns[i].flex and row[i] != NOTHING):
        for part in wrapped(row[i], width - len(BELOW)).splitlines():
            yield [(BELOW, ""), (part, "")]


def _stack(column: Column, cell: str, share: int) -> list[str]:
    return wrapped(cell, share).splitlines() or [""] if column.flex and len(cell) > share else [cell]


def _piece(column: Column, text: str, share: int) -> Piece:
    return (text.rjust(share) if column.right else text.ljust(share)), (text if column.state else "")

"""CSV files with a header, read strictly: what is wrong is said with file, line and column, and what to do.

Knows nothing of clusters; which columns there are is in `machines` and `traces`, which call this.
"""

import csv
import difflib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.domain.errors import InvalidSpec, NotFound


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file.

    Args:
        path: the file, as it was named.
        line: its number in the file, from 1.
        cells: text by column.
    """

    path: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str, default: str = "") -> str:
        """A cell without spaces around it; the default where the column is absent or the cell empty."""
        return self.cells.get(column, "").strip() or default

    def number(self, column: str, default: float | None = None, *, least: float = 0.0) -> float:
        """A number, at least `least`.

        Args:
            default: for an empty cell or an absent column; None: there must be one.

        Raises:
            InvalidSpec: it is none.
        """
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.wrong(column, f"{text!r} is not a number" if text else "is empty, a number is needed") from None
        if not math.isfinite(value) or value < least:
            raise self.wrong(column, f"{text} is not allowed, the least is {least:g}")
        return value

    def whole(self, column: str, default: int | None = None, *, least: int = 0) -> int:
        """A whole number, likewise."""
        value = self.number(column, default, least=least)
        if value != int(value):
            raise self.wrong(column, f"{self.text(column)} is not a whole number")
        return int(value)

    def flag(self, column: str) -> bool:
        """`true` or `false`; an empty cell is false."""
        text = self.text(column, "false").lower()
        if text not in ("true", "false"):
            raise self.wrong(column, f"{text!r} is neither `true` nor `false`")
        return text == "true"

    def pairs(self, column: str) -> dict[str, str]:
        """`key=value;key=value`."""
        found: dict[str, str] = {}
        for part in filter(None, (p.strip() for p in self.text(column).split(";"))):
            key, sign, value = part.partition("=")
            if not sign or not key:
                raise self.wrong(column, f"{part!r} is not `key=value`")
            found[key] = value
        return found

    def wrong(self, column: str, message: str, remedy: str | None = None) -> InvalidSpec:
        """The error about one cell."""
        return InvalidSpec(
            f"{self.path}, line {self.line}, column {column}: {message}",
            code="bad_csv",
            remedy=remedy or "correct that cell; `moor simulate --help` lists the columns",
        )


@dataclass(frozen=True, slots=True)
class Sheet:
    """A whole file: its header, in order, and its rows."""

    path: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]

    def has(self, *columns: str) -> bool:
        """Whether all of these columns are there."""
        return set(columns) <= set(self.header)

    def check(self, needed: Sequence[str], optional: Sequence[str]) -> None:
        """Every needed column is there, and none that nobody knows.

        Raises:
            InvalidSpec: otherwise, with the nearest known name.
        """
        known = [*needed, *optional]
        for column in self.header:
            if column not in known:
                near = difflib.get_close_matches(column, known, n=1)
                hint = f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"
                raise self._wrong(f"column {column!r} is not known; {hint}", "rename or remove it")
        missing = [column for column in needed if column not in self.header]
        if missing:
            raise self._wrong(
                f"lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
                f"the header needs {', '.join(needed)}; and may have {', '.join(optional)}",
            )

    def _wrong(self, message: str, remedy: str) -> InvalidSpec:
        return InvalidSpec(f"{self.path}, line 1: {message}", code="bad_csv", remedy=remedy)


def read(path: Path) -> Sheet:
    """A file as a sheet.

    Raises:
        NotFound: there is no such file.
        InvalidSpec: it is no CSV with a header and rows of that many cells.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{path}: there is no such file", remedy="name the CSV file to read") from None
    except OSError as error:
        raise InvalidSpec(f"{path}: cannot be read: {error.strerror}", remedy="name a file that you may read") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InvalidSpec(f"{path}, line {line}: is not UTF-8", code="bad_csv", remedy="save it as UTF-8") from None
    return of_text(str(path), text)


def of_text(path: str, text: str) -> Sheet:
    """The same from text."""
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = tuple(cell.strip() for cell in next(lines, []))
        if not any(header):
            raise InvalidSpec(f"{path}, line 1: there is no header", code="bad_csv", remedy="begin with column names")
        if len(set(header)) < len(header):
            twice = next(c for c in header if header.count(c) > 1)
            raise InvalidSpec(f"{path}, line 1: column {twice!r} is there twice", code="bad_csv", remedy="remove one")
        rows = tuple(_rows(path, header, lines))
    except csv.Error as error:
        raise InvalidSpec(
            f"{path}, line {lines.line_num}: {error}", code="bad_csv", remedy="check the quotes there"
        ) from None
    if not rows:
        raise InvalidSpec(f"{path}: has a header and no rows", code="bad_csv", remedy="add one row at least")
    return Sheet(path, header, rows)


def _rows(path: str, header: tuple[str, ...], lines: "Iterator[list[str]]") -> Iterator[Row]:
    for cells in lines:
        line = lines.line_num  # type: ignore[attr-defined]  # a csv reader counts lines; its type is private
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            column = header[len(cells)] if len(cells) < len(header) else f"{len(header) + 1}"
            raise InvalidSpec(
                f"{path}, line {line}, column {column}: the row has {len(cells)} cells, the header {len(header)}",
                code="bad_csv",
                remedy="each row needs a cell for each column; put text with commas in double quotes",
            )
        yield Row(path, line, dict(zip(header, cells, strict=True)))

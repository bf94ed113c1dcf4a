"""Cursors: places in history, as text that says which store it belongs to.

`INCARNATION.SEQ` on SQLite, `INCARNATION.XID.SEQ` on PostgreSQL. A cursor stands after a row; place (xid, 0) stands
before everything that transaction `xid` and later ones write. Pure.
"""

from dataclasses import dataclass

from moorage.domain.errors import Gone, InvalidSpec


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in history; `xid` is 0 on SQLite."""

    xid: int
    seq: int


class Cursors:
    """Reads and writes the cursors of one store.

    Args:
        incarnation: drawn when the store was made.
        postgres: whether places have a transaction.
    """

    def __init__(self, incarnation: str, *, postgres: bool) -> None:
        self.incarnation = incarnation
        self._postgres = postgres
        self.prefix = f"{incarnation}."

    def text(self, place: Position) -> str:
        """The cursor of a place."""
        return self.of(place.xid, place.seq)

    def of(self, xid: int, seq: int) -> str:
        """The cursor of a place that is given by its parts."""
        return f"{self.prefix}{xid}.{seq}" if self._postgres else f"{self.prefix}{seq}"

    def parse(self, cursor: str) -> Position:
        """The place of a cursor.

        Raises:
            InvalidSpec: it is no cursor.
            Gone: it belongs to another store.
        """
        incarnation, *numbers = cursor.split(".")
        if not numbers or not all(n.isascii() and n.isdigit() for n in numbers):
            raise InvalidSpec(f"{cursor!r} is not a cursor", remedy="give a cursor that this API answered with")
        if incarnation != self.incarnation or len(numbers) != (2 if self._postgres else 1):
            raise Gone(
                f"the cursor {cursor} belongs to another store",
                remedy="take a snapshot and follow from its cursor",
            )
        return Position(int(numbers[0]), int(numbers[1])) if self._postgres else Position(0, int(numbers[0]))

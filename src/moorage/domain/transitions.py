"""Transition tables as data, and the one check that every change of state passes.

Each noun declares one `Table`: rows of `(from, to, trigger)`. Nothing else in the code decides whether a state may
change; the store applies moves only through `Table.check`, in the transaction that also bumps the version and
appends the history row. Diagrams and the reference page are generated from the same rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from moorage.domain.errors import IllegalTransition


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of a table: `source` may become `target` when `trigger` happens."""

    source: str
    target: str
    trigger: str


class Table:
    """The transitions of one noun.

    Args:
        noun: the noun's name as used in the API (`Worker`).
        states: the enumeration of its states.
        initial: the state a new object is created in.
        rows: the allowed transitions.
    """

    def __init__(self, noun: str, states: type[StrEnum], initial: Iterable[str], rows: Iterable[Transition]) -> None:
        self.noun = noun
        self.states = states
        self.initial = frozenset(str(s) for s in initial)
        self.rows = tuple(rows)
        self._allowed = frozenset((str(r.source), str(r.target), r.trigger) for r in self.rows)
        self.triggers = tuple(sorted({r.trigger for r in self.rows}))

    def allows(self, source: str, target: str, trigger: str) -> bool:
        """Whether `(source, target, trigger)` is a row of this table."""
        return (source, target, trigger) in self._allowed

    def check(self, source: str, target: str, trigger: str) -> None:
        """Raise `IllegalTransition` unless the row exists."""
        if (source, target, trigger) not in self._allowed:
            raise IllegalTransition(self.noun, str(source), str(target), trigger)

    def targets(self, source: str) -> frozenset[str]:
        """Every state reachable from `source` in one step."""
        return frozenset(str(r.target) for r in self.rows if str(r.source) == str(source))

    @property
    def terminal(self) -> frozenset[str]:
        """States that nothing leaves."""
        return frozenset(str(s) for s in self.states if not self.targets(str(s)))


def rows(source: str, trigger: str, *targets: str) -> tuple[Transition, ...]:
    """Rows from one state to several targets under one trigger."""
    return tuple(Transition(str(source), str(t), trigger) for t in targets)

"""How the requests of one endpoint are shared among revisions: by turns that are counted, never by luck.

Here: which revision's turn it is. Not here: which of its replicas, and what happens when it has none (`routing`).
Kept by `routes.EndpointState`.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moorage.decide.serving.routes import RevisionState, TargetState

_WHOLE = 1_000_000
"""Shares are kept as whole millionths, so that no rounding adds up."""
_PER_CENT = _WHOLE // 100


class Portion:
    """Picks an exact part of a sequence: of any first n turns it picked their share, less or more by half a turn.

    It carries over what is left of each turn to the next, as lines are drawn on a grid of pixels.
    """

    __slots__ = ("_credit",)

    def __init__(self) -> None:
        self._credit = _WHOLE // 2

    def turn(self, share: float) -> bool:
        """Whether this turn is one of them.

        Args:
            share: the part now, in per cent.
        """
        self._credit += round(share * _PER_CENT)
        if self._credit < _WHOLE:
            return False
        self._credit -= _WHOLE
        return True


class Split:
    """Who gets which requests while the targets are of more than one revision.

    Kept over changes of the table, so that a share holds over all of them.
    """

    __slots__ = ("_copied", "_shared", "active", "candidate", "mirror", "turns")

    def __init__(self) -> None:
        self.active: RevisionState | None = None
        """answers whatever is nobody else's"""
        self.candidate: RevisionState | None = None
        """gets requests by its share"""
        self.mirror: RevisionState | None = None
        """gets copies by its share"""
        self.turns = 0
        """that were the candidate's"""
        self._shared = Portion()
        self._copied = Portion()

    @property
    def targets(self) -> "list[TargetState]":
        """Of the active revision."""
        return self.active.targets if self.active is not None else []

    def turn(self) -> "RevisionState | None":
        """The candidate when the next request is its share's."""
        candidate = self.candidate
        if candidate is None or candidate.spec is None or not self._shared.turn(candidate.spec.share):
            return None
        self.turns += 1
        return candidate

    def copy_turn(self) -> "RevisionState | None":
        """The revision that the next request is copied to, if it is."""
        mirror = self.mirror
        if mirror is None or mirror.spec is None or not self._copied.turn(mirror.spec.share):
            return None
        return mirror


def split_of(revisions: "Iterable[RevisionState]", before: Split | None) -> Split | None:
    """The split that a table asks for; None while all targets are alike.

    A target whose revision the table does not list, beside those that it lists, gets nothing.
    """
    every = list(revisions)
    listed = [(state, state.spec) for state in every if state.spec is not None]
    strangers = any(state.targets for state in every if state.spec is None)
    if not listed or (not strangers and all(spec.role == "active" for _, spec in listed)):
        return None
    split = before or Split()
    split.active = next((state for state, spec in listed if spec.role == "active"), None)
    candidates = [(state, spec) for state, spec in listed if spec.role == "candidate" and spec.share > 0]
    split.candidate = next((state for state, spec in candidates if spec.by == "share"), None)
    split.mirror = next((state for state, spec in candidates if spec.by == "mirror"), None)
    return split

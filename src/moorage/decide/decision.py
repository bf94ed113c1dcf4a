"""What every decision returns, and the draft in which one is built.

A `Draft` holds the rows of one snapshot and collects what should become of them: each row's steps and fields are
merged into one `Update`, so that a decision reads like prose (`draft.step(replica, "failed", ...)`) and still commits
as one change with the versions it was made on. `draft.row(uid)` is the row as the decision has left it so far.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

from moorage.domain.changes import Change, Create, Fence, Release, Remove, Step, Update, Write
from moorage.domain.lifecycles import TABLES
from moorage.domain.nouns import Noun
from moorage.domain.reasons import Reason

N = TypeVar("N", bound=Noun)


class Ids(Protocol):
    """A source of new uids; random in production, counted in tests."""

    def new(self, kind: str) -> str:
        """A uid never given out before."""
        ...


@dataclass(frozen=True, slots=True)
class Decision:
    """Changes to commit now, and when to look again if nothing wakes the loop before (None: only when woken).

    Args:
        left: the rows that were decided on and made, as the decision leaves them.
    """

    change: Change | None = None
    wake_at: float | None = None
    left: tuple[Noun, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a person's command makes: what to commit (None: a no-op that succeeds), and what to answer."""

    change: Change | None
    answer: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Pending:
    steps: list[Step] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    reason: Reason | None = None
    notes: list[Reason] = field(default_factory=list)


class Draft:
    """Rows of a snapshot, and what this decision makes of them.

    Args:
        rows: the rows the decision may change.
        now: the decision's time, seconds since the epoch.
        actor: who decides (`controller:serving`).
    """

    def __init__(self, rows: Iterable[Noun], now: float, actor: str) -> None:
        self.now = now
        self.actor = actor
        self._base: dict[str, Noun] = {r.uid: r for r in rows}
        self._rows: dict[str, Noun] = dict(self._base)
        self._pending: dict[str, _Pending] = {}
        self._created: dict[str, Reason] = {}
        self._extra: list[Write] = []
        self._deadlines: list[float] = []

    def row(self, like: N) -> N:
        """The row as this decision has left it so far."""
        return cast(N, self._rows[like.uid])

    def known(self, kind: type[N], uid: str | None) -> N | None:
        """The row of this uid and noun, as left so far; None: the snapshot has none."""
        row = self._rows.get(uid) if uid is not None else None
        return row if isinstance(row, kind) else None

    def of(self, kind: type[N]) -> Iterator[N]:
        """Every row of one noun, as left so far."""
        return (r for r in list(self._rows.values()) if isinstance(r, kind))

    def step(self, row: N, to: str, trigger: str, why: Reason, at: float | None = None, **fields: Any) -> N:
        """Take one edge of the row's table.

        Raises:
            IllegalTransition: the table has no such edge.
        """
        current = self.row(row)
        table = TABLES[current.kind]
        table.check(current.state_word, to, trigger)
        if row.uid in self._created:
            raise ValueError(f"{row.kind} {row.uid} was created in this very decision; create it in the right state")
        pending = self._pending.setdefault(row.uid, _Pending())
        pending.steps.append(Step(to, trigger, why, at))
        pending.reason = None  # a reason given before this step in the same decision is superseded by the step's
        pending.fields.update(fields)
        state = table.states(to)
        return self._keep(row, **{current.state_field: state}, reason=why, **fields)

    def set(self, row: N, **fields: Any) -> N:
        """Set fields that take no step; unchanged values are dropped."""
        current = self.row(row)
        changed = {k: v for k, v in fields.items() if getattr(current, k) != v}
        if not changed:
            return current
        if row.uid not in self._created:
            self._pending.setdefault(row.uid, _Pending()).fields.update(changed)
        return self._keep(row, **changed)

    def because(self, row: N, why: Reason) -> N:
        """Give the row a new current reason without a step; recorded only when code or params differ."""
        current = self.row(row)
        if same_reason(current.reason, why):
            return current
        if row.uid in self._created:
            self._created[row.uid] = why
            return self._keep(row, reason=why)
        pending = self._pending.setdefault(row.uid, _Pending())
        if pending.steps:
            pending.notes.append(why)
            return current
        pending.reason = why
        return self._keep(row, reason=why)

    def depends_on(self, row: Noun) -> None:
        """Commit only if this row is still as it was read, though nothing of it may change."""
        if row.uid not in self._created:
            self._pending.setdefault(row.uid, _Pending())

    def note(self, row: N, why: Reason) -> None:
        """Record a fact in the row's history; its state and reason stay."""
        self._pending.setdefault(row.uid, _Pending()).notes.append(why)

    def create(self, row: N, why: Reason) -> N:
        """A new row."""
        self._created[row.uid] = why
        self._rows[row.uid] = replace(row, reason=why, created_at=self.now, updated_at=self.now)
        return self.row(row)

    def write(self, write: Release | Remove | Write) -> None:
        """Any other write of the change."""
        self._extra.append(write)

    def look_again(self, at: float | None) -> None:
        """Ask to be run again at that time."""
        if at is not None:
            self._deadlines.append(at)

    def decision(self, fence: Fence | None = None) -> Decision:
        """Everything collected, as one change (None when nothing is to be done)."""
        removed = {w.uid for w in self._extra if isinstance(w, Remove)}
        writes: list[Write] = []
        for uid, p in self._pending.items():
            if uid in removed:
                continue
            base = self._base[uid]
            writes.append(
                Update(base.kind, uid, base.version, tuple(p.steps), dict(p.fields), p.reason, tuple(p.notes))
            )
        writes += [Create(self._rows[uid], why) for uid, why in self._created.items()]  # effects follow causes
        writes += self._extra
        change = Change(tuple(writes), self.actor, fence=fence) if writes else None
        left = tuple(row for uid, row in self._rows.items() if uid not in removed)
        return Decision(change, min(self._deadlines, default=None), left)

    def _keep(self, row: N, **fields: Any) -> N:
        kept = cast(N, replace(cast(Any, self._rows[row.uid]), **fields))
        self._rows[row.uid] = kept
        return kept


def same_reason(one: Reason | None, other: Reason | None) -> bool:
    """Whether two reasons say the same to a program: code and params (countdowns are absolute times, so they stay)."""
    if one is None or other is None:
        return one is other
    return one.code == other.code and _plain(one.params) == _plain(other.params)


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in params.items()}

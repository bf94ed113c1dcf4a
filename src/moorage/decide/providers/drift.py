"""What was found beside what was meant: the drift table of the lifecycle contract §11, row by row. Pure.

An inventory is what machines themselves say is there, complete or not; an intent is what rows say should be there.
Nothing is created, adopted or removed on a guess: what cannot be told for certain is read again, or shown to a person.
Called by `control.inventory` for `moor orphans` and `moor inspect`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SETTLING_S = 30.0
"""How long after a start was ordered its process may still appear: until then its absence proves nothing."""


class Drift(StrEnum):
    """The rows of the table, and two for what nobody means any more."""

    ADOPT = "adopt"
    """exact identity and digest: it is the one"""
    KEEP = "keep"
    """the same identity, and its health changed: kept, and brought back by its own lifecycle"""
    CREATE = "create"
    """missing, and the inventory is complete: made again from the same intent"""
    NEEDS_ATTENTION = "needs_attention"
    """the name matches; digest, owner, revision or ordinal differ: nothing is created, adopted or removed"""
    PAUSE = "pause"
    """gone while an operation is at work on it: waits until intent and absence are both certain"""
    READ_ONLY = "read_only"
    """the inventory is partial, stale or forbidden: looked at again; nothing is created or cleaned up"""
    LATE = "late"
    """of something that ended or was deleted: ours, and to be removed"""
    ORPHAN = "orphan"
    """carries our marks and belongs to nothing that is known"""


@dataclass(frozen=True, slots=True)
class Intent:
    """What should be on a machine.

    Args:
        worker: uid, the name under which a machine knows it.
        epoch: of its placement.
        identity, digest: see `identity`.
        machine: uid of where it is placed.
        kind, name: of the object a person knows it by.
        since: when it was placed, seconds since the epoch.
        wanted: False: it is to end, and to be gone.
        operation: uid of the operation that is at work on its owner, if one is.
    """

    worker: str
    epoch: int
    identity: str
    digest: str
    machine: str
    kind: str
    name: str
    since: float
    wanted: bool = True
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """One thing that carries our marks.

    Args:
        machine: uid of the machine that saw it.
        resource: `pid:N` or `container:ID`.
        worker, epoch, identity, digest: its tags; what it does not carry is empty (0).
        proven: it is of the home of that machine's agent, and not only says so.
        alive: it runs.
        healthy: as its machine last saw; None: not known.
        observed_at: seconds since the epoch.
    """

    machine: str
    resource: str
    worker: str
    epoch: int
    identity: str
    digest: str
    proven: bool
    alive: bool
    observed_at: float
    healthy: bool | None = None


@dataclass(frozen=True, slots=True)
class MachineLook:
    """How one machine answered.

    Args:
        begun_at: when it began to look, seconds since the epoch; 0.0: it did not answer.
        why: what makes it incomplete; None: it is complete.
    """

    machine: str
    begun_at: float
    why: str | None = None

    @property
    def complete(self) -> bool:
        """Whether what it did not name is not there."""
        return self.why is None


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the comparison.

    Args:
        identity: of the thing, or of the intent that nothing was found for.
        machine: uid.
        why: the row's meaning here, a sentence.
        intent, thing: what was meant, and what was found; None: nothing.
    """

    drift: Drift
    identity: str
    machine: str
    why: str
    intent: Intent | None = None
    thing: Observed | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """The comparison: a finding for each intent and each thing observed, and what made it incomplete."""

    findings: tuple[Finding, ...]
    incomplete: Mapping[str, str] = field(default_factory=dict)
    """machine uid -> why"""

    @property
    def complete(self) -> bool:
        """Whether every machine told all of it."""
        return not self.incomplete


def compare(
    intents: Iterable[Intent], observed: Iterable[Observed], looks: Iterable[MachineLook], tombstones: Iterable[str]
) -> Compared:
    """Lay the inventory beside the intents.

    Args:
        looks: one for each machine that may hold anything.
        tombstones: uids of workers that ended or were deleted.
    """
    seen = {look.machine: look for look in looks}
    gone = frozenset(tombstones)
    things: dict[tuple[str, str], list[Observed]] = {}
    for thing in observed:
        things.setdefault((thing.machine, thing.worker), []).append(thing)
    findings: list[Finding] = []
    for intent in sorted(intents, key=lambda i: (i.machine, i.worker)):
        here = things.pop((intent.machine, intent.worker), [])
        findings += [_beside(intent, thing) for thing in here] or _absent(intent, seen.get(intent.machine))
    for left in things.values():
        findings += [_unmeant(thing, gone) for thing in left]
    incomplete = {look.machine: look.why for look in seen.values() if look.why is not None}
    return Compared(tuple(findings), dict(sorted(incomplete.items())))


def _beside(intent: Intent, thing: Observed) -> Finding:
    differs = _differences(intent, thing)
    if thing.epoch and thing.epoch < intent.epoch:
        drift, why = Drift.LATE, f"it is of placement {thing.epoch}, and placement {intent.epoch} is meant"
    elif differs:
        drift, why = Drift.NEEDS_ATTENTION, f"it bears the name of {intent.name}, but {differs}"
    elif not thing.proven:
        drift, why = Drift.NEEDS_ATTENTION, "it names this machine's agent, and cannot be proven to be its own"
    elif not intent.wanted:
        drift, why = Drift.LATE, "it is to end, and is not gone yet"
    elif not thing.alive or thing.healthy is False:
        drift, why = Drift.KEEP, "its health changed; its own lifecycle acts on that"
    else:
        drift, why = Drift.ADOPT, "identity and digest are those of the intent"
    return _finding(drift, thing, why, intent)


def _differences(intent: Intent, thing: Observed) -> str:
    pairs = (("its identity", intent.identity, thing.identity), ("its digest", intent.digest, thing.digest))
    return " and ".join(f"{what} is {found}, not {meant}" for what, meant, found in pairs if found and found != meant)


def _absent(intent: Intent, look: MachineLook | None) -> list[Finding]:
    if not intent.wanted and look is not None and look.complete:
        return []  # as it should be: gone
    if look is None or not look.complete:
        why = look.why if look is not None else "its machine was not asked"
        drift, why = Drift.READ_ONLY, f"not seen, which proves nothing: {why}"
    elif look.begun_at < intent.since + SETTLING_S:
        drift, why = Drift.READ_ONLY, "not seen, but its start was ordered only just before the look"
    elif intent.operation is not None:
        drift, why = Drift.PAUSE, f"gone while operation {intent.operation} is at work on it"
    else:
        drift, why = Drift.CREATE, "missing, and its machine told everything that it has"
    return [Finding(drift, intent.identity, intent.machine, why, intent)]


def _unmeant(thing: Observed, gone: frozenset[str]) -> Finding:
    if not thing.proven:
        why = "it carries our marks, and cannot be proven to be of this machine's agent: left alone"
        return _finding(Drift.ORPHAN, thing, why)
    if thing.worker in gone:
        return _finding(Drift.LATE, thing, "what it belonged to ended or was deleted: it is ours to remove")
    return _finding(Drift.ORPHAN, thing, "nothing that is known here means it")


def _finding(drift: Drift, thing: Observed, why: str, intent: Intent | None = None) -> Finding:
    return Finding(drift, thing.identity or (intent.identity if intent else ""), thing.machine, why, intent, thing)

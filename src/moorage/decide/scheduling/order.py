"""Who is looked at, and in which order: priority, submission time, rank, uid (the lifecycle contract §4).

Here are the words in which the rest speaks of waiting work. `queued` keeps it in that order while rows come and go;
`line` says which of it may be placed now and what is placed together.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.decide.scheduling.likeness import grace_s, time_limit_s
from moorage.decide.scheduling.snapshot import Ask, SchedulingSnapshot, Topology, owner_of
from moorage.domain.nouns import Run, Worker
from moorage.domain.states import TERMINAL_RUN
from moorage.domain.written import written_once_by_identity

__all__ = ["Entry", "Key", "Unit", "grace_s", "order_key", "ordered", "time_limit_s"]

Key = tuple[int, float, int, str]


@written_once_by_identity
class Entry:
    """One waiting worker, with what of its run decides about its place.

    Args:
        ask: the very same object for workers alike, so that it can be compared by identity.
        apart: owners of whose other workers its machine must be free: its own with `spread: machine`, and its ports.
        owners: what it counts under on its machine, as far as anybody asks within a cycle.
        limit_s: seconds after which it is stopped, with its grace; None: it has no time limit.
        may: its run lets its workers be placed; `able`: and nothing of its own keeps it back but the time.
        gang: its run is placed whole.
        plain: it is placed alone, and nothing matters but its ask.
    """

    worker: Worker
    run: Run
    ask: Ask
    apart: tuple[str, ...]
    owners: tuple[str, ...]
    topology: Topology | None
    limit_s: float | None
    key: Key
    may: bool
    able: bool
    gang: bool
    plain: bool

    @property
    def owner(self) -> str:
        """Its deployment, or its run."""
        return owner_of(self.worker)


@written_once_by_identity
class Unit:
    """What is placed whole or not at all.

    Args:
        members: in the order of groups and ranks.
        gang: the needed members of a gang; False: one worker alone.
        beyond: a member of a gang above its minimum: placed only while its gang has its places.
    """

    members: tuple[Entry, ...]
    gang: bool = False
    beyond: bool = False

    @property
    def first(self) -> Entry:
        """Whose place in the queue the unit has."""
        return self.members[0]

    @property
    def run(self) -> Run:
        """Whose it is."""
        return self.members[0].run

    @property
    def priority(self) -> int:
        """Of its run."""
        return self.members[0].run.priority


def order_key(worker: Worker, run: Run | None) -> Key:
    """Place in the queue: lower is earlier."""
    return (-(run.priority if run else 0), worker.queued_at, worker.rank, worker.uid)


def ordered(pending: Iterable[Worker], snapshot: SchedulingSnapshot) -> list[Worker]:
    """Workers in the order in which they are looked at."""
    return sorted(pending, key=lambda worker: order_key(worker, snapshot.runs.get(worker.run)))


def may_be_placed(run: Run) -> bool:
    """Whether anything of this run may be placed at all."""
    return (
        run.cancel is None
        and not run.deleting
        and run.deleted_at is None
        and run.restarting is None
        and run.state not in TERMINAL_RUN
    )


def minimum_of(run: Run) -> int | None:
    """`min_available` of a gang; None: every member is needed."""
    asked = run.spec.get("gang")
    return int(asked["min_available"]) if isinstance(asked, Mapping) and asked.get("min_available") else None


def member_rank(run: Run, known: Iterable[Worker]) -> Any:
    """A function from worker to its number in the gang: groups in the order of the spec, then ranks."""
    sizes: dict[str, int] = {}
    for worker in known:
        sizes[worker.group] = max(sizes.get(worker.group, 0), worker.rank + 1)
    before: dict[str, int] = {}
    total = 0
    for group in run.spec.get("groups") or ():
        name = str(group.get("name", "worker"))
        before[name] = total
        total += max(int(group.get("count") or 0), sizes.get(name, 0))
    return lambda worker: before.get(worker.group, total) + worker.rank

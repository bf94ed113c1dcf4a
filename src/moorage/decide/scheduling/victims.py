"""Who may be stopped so that work of higher priority can start, and what is stopped together. Called by `preempt`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from moorage.decide.scheduling.holders import Below, Holder, Holders
from moorage.decide.scheduling.order import member_rank, minimum_of
from moorage.domain.nouns import Run, Worker
from moorage.domain.states import ENDED_WORKER, WorkerState

BUDGET = 5
"""Preemptions of one run without it having run between them."""


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """What is stopped together: one worker, or the needed members of a gang."""

    holders: tuple[Holder, ...]

    @property
    def run(self) -> Run:
        """Whose it is."""
        return self.holders[0].run

    @property
    def gpus(self) -> int:
        """GPUs that it frees."""
        return sum(h.spot.gpus.bit_count() for h in self.holders)

    @property
    def started(self) -> float:
        """When the last of it started, or was placed."""
        return max(_started(h.worker) for h in self.holders)

    @property
    def latest(self) -> str:
        """uid of the last of it that started."""
        started = self.started
        return min(h.worker.uid for h in self.holders if _started(h.worker) == started)

    @property
    def rows(self) -> set[int]:
        """Machines on which it frees something."""
        return {h.spot.row for h in self.holders}


def candidates(holders: Holders, below: Below, priority: int) -> Iterator[Victim]:
    """Everything of lower priority that may be stopped, the first to be chosen first; made as it is asked for.

    Args:
        below: what holds room at lower priorities.
    """
    order = np.lexsort((-below.started, below.priority))
    same = np.flatnonzero((np.diff(below.started[order]) != 0) | (np.diff(below.priority[order]) != 0)) + 1
    known: dict[str, dict[str, list[Victim]]] = {}
    for some in np.split(below.slot[order], same):
        for uid in sorted(below.uids[slot] for slot in some.tolist()):
            holder = holders.get(uid)
            run = holder.run.uid if holder is not None else ""
            if run and run not in known:
                known[run] = {}
                for victim in sorted(victims_of(holders, run, priority), key=turn):
                    known[run].setdefault(victim.latest, []).append(victim)
            yield from known.get(run, {}).get(uid, ())


def victims_of(holders: Holders, run: str, priority: int) -> list[Victim]:
    """What of one run may be stopped for a unit of that priority."""
    by_uid = holders.by_run[run]
    here = [h for uid in by_uid if (h := holders.get(uid)) is not None]
    if here[0].run.priority >= priority or not _may_be_stopped(here[0].run, by_uid.values()):
        return []
    return _victims_of(here)


def turn(victim: Victim) -> tuple[int, float, str, int]:
    """The first to be chosen first."""
    return (victim.run.priority, -victim.started, victim.latest, len(victim.holders))


def _started(worker: Worker) -> float:
    return worker.started_at or worker.placed_at or 0.0


def _may_be_stopped(run: Run, workers: Iterable[Worker]) -> bool:
    """Not what is on its way out already, nor who was stopped too often."""
    if run.cancel is not None or run.deleting or run.restarting is not None:
        return False
    return run.preemptions < BUDGET or any(w.ran for w in workers)


def _victims_of(here: list[Holder]) -> list[Victim]:
    run = here[0].run
    live = [h for h in here if h.worker.state not in ENDED_WORKER and h.worker.state is not WorkerState.STOPPING]
    if not run.spec.get("gang"):
        return [Victim((h,)) for h in live]
    if len(live) < len(here):
        return []  # a member is on its way out: the gang is queued again, or ends, by itself
    minimum = minimum_of(run)
    rank = member_rank(run, [h.worker for h in live])
    needed = [h for h in live if minimum is None or rank(h.worker) < minimum]
    alone = [Victim((h,)) for h in live if h not in needed]
    # The needed ones take everybody along: the gang starts again as a whole.
    return [*alone, Victim(tuple(live))] if needed else alone

"""Heartbeats of workers: which of them a machine's heartbeats still name, and what becomes of those they do not.

A worker is judged by heartbeats of its machine that did arrive and came without it, never by the silence of the
machine itself: that is the lease's business (`liveness`). So nothing here needs a timer; a heartbeat of the machine is
the only moment at which a worker can turn out to be late. Beats are kept on the machine's row, so that a heartbeat
writes one row however many workers there are. Called by `liveness.watch` and by `control`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.decide.decision import Draft
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import TERMINAL_RUN, WorkerState

GRACE_S = 15.0
"""Beside its time to live, before a worker is stale: a heartbeat comes each 10 s, and one may be lost."""

FORGOTTEN_AFTER_S = 3600.0
"""A beat of a worker that the heartbeats stopped naming is kept so long; it takes a few bytes of the machine's row."""


def heard(
    beats: Mapping[str, Any], workers: Mapping[str, int], ages: Mapping[str, float], now: float
) -> dict[str, list[Any]]:
    """What the machine's row keeps after one heartbeat of its agent.

    Args:
        beats: what it kept before: worker → [epoch, time of its last heartbeat].
        workers: those seen alive just now → epoch.
        ages: seconds since a worker's own program last beat, for programs that do.
        now: seconds since the epoch.
    """
    kept = {w: list(b) for w, b in beats.items() if w not in workers and float(b[1]) > now - FORGOTTEN_AFTER_S}
    return kept | {w: [epoch, now - max(0.0, ages.get(w, 0.0))] for w, epoch in workers.items()}


def excused(beats: Mapping[str, Any], now: float) -> dict[str, list[Any]]:
    """The same beats as of now: the agent was away, and its workers are not to be judged by that."""
    return {worker: [epoch, now] for worker, (epoch, _) in beats.items()}


@dataclass(frozen=True, slots=True)
class Watched:
    """What must be remembered of a running worker to see, without its row, that its beat is late."""

    worker: str
    epoch: int
    ttl_s: float
    since: float


def watched(workers: Iterable[Worker]) -> tuple[Watched, ...]:
    """Those of them that are judged by their beats."""
    running = (w for w in workers if w.state is WorkerState.RUNNING)
    return tuple(Watched(w.uid, w.epoch, w.heartbeat_ttl_s, _since(w)) for w in running)


def any_late(machine: Machine, running: Iterable[Watched], *, floor: float) -> bool:
    """Whether one of them has gone without a beat for too long, so that rows are to be looked at.

    Args:
        floor: no silence before this time counts (start of the leadership), seconds since the epoch.
    """
    seen_at = _seen_at(machine)
    return any(seen_at >= max(_beat(machine, w.worker, w.epoch) or w.since, floor) + w.ttl_s + GRACE_S for w in running)


def needs_looking_after(workers: Iterable[Worker]) -> bool:
    """Whether a beat of one of them would change something: it is stale, or was given up and may still be there."""
    return any(w.state is WorkerState.STALE or given_up(w) for w in workers)


def given_up(worker: Worker) -> bool:
    """Lost by its heartbeat alone: its machine is there, and its process may be; so its place is not free."""
    return worker.state is WorkerState.DOWN and worker.handed_over


def may_return(run: Run | None) -> bool:
    """Whether a lost worker of this run may go on: nothing was decided meanwhile that ends or restarts it."""
    return (
        run is not None
        and run.state not in TERMINAL_RUN
        and run.cancel is None
        and run.restarting is None
        and not run.deleting
    )


def judge(draft: Draft, machine: Machine, runs: Mapping[str, Run], *, floor: float) -> None:
    """Running → Stale → Down, and back, by what the last heartbeat of this machine named.

    Args:
        draft: with the rows of the workers on this machine.
        machine: up, and heard at `heartbeat_at`.
        runs: by uid; those of workers that were given up.
        floor: as in `any_late`.
    """
    for worker in list(draft.of(Worker)):
        if worker.machine != machine.uid:
            continue
        if worker.state is WorkerState.RUNNING:
            _late(draft, machine, worker, floor)
        elif worker.state is WorkerState.STALE:
            _back_or_expired(draft, machine, worker, floor)
        elif given_up(worker):
            _returned(draft, machine, worker, runs)


def _late(draft: Draft, machine: Machine, worker: Worker, floor: float) -> None:
    since = _beat(machine, worker.uid, worker.epoch) or _since(worker)
    if _seen_at(machine) >= max(since, floor) + worker.heartbeat_ttl_s + GRACE_S:
        why = reason("heartbeat.late", since=since)
        draft.step(worker, WorkerState.STALE, "heartbeat_late", why, heartbeat_at=since, stale_since=draft.now)


def _back_or_expired(draft: Draft, machine: Machine, worker: Worker, floor: float) -> None:
    beat, seen_at = _beat(machine, worker.uid, worker.epoch), _seen_at(machine)
    if beat is not None and seen_at < beat + worker.heartbeat_ttl_s + GRACE_S:
        draft.step(
            worker,
            WorkerState.RUNNING,
            "heartbeat_back",
            reason("heartbeat.back"),
            heartbeat_at=beat,
            stale_since=None,
        )
    elif seen_at >= max(worker.stale_since or draft.now, floor) + worker.heartbeat_ttl_s:
        why = reason("heartbeat.expired")
        draft.step(worker, WorkerState.DOWN, "heartbeat_expired", why, ended_at=draft.now, stale_since=None)


def _returned(draft: Draft, machine: Machine, worker: Worker, runs: Mapping[str, Run]) -> None:
    beat = _beat(machine, worker.uid, worker.epoch)
    if beat is None or beat <= (worker.ended_at or draft.now) or not may_return(runs.get(worker.run)):
        return
    why = reason("heartbeat.back")
    draft.step(worker, WorkerState.RUNNING, "returned", why, heartbeat_at=beat, ended_at=None)


def _beat(machine: Machine, worker: str, epoch: int) -> float | None:
    """When this placement of the worker was last heard, or None."""
    told = machine.beats.get(worker)
    return float(told[1]) if told is not None and int(told[0]) == epoch else None


def _since(worker: Worker) -> float:
    """From when a worker that never beat is counted."""
    return worker.running_since or worker.started_at or worker.placed_at or worker.created_at


def _seen_at(machine: Machine) -> float:
    return machine.heartbeat_at or machine.created_at

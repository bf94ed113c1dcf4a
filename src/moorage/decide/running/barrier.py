"""Stage 7 of the run's decision: the barrier of a gang opens once every needed member stands at it or is past it.

Members above the minimum pass with the others. The change of reason wakes the machines that hold them.
"""

from collections.abc import Sequence

from moorage.decide.decision import Draft
from moorage.decide.running import members
from moorage.decide.running.policy import Policy
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import WorkerState

ARRIVED = frozenset(
    {
        WorkerState.READY_TO_START,
        WorkerState.STARTING,
        WorkerState.RUNNING,
        WorkerState.STALE,
        WorkerState.COMPLETED,
    }
)


def open_barrier(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> None:
    """Let those at the barrier start, or say since when it is waited there."""
    run = members.lives(draft, snapshot)
    if run is not None and policy.gang:
        meet(draft, run, policy, list(draft.of(Worker)))


def meet(draft: Draft, run: Run, policy: Policy, workers: Sequence[Worker]) -> None:
    """The same for any gang, that of a replica included.

    Args:
        workers: all of the run's, by group and rank.
    """
    waiting = [w for w in workers if w.state is WorkerState.READY_TO_START and not w.go]
    needed = policy.needed(workers)
    ends = run.cancel is not None or run.restarting is not None
    if ends or all(w.state in ARRIVED for w in needed):
        draft.set(run, barrier_since=None)
        for worker in () if ends else waiting:
            draft.set(worker, go=True)
            draft.because(worker, reason("gang.barrier_open"))
        return
    for worker in waiting:
        if worker.barrier_at is None:
            draft.set(worker, barrier_at=draft.now)
    mine = {w.uid for w in needed}
    since = [draft.row(w).barrier_at or draft.now for w in waiting if w.uid in mine]
    draft.set(run, barrier_since=min(since, default=None))
    if since:
        draft.look_again(min(since) + policy.barrier_timeout_s)

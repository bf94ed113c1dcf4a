"""A replica of several workers (`replicas.workers`): a gang that starts together, answers at its leader, ends whole.

Which of its workers speaks for a replica is decided here and nowhere else (`fronting`): the leader while all run, else
the one that keeps the others from serving. So every other stage treats a replica as having one worker. Also the two
things that only a gang does: it meets at a barrier before any of it starts, and when one member stops or ends, all the
others are stopped. It is never started again: the deployment replaces it as a whole, on the same ordinal. Called by
`replicas`, by the start of a replica, and by the routing publisher.
"""

from collections.abc import Iterable, Sequence

from moorage.decide.decision import Draft
from moorage.decide.running import members
from moorage.decide.running.barrier import meet
from moorage.decide.running.policy import Policy
from moorage.domain.nouns import Replica, Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import ENDED_WORKER, TERMINAL_REPLICA, TERMINAL_RUN, StopCause, WorkerState

GROUP = "server"
"""Name of the only group of a replica's run."""

LEADER = f"{GROUP}-0"

_STAGES = (
    WorkerState.STOPPING,
    WorkerState.PENDING,
    WorkerState.PREPARING,
    WorkerState.PULLING,
    WorkerState.READY_TO_START,
    WorkerState.STARTING,
    WorkerState.STALE,
    WorkerState.RUNNING,
)
"""From what is furthest from serving to what serves; what ended is further yet."""

_CAUSES = (WorkerState.FAILED, WorkerState.COMPLETED, WorkerState.DOWN, WorkerState.CANCELLED)
"""Of members that ended: which one is more likely to have taken the others along."""


def is_gang(workers: Sequence[Worker]) -> bool:
    """Whether a replica has several workers."""
    return len(workers) > 1


def leader_of(workers: Sequence[Worker]) -> Worker:
    """The member whose server answers for the replica."""
    return min(workers, key=lambda w: (w.rank, w.uid))


def fronting(workers: Sequence[Worker]) -> Worker:
    """The worker by which a replica is judged: its least advanced member, and the leader where all run.

    Of members that ended, the one that ended first, and for its own sake.

    Args:
        workers: of one run; at least one.
    """
    ended = [w for w in workers if w.state in ENDED_WORKER]
    if ended:
        return min(ended, key=_blame)
    return min(workers, key=lambda w: (_STAGES.index(w.state), w.rank, w.uid))


def _blame(worker: Worker) -> tuple[bool, int, float, int, str]:
    taken_along = members.cause_of(worker) is StopCause.GANG_RESTART
    return taken_along, _CAUSES.index(worker.state), worker.ended_at or worker.updated_at, worker.rank, worker.uid


def fronts(workers: Iterable[Worker]) -> dict[str, Worker]:
    """By run, the worker by which its replica is judged.

    Args:
        workers: all workers of these runs.
    """
    by_run: dict[str, list[Worker]] = {}
    for worker in workers:
        by_run.setdefault(worker.run, []).append(worker)
    return {run: fronting(group) for run, group in by_run.items()}


def gather(draft: Draft, run: Run, replica: Replica, workers: Sequence[Worker]) -> None:
    """Before it runs: its barrier. At any time: one member that stops takes the others along."""
    if not is_gang(workers) or run.state in TERMINAL_RUN or run.cancel is not None or replica.stopping is not None:
        return
    policy = Policy.of(run)
    going = next((w for w in workers if w.state in (WorkerState.STOPPING, WorkerState.CANCELLED)), None)
    if going is not None:
        _take_along(draft, policy, workers, _why(going))
        return
    meet(draft, run, policy, workers)
    late = [w for w in workers if _waited_too_long(draft.row(w), policy, draft.now)]
    if late:
        for worker in workers:
            members.stop(draft, policy, worker, StopCause.BARRIER_TIMEOUT, reason("stop.barrier_timeout"))


def _waited_too_long(worker: Worker, policy: Policy, now: float) -> bool:
    if worker.state is not WorkerState.READY_TO_START or worker.go or worker.barrier_at is None:
        return False
    return now >= worker.barrier_at + policy.barrier_timeout_s


def disband(draft: Draft, run: Run, replica: Replica, workers: Sequence[Worker]) -> None:
    """What is left of a replica that ended is stopped, by the same change that ends it."""
    if is_gang(workers) and draft.row(replica).status in TERMINAL_REPLICA:
        _take_along(draft, Policy.of(run), workers, _why(fronting(workers)))


def _take_along(draft: Draft, policy: Policy, workers: Sequence[Worker], why: Reason) -> None:
    for worker in workers:
        members.stop(draft, policy, worker, StopCause.GANG_RESTART, why)


def _why(worker: Worker) -> Reason:
    return reason("gang.ended", worker=worker.name)

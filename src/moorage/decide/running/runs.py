"""A run's state, derived from its workers (the lifecycle contract §3, first match wins).

Covers whole runs and replicas' runs with independent workers; gangs, arrays, `complete_with` and dependencies join
this function when their issue builds them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import ENDED_WORKER, TERMINAL_RUN, RunState, WorkerState

RUNNING = frozenset({WorkerState.RUNNING, WorkerState.STALE})


@dataclass(frozen=True, slots=True)
class Derived:
    """The state that the workers imply, the table's trigger word and the reason."""

    state: RunState
    trigger: str
    reason: Reason


def derive(run: Run, workers: Sequence[Worker]) -> Derived | None:
    """What the run's state should be; None when it stays as it is, reason included.

    Args:
        workers: all of the run's workers, any order.
    """
    if run.state in TERMINAL_RUN or not workers:
        return None
    return _match(run, sorted(workers, key=lambda w: (w.group, w.rank)))


def _match(run: Run, workers: list[Worker]) -> Derived:
    total = len(workers)
    failed = [w for w in workers if _failed_for_good(run, w)]
    if failed:
        return Derived(RunState.FAILED, "failed", _failed_reason(failed, total))
    if all(w.state is WorkerState.COMPLETED for w in workers):
        return Derived(RunState.COMPLETED, "completed", reason("run.completed"))
    if all(w.state in ENDED_WORKER for w in workers) and any(w.state is WorkerState.CANCELLED for w in workers):
        return Derived(RunState.CANCELLED, "cancelled", reason("run.cancelled"))
    running = sum(w.state in RUNNING for w in workers)
    if running:
        code = "run.serving" if run.replica else "run.running"
        return Derived(RunState.RUNNING, "workers_running", reason(code, ready=running, total=total))
    waiting = next(w for w in workers if w.state is WorkerState.DOWN or w.state not in ENDED_WORKER)
    return Derived(RunState.PENDING, "workers_waiting", _waiting_reason(waiting, total))


def _waiting_reason(worker: Worker, total: int) -> Reason:
    """That of the worker; of one that is being stopped, that this is what goes on."""
    if worker.state is WorkerState.STOPPING and (worker.reason is None or worker.reason.code != "stop.unkillable"):
        why = worker.reason.message if worker.reason else None
        return reason("run.stopping", worker=worker.name, why=why)
    return worker.reason or reason("run.workers_waiting", total=total)


def _failed_for_good(run: Run, worker: Worker) -> bool:
    """Nothing restarts a replica's worker; its deployment replaces the replica."""
    return worker.state is WorkerState.FAILED or (worker.state is WorkerState.DOWN and run.cancel is not None)


def _failed_reason(failed: list[Worker], total: int) -> Reason:
    first = failed[0]
    why = first.reason.message if first.reason else str(first.state)
    if len(failed) > 1:
        return reason("run.workers_failed", k=len(failed), n=total, first=f"{first.name}: {why}")
    lost = first.state is WorkerState.DOWN
    code = "run.worker_lost" if lost else "run.worker_failed"
    return reason(code, worker=first.name, machine=first.machine_name or "no machine", reason=why)

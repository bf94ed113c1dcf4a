"""What becomes of a worker whose machine is drained or removed, in words: by its run's policy and where it may run.

Pure, and decides nothing: it tells ahead what `restarts`, `gangs` and the scheduler will do. Called by `fleet`.
"""

from moorage.decide.running.policy import Policy
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import ACTIVE_WORKER, WorkerState


def fate(worker: Worker, run: Run | None, machine: Machine, *, removed: bool) -> str:
    """What happens to it.

    Args:
        worker: on that machine.
        run: that it is of, where that is known.
        machine: which is drained or removed.
        removed: it is removed; else it is drained.
    """
    if worker.state is WorkerState.STOPPING:
        return "is being stopped already"
    waits = f"waits: it may run on {machine.name} only" if _pinned(run, machine) else None
    if not removed:
        if worker.deployment:
            return (
                f"is kept until the time is over, then stopped, and {waits}" if waits else "is replaced, then stopped"
            )
        return f"is stopped, and {waits}" if waits else "is stopped and queued again"
    if worker.state not in ACTIVE_WORKER:
        return waits or "waits again"
    if worker.deployment:
        return (
            f"is lost there, and its deployment {waits}"
            if waits
            else "is lost there, and its deployment starts another"
        )
    if run is not None and _for_good(worker, Policy.of(run)):
        return f"is lost, and {_without(worker, Policy.of(run))}"
    return f"is lost there, and {waits}" if waits else "is lost there, and started elsewhere by its policy"


def _pinned(run: Run | None, machine: Machine) -> bool:
    """Whether no other machine is named among those that it may run on."""
    named = ((run.spec.get("placement") or {}).get("machines") or ()) if run is not None else ()
    return bool(named) and set(named) == {machine.name}


def _for_good(worker: Worker, policy: Policy) -> bool:
    """Whether its policy starts it no more."""
    return policy.restart_policy(worker) == "Never" or worker.restarts >= policy.budget


def _without(worker: Worker, policy: Policy) -> str:
    """What a run does that loses this worker for good."""
    if policy.min_available is not None:
        return f"is not started again; its run fails with fewer than {policy.min_available} workers"
    if policy.array and not policy.array_fails_first:
        return "its run fails once the other elements have ended"
    return "its run fails"

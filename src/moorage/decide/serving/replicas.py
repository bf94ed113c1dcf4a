"""Stage 1 of the serving decision: each replica's run follows its worker, and each replica follows its run.

A replica never goes back: withdrawal from routing is the flag `routed` with its reason. Its run restarts nothing; a
failed replica is replaced by the deployment (stage `scale`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.running.members import RUNNING
from moorage.decide.running.runs import derive, only_goes_on
from moorage.decide.serving import gang
from moorage.decide.serving.gang import fronting, leader_of
from moorage.decide.serving.phase import is_ready
from moorage.decide.serving.rollout.record import takes_requests
from moorage.decide.serving.rollout.roles import counters_of
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.failures import FailReason, replica_failure
from moorage.domain.nouns import Deployment, Replica, Run, Worker
from moorage.domain.reasons import Reason, ReasonClass, reason
from moorage.domain.states import TERMINAL_REPLICA, TERMINAL_RUN, DeploymentStatus, ReplicaStatus, RunState, WorkerState

RETURN_WINDOW_S = 60.0
"""How long a lost worker may come back before its replica is given up (the lifecycle contract §2)."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One replica that failed in this decision; stage `failures` counts it."""

    replica: Replica
    fail_reason: FailReason
    fatal: bool
    reason: Reason
    ran_s: float | None
    exit_code: int | None
    log: str


def follow(draft: Draft, snapshot: ServingSnapshot) -> list[Failure]:
    """Bring runs and replicas up to their workers; returns the replicas that failed now."""
    failures: list[Failure] = []
    for replica in snapshot.replicas:
        run = snapshot.runs.get(replica.run)
        if run is None:
            continue
        workers = snapshot.workers.get(run.uid, ())
        gang.gather(draft, run, replica, workers)
        workers = tuple(draft.row(w) for w in workers)
        run = _follow_run(draft, run, workers)
        failure = _follow_replica(draft, snapshot, replica, run, workers)
        gang.disband(draft, run, replica, tuple(draft.row(w) for w in workers))
        if failure is not None:
            failures.append(failure)
    return failures


def _follow_run(draft: Draft, run: Run, workers: Sequence[Worker]) -> Run:
    found = derive(run, workers)
    if found is None:
        return run
    if found.state is run.state:
        return run if only_goes_on(run, found.reason) else draft.because(run, found.reason)
    fields: dict[str, Any] = {}
    if found.state is RunState.RUNNING and run.started_at is None:
        fields["started_at"] = draft.now
    if found.state in TERMINAL_RUN:
        fields |= {"ended_at": draft.now, "exit_code": fronting(workers).exit_code}
    return draft.step(run, found.state, found.trigger, found.reason, **fields)


def _follow_replica(
    draft: Draft, snapshot: ServingSnapshot, replica: Replica, run: Run, workers: Sequence[Worker]
) -> Failure | None:
    if not workers:
        return None
    worker = fronting(workers)
    if run.state in TERMINAL_RUN:
        return _ended(draft, snapshot.deployment, replica, run, worker)
    if worker.state is WorkerState.DOWN:
        return _lost(draft, snapshot, replica, worker)
    _forward(draft, replica, worker, leader_of(workers).machine)
    _route(draft, snapshot.deployment, replica, worker)
    if draft.row(replica).status is replica.status and replica.stopping is None:
        _say_why_not_ready(draft, replica, worker)
    return None


def _forward(draft: Draft, replica: Replica, worker: Worker, machine: str | None) -> None:
    """Towards running, one edge at most; the machine is the leader's."""
    wanted = _status(worker)
    if wanted is None or wanted is replica.status or replica.status is ReplicaStatus.RUNNING:
        return
    if wanted is ReplicaStatus.PULLING and replica.status is ReplicaStatus.PENDING:
        draft.step(replica, wanted, "pulling", reason("replica.pulling"), machine=machine)
    elif wanted is ReplicaStatus.INITING:
        why = _not_ready(worker) or reason("replica.starting")
        draft.step(replica, wanted, "initing", why, machine=machine)
    elif wanted is ReplicaStatus.RUNNING:
        draft.step(
            replica,
            wanted,
            "ready",
            reason("replica.ready"),
            machine=machine,
            address=worker.address,
            ready_at=draft.now,
        )


def _not_ready(worker: Worker) -> Reason | None:
    """What keeps a server that runs from being ready, as its machine last saw it."""
    why = worker.reason
    if worker.state not in RUNNING or why is None or why.klass is ReasonClass.PROGRESS:
        return None
    return reason("replica.not_ready", why=why.message)


def _say_why_not_ready(draft: Draft, replica: Replica, worker: Worker) -> None:
    """A replica that waits says for what, as its worker does: written when what it waits for changes."""
    current, why = draft.row(replica), worker.reason
    if current.status is ReplicaStatus.PENDING:
        queues = worker.state is WorkerState.PENDING and worker.machine is None
        if queues and why is not None and why.klass in (ReasonClass.WAITING, ReasonClass.IMPOSSIBLE):
            draft.because(replica, reason("replica.queued", why=why.message))
        elif not queues and current.reason is not None and current.reason.code == "replica.queued":
            draft.because(replica, reason("replica.created"))
    elif current.status is ReplicaStatus.INITING:
        draft.because(replica, _not_ready(worker) or reason("replica.starting"))
    elif current.status is ReplicaStatus.RUNNING and not current.routed and not is_ready(current):
        _withdraw(draft, replica, _withdrawal(worker))


def _status(worker: Worker) -> ReplicaStatus | None:
    if worker.state is WorkerState.RUNNING:
        return ReplicaStatus.RUNNING if worker.ready else ReplicaStatus.INITING
    return {
        WorkerState.PULLING: ReplicaStatus.PULLING,
        WorkerState.READY_TO_START: ReplicaStatus.INITING,
        WorkerState.STARTING: ReplicaStatus.INITING,
    }.get(worker.state)


def routable(replica: Replica, worker: Worker) -> bool:
    """Whether requests may go there now. The routing publisher asks the same of rows as they are."""
    return (
        replica.status is ReplicaStatus.RUNNING
        and replica.stopping is None
        and worker.state is WorkerState.RUNNING
        and worker.ready
        and worker.address is not None
    )


def _route(draft: Draft, deployment: Deployment, replica: Replica, worker: Worker) -> None:
    current = draft.row(replica)
    if routable(current, worker):
        if not takes_requests(deployment, replica.revision):
            _keep_back(draft, replica)
        elif not current.routed:
            draft.set(replica, routed=True, routed_why=None, address=worker.address)
            draft.note(replica, reason("replica.routed"))
            if current.status is replica.status:  # it was ready before: what is said of it is true again
                draft.because(replica, reason("replica.ready"))
        return
    if current.routed or is_ready(current):
        _withdraw(draft, replica, _withdrawal(worker))


def _keep_back(draft: Draft, replica: Replica) -> None:
    """Ready, and its revision gets no requests of clients (yet)."""
    why = reason("replica.candidate")
    if draft.row(replica).routed_why != why.to_wire():
        draft.set(replica, routed=False, routed_why=why.to_wire())
        if draft.row(replica).status is replica.status:  # it was ready before: what is said of it is true again
            draft.because(replica, reason("replica.ready"))


def _withdrawal(worker: Worker) -> Reason:
    if worker.reason is not None:
        return reason("replica.withdrawn", why=worker.reason.message)
    return reason("replica.withdrawn", why=f"its worker is {worker.state}")


def _withdraw(draft: Draft, replica: Replica, why: Reason) -> None:
    """Out of routing, and as long as it is, its own reason says why."""
    draft.set(replica, routed=False, routed_why=why.to_wire())
    draft.because(replica, why)


def _lost(draft: Draft, snapshot: ServingSnapshot, replica: Replica, worker: Worker) -> Failure | None:
    """Withdrawn at once; given up when the return window is over or a replacement is ready, whichever is first."""
    removed = worker.reason is not None and worker.reason.code == "machine.removed"
    until = (worker.ended_at or worker.updated_at) + (0.0 if removed else RETURN_WINDOW_S)
    replaced = any(
        r.uid != replica.uid and (r.revision, r.ordinal) == (replica.revision, replica.ordinal) and is_ready(r)
        for r in snapshot.replicas
    )
    if draft.now < until and not replaced and replica.stopping is None:
        draft.look_again(until)
        if replica.status is ReplicaStatus.RUNNING:
            _withdraw(draft, replica, _withdrawal(worker))
        return None
    if draft.row(snapshot.runs[replica.run]).cancel is None:
        draft.set(snapshot.runs[replica.run], cancel={"cause": "run_ended", "text": None, "at": draft.now})
    if replica.stopping is not None:
        draft.step(worker, WorkerState.CANCELLED, "cancelled", reason("stop.machine_lost"), ended_at=draft.now)
    run = draft.row(snapshot.runs[replica.run])
    found = derive(run, [draft.row(w) for w in snapshot.workers[run.uid]])
    if found is not None and found.state is not run.state:
        run = draft.step(run, found.state, found.trigger, found.reason, ended_at=draft.now)
    if run.state not in TERMINAL_RUN:
        return None  # other members of its gang are still being stopped
    return _ended(draft, snapshot.deployment, replica, run, draft.row(worker))


def _ended(draft: Draft, deployment: Deployment, replica: Replica, run: Run, worker: Worker) -> Failure | None:
    if replica.status in TERMINAL_REPLICA:
        return None
    if draft.row(replica).routed:
        why = _withdrawal(worker)
        draft.set(replica, routed=False, routed_why=why.to_wire())
        draft.note(replica, why)
    if replica.stopping is not None:
        code, params = replica.stopping["code"], replica.stopping.get("params") or {}
        draft.step(replica, ReplicaStatus.STOPPED, "stopped", reason(code, **params), ended_at=draft.now)
        return None
    if deployment.status is not DeploymentStatus.CREATED or deployment.deleting:
        # It was decided that nothing of it is wanted: how this one ended is no failure of anything.
        code = "replica.stopped" if deployment.status is DeploymentStatus.STOPPED else "replica.scaled_down"
        draft.step(replica, ReplicaStatus.STOPPED, "stopped", reason(code), ended_at=draft.now)
        return None
    if run.state is RunState.CANCELLED:
        draft.step(replica, ReplicaStatus.STOPPED, "stopped", _stopped_by(worker), ended_at=draft.now)
        return None
    return _failed(draft, deployment, replica, worker)


def _stopped_by(worker: Worker) -> Reason:
    cause = dict(worker.stop or {}).get("cause")
    machine = worker.machine_name or "its machine"
    if cause == "preemption":
        return reason("replica.preempted", run="work of higher priority")
    if cause == "barrier_timeout":
        return reason("replica.barrier_timeout")
    if cause == "machine_drain" or cause is None:
        return reason("replica.machine_drained", machine=machine)
    return reason("replica.stopped")


def _not_ready_before(draft: Draft, deployment: Deployment, replica: Replica) -> bool:
    counters = counters_of(draft, deployment, replica.revision)
    return counters is not None and replica.ordinal in counters.not_ready


def _failed(draft: Draft, deployment: Deployment, replica: Replica, worker: Worker) -> Failure:
    why = worker.reason or reason("exit.unknown")
    ready_at = replica.ready_at or leader_of([w for w in draft.of(Worker) if w.run == replica.run]).first_ready_at
    fail_reason, fatal = replica_failure(
        why.code,
        why.params,
        was_ready=ready_at is not None,
        status=replica.status,
        not_ready_before=_not_ready_before(draft, deployment, replica),
    )
    last = dict(worker.last_failure or {})
    failure = {
        "replica": replica.uid,
        "name": replica.name,
        "ordinal": replica.ordinal,
        "fail_reason": str(fail_reason),
        "reason": why.to_wire(),
        "exit_code": worker.exit_code,
        "log": last.get("log", ""),
        "fatal": fatal,
        "at": draft.now,
    }
    failed = draft.step(
        replica,
        ReplicaStatus.FAILED,
        "failed",
        reason("replica.failed", reason=why.message),
        fail_reason=str(fail_reason),
        fatal=fatal,
        last_failure=failure,
        ended_at=draft.now,
    )
    ended_at = worker.ended_at or draft.now
    ran_s = ended_at - ready_at if ready_at is not None else None
    return Failure(failed, fail_reason, fatal, why, ran_s, worker.exit_code, str(last.get("log", "")))

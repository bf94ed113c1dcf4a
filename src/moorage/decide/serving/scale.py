"""Stage 5: how many replicas there should be, which are started, which are stopped, and stopping them gently.

Counts those that are starting, so it never over-spawns. A replica that is asked to stop is first withdrawn from
routing, then drained until every gateway confirmed and nothing of it is in flight (or its drain limit passed), and
only then signalled; its capacity is free when its machine saw it gone.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from moorage.decide.decision import Draft, Ids
from moorage.decide.serving.phase import is_ready
from moorage.decide.serving.rollout.closing import ENDED
from moorage.decide.serving.rollout.record import terms_of
from moorage.decide.serving.rollout.roles import counters_of, live_replicas, revision_row
from moorage.decide.serving.rollout.sizes import wanted_sizes
from moorage.decide.serving.snapshot import Demand, ServingSnapshot
from moorage.decide.serving.starting import place_key, start
from moorage.domain import limits
from moorage.domain.nouns import Deployment, Machine, Replica, Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import (
    ACTIVE_WORKER,
    TERMINAL_REPLICA,
    DeploymentStatus,
    ReplicaStatus,
    RevisionState,
    StopCause,
    WorkerState,
)


def converge(draft: Draft, snapshot: ServingSnapshot, ids: Ids) -> None:
    """Start what is missing, ask what is too many to stop, and carry stops on: of each revision for itself."""
    deployment = draft.row(snapshot.deployment)
    sizes = wanted_sizes(draft, deployment)
    for uid in (*sizes, *sorted({r.revision for r in draft.of(Replica)} - sizes.keys())):
        _converge_one(draft, snapshot, ids, uid, sizes)
    for replica in list(draft.of(Replica)):
        if replica.stopping is not None and replica.status not in TERMINAL_REPLICA:
            _carry_stop_on(draft, snapshot, replica)


def _converge_one(draft: Draft, snapshot: ServingSnapshot, ids: Ids, uid: str, sizes: Mapping[str, int]) -> None:
    deployment, wanted = draft.row(snapshot.deployment), sizes.get(uid, 0)
    lost = _lost(snapshot)
    alive = [r for r in live_replicas(draft, uid) if r.stopping is None]
    leaving = {r.uid: m for r in alive if r.uid not in lost and (m := _drained_machine(snapshot, r)) is not None}
    counted = [r for r in alive if r.uid not in lost and r.uid not in leaving]
    counters = counters_of(draft, deployment, uid)
    if wanted == 0 and uid not in sizes:
        for replica in alive:
            _ask_to_stop(draft, deployment, replica)
        return
    if len(counted) > wanted:
        keep_place = uid in sizes and len(sizes) > 1 and terms_of(deployment).replace
        _stop_excess(draft, deployment, counted, len(counted) - wanted, keep_place=keep_place)
    elif len(counted) < wanted:
        _start_missing(draft, deployment, uid, _Missing(counted, wanted), ids)
    elif counters is not None:
        draft.set(counters, retry_at=None)
    _empty_machines(draft, deployment, uid, leaving, wanted)


def _lost(snapshot: ServingSnapshot) -> frozenset[str]:
    """Replicas whose worker is Down: not counted, so that their replacement is queued while they may still return."""
    return frozenset(
        r.uid for r in snapshot.replicas if any(w.state is WorkerState.DOWN for w in snapshot.workers.get(r.run, ()))
    )


def _drained_machine(snapshot: ServingSnapshot, replica: Replica) -> Machine | None:
    """The machine that this replica has to leave, or None."""
    workers = snapshot.workers.get(replica.run, ())
    return next((m for w in workers if (m := snapshot.machines.get(w.machine or "")) is not None), None)


def _empty_machines(
    draft: Draft, deployment: Deployment, uid: str, leaving: Mapping[str, Machine], wanted: int
) -> None:
    """Replicas on drained machines go once their replacement serves, or the time of the drain is over.

    They are not counted, so their replacements are queued already, on the same ordinal. One that serves nothing is not
    waited with. Where no other machine has room, the replacement is placed when this one is gone and uncordoned, or
    when room comes; until the time is over the old one goes on serving.
    """
    live = [r for r in live_replicas(draft, uid) if r.stopping is None]
    serving = [r for r in live if is_ready(r) and r.uid not in leaving]
    for replica in live:
        machine = leaving.get(replica.uid)
        if machine is None:
            continue
        until = float(dict(machine.draining or {}).get("until", draft.now))
        replaced = len(serving) >= wanted or any(r.ordinal == replica.ordinal for r in serving)
        if is_ready(replica) and not replaced and draft.now < until:
            draft.look_again(until)
            continue
        _withdraw_to_stop(draft, deployment, replica, reason("replica.machine_drained", machine=machine.name))


def _stop_excess(draft: Draft, deployment: Deployment, counted: list[Replica], many: int, *, keep_place: bool) -> None:
    """Those that serve nothing first, of these one whose ordinal has another, then the newest."""
    ordinals = Counter(r.ordinal for r in counted)
    order = sorted(counted, key=lambda r: (is_ready(r), ordinals[r.ordinal] == 1, -r.created_at, r.uid))
    for replica in order[:many]:
        _ask_to_stop(draft, deployment, replica, keep_place=keep_place)


def _ask_to_stop(draft: Draft, deployment: Deployment, replica: Replica, *, keep_place: bool = False) -> None:
    final, why = _final(draft, deployment, replica)
    _withdraw_to_stop(draft, deployment, replica, final, why=why)
    if deployment.status is DeploymentStatus.CREATED and not keep_place:
        _forget_place(draft, deployment, replica)


def _final(draft: Draft, deployment: Deployment, replica: Replica) -> tuple[Reason, str]:
    """What becomes a replica's last reason, and why it is withdrawn."""
    if deployment.status is DeploymentStatus.STOPPED:
        return reason("replica.stopped"), _why_stopped(deployment)
    revision = revision_row(draft, replica.revision)
    active = revision_row(draft, deployment.active_revision)
    if revision is not None and revision.state is RevisionState.DRAINING and active is not None:
        return reason("replica.replaced", by=active.name), f"{active.name} was promoted"
    if revision is not None and revision.state in ENDED:
        return reason("replica.revision_over", state=str(revision.state)), f"its revision was {revision.state}"
    return reason("replica.scaled_down"), _why_stopped(deployment)


def _withdraw_to_stop(
    draft: Draft, deployment: Deployment, replica: Replica, final: Reason, why: str | None = None
) -> None:
    """Out of routing, then drained, then stopped; `final` becomes its reason."""
    drain_s = float(dict(deployment.spec).get("gateway", {}).get("drain", 60.0))
    until = draft.now + drain_s
    stopping = {"code": final.code, "params": dict(final.params), "since": draft.now, "drain_until": until}
    answered = is_ready(replica)
    draft.set(replica, stopping=stopping)
    if replica.routed or answered:
        withdrawn = reason("replica.withdrawn", why=why or final.message)
        draft.set(replica, routed=False, routed_why=withdrawn.to_wire())
        draft.because(replica, withdrawn)


def _forget_place(draft: Draft, deployment: Deployment, replica: Replica) -> None:
    """An ordinal that is not wanted any more queues anew when it is wanted again."""
    revision = revision_row(draft, replica.revision)
    others = any(r.ordinal == replica.ordinal and r.stopping is None for r in live_replicas(draft, replica.revision))
    if not others and revision is not None:
        place = place_key(draft.row(deployment), revision, replica.ordinal)
        kept = {k: v for k, v in draft.row(deployment).queued.items() if k != place}
        draft.set(deployment, queued=kept)


def _why_stopped(deployment: Deployment) -> str:
    if deployment.deleting:
        return "its deployment is being deleted"
    return {
        DeploymentStatus.STOPPED: "its deployment was stopped",
        DeploymentStatus.PAUSED: "its deployment sleeps",
        DeploymentStatus.FAILED: "its deployment failed",
    }.get(deployment.status, "scaled down")


@dataclass(frozen=True, slots=True)
class _Missing:
    """Replicas that count, and how many there should be."""

    counted: list[Replica]
    wanted: int


def _start_missing(draft: Draft, deployment: Deployment, uid: str, missing: _Missing, ids: Ids) -> None:
    counted, wanted = missing.counted, missing.wanted
    counters, revision = counters_of(draft, deployment, uid), revision_row(draft, uid)
    if counters is None or revision is None:
        return
    if counters.retry_at is not None and counters.retry_at > draft.now:
        draft.look_again(counters.retry_at)
        return
    if counters.fatal_since_ran and not counters.initial_scale_reached and counted:
        return  # what still starts decides: it runs, and the missing ones follow; or it fails, and all of it fails
    if revision.state is RevisionState.CANDIDATE:
        draft.step(revision, RevisionState.PROVISIONING, "provision", reason("revision.provisioning"))
    taken = {r.ordinal for r in counted}
    free = (n for n in range(wanted + len(taken)) if n not in taken)
    for _ in range(min(wanted - len(counted), limits.AT_ONCE)):  # these rows wake the decision that goes on
        start(draft, draft.row(deployment), draft.row(revision), next(free), ids)
    draft.set(counters, retry_at=None)


def _carry_stop_on(draft: Draft, snapshot: ServingSnapshot, replica: Replica) -> None:
    run = snapshot.runs.get(replica.run)
    if run is None or draft.row(run).cancel is not None:
        return
    until = float(dict(replica.stopping or {}).get("drain_until", draft.now))
    if not drained(replica, snapshot.demand) and draft.now < until:
        draft.look_again(until)
        return
    workers = snapshot.workers.get(run.uid, ())
    if dict(replica.stopping or {}).get("code") == "replica.machine_drained":
        stop_run(draft, run, workers, StopCause.MACHINE_DRAIN, "its machine is drained")
        return
    cause = StopCause.USER if draft.row(snapshot.deployment).status is DeploymentStatus.STOPPED else StopCause.DEFAULT
    stop_run(draft, run, workers, cause, _why_stopped(draft.row(snapshot.deployment)))


def drained(replica: Replica, demand: Demand) -> bool:
    """Nothing can reach it any more and nothing of it is in flight. One that never was ready has nothing to drain."""
    if replica.status is not ReplicaStatus.RUNNING:
        return True
    return demand.drained(replica.uid)


def stop_run(draft: Draft, run: Run, workers: tuple[Worker, ...], cause: StopCause, text: str) -> None:
    """Ask every worker of the run to end; what was not handed over is Cancelled at once."""
    draft.set(run, cancel={"cause": str(cause), "text": text, "at": draft.now})
    for worker in workers:
        current = draft.row(worker)
        why = _why_stop(cause, text, current)
        stop = {"cause": str(cause), "text": text, "since": draft.now}
        if (current.state is WorkerState.PENDING and not current.handed_over) or current.state is WorkerState.DOWN:
            draft.step(worker, WorkerState.CANCELLED, "cancelled", why, stop=stop, ended_at=draft.now)
        elif current.state is WorkerState.PENDING or current.state in ACTIVE_WORKER:
            draft.step(worker, WorkerState.STOPPING, "stop_requested", why, stop=stop, ready=False)


def _why_stop(cause: StopCause, text: str, worker: Worker) -> Reason:
    if cause is StopCause.USER:
        return reason("stop.user", text=text)
    if cause is StopCause.MACHINE_DRAIN:
        return reason("stop.drain", machine=worker.machine_name or "its machine")
    return reason("stop.default")

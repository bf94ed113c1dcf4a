"""Deployments, revisions and replicas as the API shows them.

Pure: rows in, JSON values out. What a deployment is *doing* comes from `decide.serving.phase` and from nowhere else.
Called by `control.reading`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from moorage.control.gateways import Aside
from moorage.control.views import JsonObject, document, head, iso, plain
from moorage.control.views_rollout import Scene, is_shown, rollout_object
from moorage.decide.serving.phase import (
    OPEN_OPERATION,
    deployment_counts,
    deployment_phase,
    promotion_in_progress,
)
from moorage.decide.serving.snapshot import Demand
from moorage.domain.nouns import Deployment, Endpoint, Machine, Noun, Operation, Replica, Revision, Worker
from moorage.domain.states import MachineState, WorkerState

CRASH_LOOP_FAILURES = 2
"""Two restarts without a reset show `crash_looping` (the lifecycle contract §2)."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Rows that belong to one deployment.

    Args:
        revisions: all of it.
        replicas: live ones at least.
        operations: those that target it.
        demand: its traffic, where this control plane hears it.
        endpoints: those that people made and that name it, each with the weight that it gives it.
    """

    revisions: Sequence[Revision] = ()
    replicas: Sequence[Replica] = ()
    operations: Sequence[Operation] = field(default=())
    demand: Demand | None = None
    endpoints: Sequence[tuple[Endpoint, int]] = ()


def deployment_object(row: Deployment, around: Surroundings, gateway_url: str, now: float) -> JsonObject:
    """A Deployment.

    Args:
        row: the row.
        around: the rows it is judged by.
        gateway_url: base address of the gateway, without a slash at its end.
        now: seconds since the epoch.
    """
    blocking = open_operation(row, around.operations)
    counts = deployment_counts(row, around.replicas)
    return {
        **head(row),
        "status": str(row.status),
        "phase": str(deployment_phase(row, around.revisions, around.replicas, blocking, now)),
        "spec": document(row.spec),
        "desired_replicas": counts.desired,
        "current_replicas": counts.current,
        "ready_replicas": counts.ready,
        "starting_replicas": counts.starting,
        "serving": counts.ready > 0,
        "initial_scale_reached": row.initial_scale_reached,
        "promotion_in_progress": promotion_in_progress(row, around.revisions),
        "active_revision": row.active_revision,
        "candidate_revision": row.candidate_revision,
        "operation": _operation(row, blocking, around.operations),
        "url": f"{gateway_url}/v1",
        "model": endpoint_name(row),
        "last_failure": plain(row.last_failure),
        "retry_at": iso(row.retry_at),
        "crash_looping": row.failures_in_row >= CRASH_LOOP_FAILURES,
        "paused_at": iso(row.paused_at),
        "ownership": row.ownership,
        **({"upstream": _upstream(row)} if row.upstream is not None else {}),
        "deleting": row.deleting,
        "rollout": _rollout(row, around, now),
        "endpoints": list(_endpoints(row, around)),
    }


def _endpoints(row: Deployment, around: Surroundings) -> Iterator[JsonObject]:
    """Its own, then those that people made and that name it; `weight` is null of its own."""
    yield {"name": row.name, "namespace": row.namespace, "model": endpoint_name(row), "own": True, "weight": None}
    for bound, weight in around.endpoints:
        shown = {"name": bound.name, "namespace": bound.namespace, "model": endpoint_name(bound)}
        yield {**shown, "own": False, "weight": weight}


def _upstream(row: Deployment) -> JsonObject:
    """Where an adopted server is and what was last seen of it; not the proof by which it would be ended."""
    kept = dict(row.upstream or {})
    return {
        name: plain(kept.get(name)) for name in ("url", "mode", "resource", "healthy", "why", "models") if name in kept
    }


def _rollout(row: Deployment, around: Surroundings, now: float) -> JsonObject | None:
    """Its Rollout while anything moves."""
    scene = Scene(row, around.revisions, around.replicas, around.demand, now)
    return rollout_object(scene) if is_shown(scene) else None


def endpoint_name(row: Noun) -> str:
    """What a request's `model` says to reach it."""
    return row.name if row.namespace == "default" else f"{row.namespace}/{row.name}"


def open_operation(row: Deployment, operations: Sequence[Operation]) -> Operation | None:
    """The operation that is not over; the one the deployment names as blocking before any other."""
    still_open = [o for o in operations if o.target == row.uid and o.state in OPEN_OPERATION]
    named = [o for o in still_open if o.uid == row.operation]
    return next(iter(named or sorted(still_open, key=_age, reverse=True)), None)


def revision_object(row: Revision) -> JsonObject:
    """A Revision."""
    return {
        **head(row),
        "deployment": row.deployment,
        "number": row.number,
        "digest": row.digest,
        "state": str(row.state),
        "spec": document(row.spec),
        "pins": plain(row.pins),
        "decisions": plain(row.decisions),
        "capacity_gone": row.capacity_gone,
    }


def replica_object(
    row: Replica,
    revision: Revision | None,
    workers: Sequence[Worker],
    machines: dict[str, Machine],
    *,
    demand: Demand | None = None,
    aside: Sequence[Aside] = (),
) -> JsonObject:
    """A Replica.

    Args:
        row: the row.
        revision: its revision, where still known.
        workers: the workers of its run.
        machines: machines by uid, those of the workers at least.
        demand: traffic of its deployment, where this control plane hears it.
        aside: what gateways put aside of its deployment's replicas.
    """
    placed = dict.fromkeys(w.machine for w in workers if w.machine) or dict.fromkeys(filter(None, [row.machine]))
    return {
        **head(row),
        "deployment": row.deployment,
        "revision": row.revision,
        "ordinal": row.ordinal,
        "attempt": row.attempt,
        "status": str(row.status),
        "fail_reason": row.fail_reason,
        "fatal": row.fatal,
        "run": row.run,
        "machines": [machines[m].name if m in machines else m for m in placed],
        "address": row.address,
        "routed": row.routed,
        "routed_why": plain(row.routed_why),
        "ready_at": iso(row.ready_at),
        "in_flight": demand.by_replica.get(row.uid, 0) if demand is not None and demand.known else None,
        "put_aside": _put_aside([each for each in aside if each.replica == row.uid], demand),
        "draining": plain(row.stopping),
        "ended_at": iso(row.ended_at),
        "last_failure": plain(row.last_failure),
        "worker_reason": _on_its_way(workers),
        "provider": _provider(row, revision, workers, machines),
    }


def _put_aside(aside: Sequence[Aside], demand: Demand | None) -> JsonObject | None:
    """The gateways that send nothing to it, and how many are heard in all; None: all use it."""
    by = [each.to_wire() for each in aside if not each.in_use]
    heard = 0 if demand is None else len(demand.gateways)
    return {"by": by, "gateways": max(heard, len(by))} if by else None


ON_ITS_WAY = (WorkerState.PREPARING, WorkerState.PULLING, WorkerState.READY_TO_START, WorkerState.STARTING)


def _on_its_way(workers: Sequence[Worker]) -> JsonObject | None:
    """What the least advanced of its workers is doing until all run: above all, how far its model or image is."""
    coming = [w for w in workers if w.state in ON_ITS_WAY and w.reason is not None]
    least = min(coming, key=lambda w: (ON_ITS_WAY.index(w.state), w.rank), default=None)
    return least.reason.to_wire() if least is not None and least.reason is not None else None


def _provider(
    row: Replica, revision: Revision | None, workers: Sequence[Worker], machines: dict[str, Machine]
) -> JsonObject:
    """Identity and what was last observed, in the terms of the contract §11."""
    seen = [w.heartbeat_at for w in workers if w.heartbeat_at is not None]
    known = [machines[w.machine].state for w in workers if w.machine in machines]
    return {
        "name": (revision.spec.get("provider") if revision else None) or "fleet",
        "identity": {
            "deployment": row.deployment,
            "revision": row.revision,
            "ordinal": row.ordinal,
            "attempt": row.attempt,
        },
        "resource_id": next((plain(w.process) for w in workers if w.process), None),
        "digest": revision.digest if revision else None,
        "owner": row.deployment,
        "observed_at": iso(max(seen)) if seen else None,
        # A machine that is Ready has told all that it runs; any other may run more than it could say.
        "inventory_complete": bool(known) and all(s is MachineState.READY for s in known),
    }


def _operation(row: Deployment, blocking: Operation | None, operations: Sequence[Operation]) -> str | None:
    """The blocking operation, else the last one."""
    if blocking:
        return blocking.uid
    own = [o for o in operations if o.target == row.uid]
    return max(own, key=_age).uid if own else row.operation


def _age(row: Operation) -> tuple[float, str]:
    return row.created_at, row.uid

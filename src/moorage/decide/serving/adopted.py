"""Deployments whose server somebody else started: what an adoption makes of them, and all that is decided of them.

Three modes, each including the one before: `observe` watches it, `traffic` also sends requests there, `lifecycle` may
also end it, and so needs to know exactly what it is (the lifecycle contract §11). A delete withdraws and drains every
one of them; only a lifecycle-managed one is ever stopped. There are no replicas, runs or workers behind one: `upstream`
of its row holds where it is and what was last seen of it.
Called by `cycle`, `exposure`, `phase` and `control.upstreams`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.decide.decision import Decision, Draft, Ids, Outcome
from moorage.decide.serving.facts import Facts, Retry, first_steps
from moorage.decide.serving.snapshot import Demand, ServingSnapshot
from moorage.domain.changes import Fence, Remove
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Deployment, Operation, Replica, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import DeploymentStatus, ReplicaStatus, WorkerState

MODES = ("observe", "traffic", "lifecycle")
ACTOR = "controller:serving"


@dataclass(frozen=True, slots=True)
class Found:
    """A checked wish to adopt.

    Args:
        namespace, name: of the deployment that it becomes.
        spec: its document: name, model id, gateway limits.
        upstream: {url, host, port, mode}, of a lifecycle-managed one also {machine, machine_name, resource, proof,
            command}.
    """

    namespace: str
    name: str
    spec: Mapping[str, Any]
    upstream: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Probe:
    """One look at an upstream.

    Args:
        healthy: it answered, and lists the model that it should.
        why: what was wrong.
        models: what it lists.
    """

    healthy: bool
    why: str | None = None
    models: tuple[str, ...] = ()


def adopt(found: Found, known: Deployment | None, ids: Ids, now: float, *, actor: str) -> Outcome:
    """Make the deployment that stands for it; the same again changes nothing.

    Raises:
        Conflict: the name is another deployment's, or the upstream is adopted in another way already.
    """
    if known is not None:
        return _again(found, known)
    draft = Draft((), now, actor)
    common: dict[str, Any] = {"namespace": found.namespace, "labels": dict(found.spec.get("labels") or {})}
    uid, operation_uid = ids.new("Deployment"), ids.new("Operation")
    deployment = Deployment(
        uid=uid,
        name=found.name,
        spec=dict(found.spec),
        ownership=str(found.upstream["mode"]),
        upstream={**found.upstream, "healthy": None, "why": None, "models": []},
        operation=operation_uid,
        **common,
    )
    operation = Operation(
        uid=operation_uid,
        name=f"adopt-{found.name}",
        operation="adopt",
        target=uid,
        actor=actor,
        steps=first_steps("adopt", 1, now),
        namespace=found.namespace,
    )
    draft.create(deployment, reason("deploy.adopted", url=found.upstream["url"], mode=found.upstream["mode"], by=actor))
    draft.create(operation, reason("op.created", operation="adopt"))
    return Outcome(draft.decision().change, {"deployment": uid, "operation": operation_uid, "changed": True})


def _again(found: Found, known: Deployment) -> Outcome:
    name, upstream = f"{known.namespace}/{known.name}", known.upstream
    if upstream is None or known.deleting:
        what = "is being deleted" if known.deleting else "is a deployment of its own"
        raise Conflict(
            f"{name} {what}, so nothing can be adopted under that name",
            code="exists",
            remedy="adopt it under another name (--name)",
            target=f"Deployment {name}",
        )
    asked = ("url", "mode", "resource", "machine")
    if any(upstream.get(field) != found.upstream.get(field) for field in asked):
        raise Conflict(
            f"{name} is adopted already: {upstream['url']}, {upstream['mode']}",
            code="adopted_otherwise",
            remedy=f"delete it first (moor delete {known.name} --yes --wait; that stops nothing that is only observed "
            "or given traffic), then adopt it anew",
            target=f"Deployment {name}",
        )
    return Outcome(None, {"deployment": known.uid, "operation": known.operation, "changed": False})


def refuse_adopted(deployment: Deployment, what: str) -> None:
    """Nothing, unless it stands for a server that we did not start.

    Raises:
        Conflict: it does, and cannot be changed like one of ours.
    """
    if deployment.upstream is not None:
        name = f"{deployment.namespace}/{deployment.name}"
        raise Conflict(
            f"{name} was adopted from {deployment.upstream['url']} and cannot be {what}: somebody else runs it",
            code="adopted",
            remedy=f"change it where it is run, or delete the adoption (moor delete {deployment.name} --yes)",
            target=f"Deployment {name}",
        )


def seen(deployment: Deployment, probe: Probe, now: float, fence: Fence | None = None) -> Decision:
    """What a look at it changes: nothing, as long as the answer is the same."""
    draft = Draft((deployment,), now, ACTOR)
    upstream = dict(deployment.upstream or {})
    told = {"healthy": probe.healthy, "why": probe.why, "models": list(probe.models)}
    if {key: upstream.get(key) for key in told} == told or deployment.status is not DeploymentStatus.CREATED:
        return draft.decision(fence)
    draft.set(deployment, upstream={**upstream, **told})
    if probe.healthy and not deployment.ever_ready:
        draft.set(deployment, ever_ready=True, past_pulling=True, initial_scale_reached=True, first_ready_at=now)
    if probe.healthy:
        asked = dict(deployment.spec.get("model") or {}).get("id")
        listed = {"model": asked} if asked else {}
        draft.because(deployment, reason("deploy.upstream_ready", url=upstream["url"], **listed))
    else:
        draft.because(deployment, reason("deploy.upstream_unready", url=upstream["url"], why=probe.why or "no answer"))
    return draft.decision(fence)


def ended(deployment: Deployment, error: str | None, now: float, fence: Fence | None = None) -> Decision:
    """Its machine's word on the end that was asked for: proven gone, or what stands in the way."""
    draft = Draft((deployment,), now, ACTOR)
    upstream = dict(deployment.upstream or {})
    told = {"gone": error is None, "end_error": error}
    if {key: upstream.get(key) for key in told} != told:
        draft.set(deployment, upstream={**upstream, **told})
        code = "deploy.upstream_gone" if error is None else "deploy.upstream_stays"
        draft.note(deployment, reason(code, url=upstream["url"], **({} if error is None else {"why": error})))
    return draft.decision(fence)


def wants_end(deployment: Deployment, demand: Demand) -> bool:
    """Whether it is to be ended now: it is ours to end, stopped, withdrawn and drained, and not proven gone."""
    upstream = dict(deployment.upstream or {})
    over = deployment.deleting or deployment.status is DeploymentStatus.STOPPED
    return (
        over
        and upstream.get("mode") == "lifecycle"
        and not upstream.get("gone")
        and demand.drained(pseudo_replica(deployment))
    )


def pseudo_replica(deployment: Deployment) -> str:
    """The name under which gateways know it."""
    return f"{deployment.uid}.upstream"


def target(deployment: Deployment) -> tuple[Replica, Worker] | None:
    """What requests may be sent to now, in the shape of every other target; None: nothing."""
    upstream = dict(deployment.upstream or {})
    if upstream.get("mode") == "observe" or not upstream.get("healthy"):
        return None
    replica = Replica(
        uid=pseudo_replica(deployment),
        name=deployment.name,
        namespace=deployment.namespace,
        deployment=deployment.uid,
        status=ReplicaStatus.RUNNING,
        routed=True,
    )
    address = f"{upstream['host']}:{upstream['port']}"
    return replica, Worker(uid="", state=WorkerState.RUNNING, ready=True, address=address)


# Its operations


def adopt_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> Facts:
    """Recorded with the very change that made it, then reached once."""
    del operation
    deployment = draft.row(snapshot.deployment)
    if deployment.deleting or deployment.status is DeploymentStatus.STOPPED:
        return Facts(1, cancelled_by="a stop or delete")
    upstream = dict(deployment.upstream or {})
    if deployment.ever_ready:
        return Facts(2)
    return Facts(1, waiting=f"{upstream.get('url')} to answer: {upstream.get('why') or 'not asked yet'}")


def stop_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> Facts:
    """Withdrawn, drained, and ended where it is ours to end."""
    del operation
    deployment, demand = draft.row(snapshot.deployment), snapshot.demand
    if demand.published_targets or not demand.confirmed:
        return Facts(0, waiting="gateways to take the new routes")
    if not demand.drained(pseudo_replica(deployment)):
        return Facts(1, waiting="requests in flight to end")
    upstream = dict(deployment.upstream or {})
    if upstream.get("mode") == "lifecycle" and not upstream.get("gone"):
        error = upstream.get("end_error")
        if error:
            return Facts(2, retry=Retry(f"{upstream.get('resource')}: {error}"))
        return Facts(2, waiting=f"{upstream.get('resource')} to be gone")
    return Facts(3)


def delete_facts(draft: Draft, snapshot: ServingSnapshot, operation: Operation) -> Facts:
    """As a stop, then a tombstone."""
    facts = stop_facts(draft, snapshot, operation)
    if facts.done < 3:
        return facts
    deployment = draft.row(snapshot.deployment)
    left = deployment.ownership if deployment.ownership == "external" else None
    why = reason("deploy.deleted", by=operation.actor or None, ownership=left)
    draft.write(Remove("Deployment", deployment.uid, snapshot.deployment.version, why))
    return Facts(len(operation.steps))

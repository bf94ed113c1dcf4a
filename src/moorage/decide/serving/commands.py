"""What a person's command makes of a deployment: apply, stop, delete, pause, wake, scale. Pure.

A command writes intent and nothing else; the serving recipe does the rest. Each returns an `Outcome`: the change to
commit (None for a no-op that succeeds) and the answer that is given, and kept under the idempotency key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.decide.decision import Draft, Ids, Outcome
from moorage.decide.serving.adopted import refuse_adopted
from moorage.decide.serving.cancelling import refuse_below, take_over
from moorage.decide.serving.differences import changed_fields
from moorage.decide.serving.facts import first_steps
from moorage.decide.serving.keeping import EXTERNAL, refuse_to_keep
from moorage.decide.serving.pausing import wake as wake_row
from moorage.decide.serving.rollout.closing import cancel_candidate
from moorage.decide.serving.rollout.orders import promote, reject, rollback
from moorage.decide.serving.rollout.proposing import live_document, propose
from moorage.decide.serving.rollout.roles import serving_uid
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Deployment, Operation, Revision
from moorage.domain.reasons import reason
from moorage.domain.states import DeploymentStatus

__all__ = [
    "Intent",
    "Known",
    "apply",
    "changed_fields",
    "delete",
    "operations_by_age",
    "pause",
    "promote",
    "reject",
    "rollback",
    "scale",
    "stop",
    "wake",
]


@dataclass(frozen=True, slots=True)
class Intent:
    """A checked spec.

    Args:
        spec: the normalised document.
        revision: its revision part, with `digest`.
        pins: what of that part may move, as it was looked up; the digest is of both.
    """

    namespace: str
    name: str
    spec: Mapping[str, Any]
    revision: Mapping[str, Any]
    digest: str
    pins: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Known:
    """What is there already."""

    deployment: Deployment
    revisions: tuple[Revision, ...] = ()
    operations: tuple[Operation, ...] = ()
    """open ones, oldest first"""


def apply(intent: Intent, known: Known | None, ids: Ids, now: float, *, actor: str, create_only: bool) -> Outcome:
    """Create the deployment, change its live part, make a candidate of another revision part, or do nothing.

    What is active already, or on its way, makes no new revision. The last word counts: whatever else is on its way
    gives way to it.

    Raises:
        Conflict: it exists and `create_only`; it is being deleted; it failed or was stopped and the revision part
            differs; a rollback, or a person's word on the candidate, is being carried out.
    """
    if known is None:
        return _create(intent, ids, now, actor)
    deployment = known.deployment
    refuse_adopted(deployment, "changed by an apply")
    if create_only:
        raise Conflict(f"deployment {_shown(deployment)} exists already", code="exists", target=_target(deployment))
    if deployment.deleting:
        operation = next((o.uid for o in known.operations if o.operation == "delete"), None)
        raise Conflict(
            f"deployment {_shown(deployment)} is being deleted by operation {operation}",
            code="deleting",
            remedy=f"wait for it (moor wait {deployment.name} --for stopped), then apply again",
            target=_target(deployment),
        )
    same = _same_revision(known, intent.digest)
    over = deployment.status in (DeploymentStatus.FAILED, DeploymentStatus.STOPPED)
    if over and (same is None or same.uid != serving_uid(deployment)):
        raise _other_revision(deployment)
    if same is None or _gives_way(known, same):
        # What is rejected is written already: only its withdrawal goes on, which a further candidate does not disturb.
        refuse_below([o for o in known.operations if o.operation != "reject"], "apply", deployment)
    draft = Draft((deployment, *known.revisions, *known.operations), now, actor)
    changed = _lay_live_part(draft, deployment, intent)
    if same is None:
        return _propose(draft, known, intent, ids)
    if _gives_way(known, same):
        take_over(draft, known.operations, "apply", actor)
        cancel_candidate(draft, deployment, "a newer apply")
        changed = True
    open_apply = next((o.uid for o in known.operations if o.operation == "apply" and o.revision == same.uid), None)
    answer = {"deployment": deployment.uid, "revision": same.uid, "operation": open_apply, "changed": changed}
    return Outcome(draft.decision().change, answer)


def _same_revision(known: Known, digest: str) -> Revision | None:
    """The candidate or the active revision, where it is what was applied."""
    named = (known.deployment.candidate_revision, known.deployment.active_revision)
    return next((r for uid in named for r in known.revisions if uid and r.uid == uid and r.digest == digest), None)


def _gives_way(known: Known, same: Revision) -> bool:
    """The active revision is applied again while a candidate is on its way: the last word counts."""
    deployment = known.deployment
    return deployment.candidate_revision is not None and same.uid == deployment.active_revision


def _propose(draft: Draft, known: Known, intent: Intent, ids: Ids) -> Outcome:
    deployment = known.deployment
    take_over(draft, known.operations, "apply", draft.actor)
    revision = propose(draft, deployment, intent.revision, intent.digest, ids.new("Revision"))
    draft.set(revision, pins=dict(intent.pins))
    operation = draft.create(
        Operation(
            uid=ids.new("Operation"),
            name=f"apply-{deployment.name}",
            namespace=deployment.namespace,
            operation="apply",
            target=deployment.uid,
            actor=draft.actor,
            revision=revision.uid,
            steps=first_steps("apply", 1, draft.now),
        ),
        reason("op.created", operation="apply"),
    )
    draft.set(deployment, operation=operation.uid)
    answer = {"deployment": deployment.uid, "revision": revision.uid, "operation": operation.uid, "changed": True}
    return Outcome(draft.decision().change, answer)


def _create(intent: Intent, ids: Ids, now: float, actor: str) -> Outcome:
    draft = Draft((), now, actor)
    uid, revision_uid, operation_uid = ids.new("Deployment"), ids.new("Revision"), ids.new("Operation")
    asleep = int((intent.spec.get("replicas") or {}).get("initial", 1)) == 0
    common: dict[str, Any] = {"namespace": intent.namespace, "labels": dict(intent.spec.get("labels") or {})}
    deployment = Deployment(
        uid=uid,
        name=intent.name,
        annotations=dict(intent.spec.get("annotations") or {}),
        status=DeploymentStatus.PAUSED if asleep else DeploymentStatus.CREATED,
        spec=intent.spec,
        candidate_revision=revision_uid,
        revision_count=1,
        operation=operation_uid,
        paused_at=now if asleep else None,
        **common,
    )
    revision = Revision(
        uid=revision_uid,
        name=f"{intent.name}-1",
        deployment=uid,
        number=1,
        digest=intent.digest,
        spec=intent.revision,
        pins=dict(intent.pins),
        **common,
    )
    operation = Operation(
        uid=operation_uid,
        name=f"apply-{intent.name}",
        namespace=intent.namespace,
        operation="apply",
        target=uid,
        actor=actor,
        revision=revision_uid,
        steps=first_steps("apply", 1, now),
    )
    draft.create(deployment, reason("deploy.initial_zero" if asleep else "deploy.created"))
    draft.create(revision, reason("revision.created", digest=intent.digest, number=1))
    draft.create(operation, reason("op.created", operation="apply"))
    answer = {"deployment": uid, "revision": revision_uid, "operation": operation_uid, "changed": True}
    return Outcome(draft.decision().change, answer)


def _other_revision(deployment: Deployment) -> Conflict:
    return Conflict(
        f"deployment {_shown(deployment)} is {deployment.status} and cannot take another revision",
        code=f"deployment_{deployment.status}",
        remedy=f"delete it (moor delete {deployment.name} --yes --wait), then apply again",
        target=_target(deployment),
    )


def _lay_live_part(draft: Draft, deployment: Deployment, intent: Intent) -> bool:
    """What of the document takes effect at once; whether that changed anything."""
    spec = live_document(deployment, intent.spec, intent.revision)
    fields = changed_fields(deployment.spec, spec)
    if not fields:
        return False
    labels, annotations = dict(spec.get("labels") or {}), dict(spec.get("annotations") or {})
    draft.set(deployment, spec=spec, labels=labels, annotations=annotations)
    draft.note(deployment, reason("deploy.changed", fields=", ".join(fields), by=draft.actor))
    _wake_when_raised(draft, deployment)
    return True


def _wake_when_raised(draft: Draft, deployment: Deployment) -> None:
    """A minimum raised above zero while it sleeps at a minimum of zero starts it."""
    before = int((deployment.spec.get("replicas") or {}).get("min", 1))
    current = draft.row(deployment)
    after = int((current.spec.get("replicas") or {}).get("min", 1))
    if current.status is DeploymentStatus.PAUSED and before == 0 < after:
        why = reason("deploy.scaled", **{"from": 0, "to": after})
        draft.step(deployment, DeploymentStatus.CREATED, "scaled", why, paused_at=None, retry_at=None)


def scale(known: Known, low: int | None, high: int | None, now: float, *, actor: str) -> Outcome:
    """Change the replica limits at once; the next apply of a file sets them again.

    Raises:
        Conflict: it failed, was stopped or is being deleted, or the limits contradict each other.
    """
    deployment = known.deployment
    _refuse_unless_alive(deployment, "scaled")
    replicas = dict(deployment.spec.get("replicas") or {})
    new_low = int(replicas.get("min", 1)) if low is None else low
    new_high = max(int(replicas.get("max", new_low)), new_low) if high is None else high
    if new_low < 0 or new_high < max(new_low, 1):
        raise Conflict(
            f"cannot scale {_shown(deployment)} to min {new_low}, max {new_high}",
            code="invalid_scale",
            remedy="min must not be negative, and max at least min and at least 1",
        )
    answer = {"deployment": deployment.uid, "min": new_low, "max": new_high}
    if (new_low, new_high) == (replicas.get("min"), replicas.get("max")):
        return Outcome(None, answer)
    draft = Draft((deployment,), now, actor)
    spec = {**deployment.spec, "replicas": {**replicas, "min": new_low, "max": new_high}}
    draft.set(deployment, spec=spec)
    draft.note(deployment, reason("deploy.scaled", **{"from": int(replicas.get("min", 1)), "to": new_low, "by": actor}))
    _wake_when_raised(draft, deployment)
    return Outcome(draft.decision().change, answer)


def pause(known: Known, now: float, *, actor: str) -> Outcome:
    """Begin the pausing handshake; the deployment sleeps when every gateway confirmed.

    Raises:
        Conflict: a candidate is on its way (so nothing was ready yet), or it failed, was stopped or is being deleted.
    """
    deployment = known.deployment
    answer = {"deployment": deployment.uid}
    if deployment.status is DeploymentStatus.PAUSED or deployment.hold is not None:
        return Outcome(None, answer)
    _refuse_unless_alive(deployment, "paused")
    if deployment.candidate_revision is not None:
        raise Conflict(
            f"deployment {_shown(deployment)} has a revision that is not active yet",
            code="rollout_in_progress",
            remedy=f"wait until it is (moor wait {deployment.name}), then pause",
            target=_target(deployment),
        )
    draft = Draft((deployment,), now, actor)
    draft.set(deployment, hold={"since": now, "why": "paused_by_person", "by": actor})
    draft.note(deployment, reason("deploy.pausing"))
    return Outcome(draft.decision().change, answer)


def wake(known: Known, now: float, *, actor: str) -> Outcome:
    """Start a paused deployment without a request; a no-op when it is awake.

    Raises:
        Conflict: it failed, was stopped or is being deleted.
    """
    deployment = known.deployment
    _refuse_unless_alive(deployment, "woken")
    draft = Draft((deployment,), now, actor)
    if deployment.status is DeploymentStatus.PAUSED:
        wake_row(draft, deployment, by=actor)
    elif deployment.hold is not None:
        draft.set(deployment, hold=None, active_at=now)
        draft.note(deployment, reason("deploy.pause_aborted", why="a person wakes it"))
    return Outcome(draft.decision().change, {"deployment": deployment.uid})


def stop(known: Known, ids: Ids, now: float, *, actor: str, text: str | None) -> Outcome:
    """Stop for good. `stopped` is written before anything is taken down, so that late reports change nothing."""
    deployment = known.deployment
    if deployment.status in (DeploymentStatus.FAILED, DeploymentStatus.STOPPED):
        going = next((o.uid for o in known.operations if o.operation in ("stop", "delete")), None)
        return Outcome(None, {"deployment": deployment.uid, "operation": going})
    draft = Draft((deployment, *known.revisions, *known.operations), now, actor)
    operation = _take_over(draft, known, "stop", ids)
    why = reason("deploy.stopped", by=actor, text=text)
    draft.step(
        deployment,
        DeploymentStatus.STOPPED,
        "stop_requested",
        why,
        operation=operation.uid,
        hold=None,
        waking=None,
        retry_at=None,
    )
    return Outcome(draft.decision().change, {"deployment": deployment.uid, "operation": operation.uid})


def delete(known: Known, ids: Ids, now: float, *, actor: str, keep: bool = False) -> Outcome:
    """Mark for deletion, stopped first; a durable operation proves absence and leaves a tombstone.

    Args:
        keep: leave its server running, under somebody else's ownership from now on.

    Raises:
        Conflict: `keep`, and its servers are ours and would end with it, or what is there is still in question.
    """
    deployment = known.deployment
    if keep:
        refuse_to_keep(deployment, known.operations)
    if deployment.deleting:
        going = next((o.uid for o in known.operations if o.operation == "delete"), None)
        return Outcome(None, {"deployment": deployment.uid, "operation": going})
    draft = Draft((deployment, *known.revisions, *known.operations), now, actor)
    operation = _take_over(draft, known, "delete", ids)
    why = reason("deploy.deleting", by=actor)
    if deployment.status in (DeploymentStatus.CREATED, DeploymentStatus.PAUSED):
        draft.step(deployment, DeploymentStatus.STOPPED, "delete_requested", why)
    else:
        draft.because(deployment, why)
    draft.set(deployment, deleting=True, operation=operation.uid, hold=None, waking=None, retry_at=None)
    if keep:
        draft.set(deployment, ownership=EXTERNAL, upstream={**dict(deployment.upstream or {}), "mode": "traffic"})
    return Outcome(draft.decision().change, {"deployment": deployment.uid, "operation": operation.uid})


def _take_over(draft: Draft, known: Known, operation: str, ids: Ids) -> Operation:
    """stop/delete > apply: ask the lower to cancel, end the candidate, and start the higher one."""
    deployment = known.deployment
    take_over(draft, known.operations, operation, draft.actor)
    cancel_candidate(draft, deployment, operation)
    row = Operation(
        uid=ids.new("Operation"),
        name=f"{operation}-{deployment.name}",
        namespace=deployment.namespace,
        operation=operation,
        target=deployment.uid,
        actor=draft.actor,
        steps=first_steps(operation, 0, draft.now),
    )
    return draft.create(row, reason("op.created", operation=operation))


def _refuse_unless_alive(deployment: Deployment, what: str) -> None:
    refuse_adopted(deployment, what)
    if deployment.deleting or deployment.status in (DeploymentStatus.FAILED, DeploymentStatus.STOPPED):
        word = "being deleted" if deployment.deleting else str(deployment.status)
        raise Conflict(
            f"deployment {_shown(deployment)} is {word} and cannot be {what}",
            code="deployment_over",
            remedy=f"delete it if it is still there (moor delete {deployment.name} --yes --wait), then apply it again",
            target=_target(deployment),
        )


def _shown(deployment: Deployment) -> str:
    return f"{deployment.namespace}/{deployment.name}"


def _target(deployment: Deployment) -> str:
    return f"Deployment {_shown(deployment)}"


def operations_by_age(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Open operations, oldest first."""
    return tuple(sorted(operations, key=lambda o: (o.created_at, o.uid)))

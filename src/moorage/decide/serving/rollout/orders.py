"""What a person's word on a rollout makes: promote, reject, rollback. Pure; re-exported by `commands`.

A word with nothing to be said about is a clear no-op that succeeds: `changed` is False and nothing is written.
"""

from typing import Any, Protocol

from moorage.decide.decision import Draft, Ids, Outcome
from moorage.decide.serving.cancelling import refuse_below, take_over
from moorage.decide.serving.facts import first_steps
from moorage.decide.serving.phase import IN_PROMOTION
from moorage.decide.serving.rollout import rollback as going_back
from moorage.decide.serving.rollout.closing import end_candidate
from moorage.decide.serving.rollout.promoting import BEHIND, last_served
from moorage.decide.serving.rollout.record import rollout_of, terms_of
from moorage.decide.serving.rollout.roles import candidate_beside
from moorage.domain.errors import Conflict, NotFound
from moorage.domain.nouns import Deployment, Operation, Revision
from moorage.domain.reasons import reason
from moorage.domain.states import DeploymentStatus, RevisionState


class Scene(Protocol):
    """What is there: the deployment, all its revisions, and its open operations, oldest first (`commands.Known`)."""

    @property
    def deployment(self) -> Deployment:
        """Its row."""
        ...

    @property
    def revisions(self) -> tuple[Revision, ...]:
        """All of them."""
        ...

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Open ones."""
        ...


def promote(
    scene: Scene, ids: Ids, now: float, *, actor: str, text: str | None, revision: str | None = None
) -> Outcome:
    """The candidate takes over without the guard's word, as soon as it has the replicas that the load needs.

    Args:
        revision: number, name or uid; None: the candidate.

    Raises:
        Conflict: there is no candidate, it is another revision, or a rollback or what ends the deployment goes before.
        NotFound: there is no such revision.
    """
    deployment = scene.deployment
    named = _named(scene, revision)
    if named is not None and named.uid == deployment.active_revision:
        return _nothing(deployment, named)
    refuse_below(scene.operations, "promote", deployment)
    draft, candidate = _candidate(scene, now, actor)
    if candidate is None:
        raise _no_candidate(deployment, "promote")
    _must_be(candidate, named, "promote")
    if dict(candidate.verdict or {}).get("word") == "promote":
        going = next((o.uid for o in scene.operations if o.operation == "promote"), None)
        return _nothing(deployment, candidate, going)
    operation = _operation(draft, "promote", candidate, ids, text)
    draft.set(candidate, verdict=_word("promote", operation, text))
    rollout = rollout_of(deployment)
    if rollout is not None:
        draft.set(deployment, rollout=rollout.but(deadline=now + terms_of(deployment).deadline_s).to_wire())
    return _done(draft, deployment, candidate, operation)


def reject(scene: Scene, ids: Ids, now: float, *, actor: str, text: str | None, revision: str | None = None) -> Outcome:
    """The candidate ends now; the active revision goes on. With no rollout under way: a no-op that succeeds.

    Raises:
        Conflict: the candidate is another revision, or what ends the deployment goes before.
        NotFound: there is no such revision.
    """
    deployment = scene.deployment
    named = _named(scene, revision)
    draft, candidate = _candidate(scene, now, actor)
    if candidate is None or (named is not None and named.state is RevisionState.REJECTED):
        return _nothing(deployment, named)
    refuse_below(scene.operations, "reject", deployment)
    _must_be(candidate, named, "reject")
    take_over(draft, scene.operations, "reject", actor)
    operation = _operation(draft, "reject", candidate, ids, text)
    draft.set(candidate, verdict=_word("reject", operation, text))
    end_candidate(draft, deployment, candidate, "rejected", reason("revision.rejected", by=actor, why=text))
    return _done(draft, deployment, candidate, operation)


def rollback(
    scene: Scene, ids: Ids, now: float, *, actor: str, text: str | None = None, to: str | None = None
) -> Outcome:
    """Go back to a revision that served before; traffic moves once its capacity is there.

    Args:
        to: number, name or uid; None: the one that served last.

    Raises:
        Conflict: there is none to go back to, it never served, or the deployment is over.
        NotFound: there is no such revision.
    """
    deployment = scene.deployment
    _refuse_unless_served(deployment)
    refuse_below(scene.operations, "rollback", deployment)
    target = _named(scene, to) if to is not None else _last(scene)
    if target is None:
        raise Conflict(
            f"deployment {_shown(deployment)} has no earlier revision to go back to",
            code="no_previous_revision",
            remedy="apply the spec that it should have",
            target=_target(deployment),
        )
    if target.uid == deployment.active_revision:
        return _nothing(deployment, target)
    going = next((o for o in scene.operations if _goes_to(o, target.uid)), None)
    if going is not None:
        return _nothing(deployment, target, going.uid)
    if target.state not in BEHIND:
        raise Conflict(
            f"revision {target.name} is {target.state} and cannot be gone back to",
            code="never_served" if target.activated_at is None else "revision_over",
            remedy="name one that is superseded (moor rollout X), or apply its spec again",
            target=f"Revision {target.name}",
        )
    draft = Draft((deployment, *scene.revisions, *scene.operations), now, actor)
    take_over(draft, scene.operations, "rollback", actor)
    operation = going_back.order(draft, deployment, target, ids, by=actor, text=text)
    return _done(draft, deployment, target, operation)


def _last(scene: Scene) -> Revision | None:
    """The one before, if it can still be had; else the one that served last."""
    before = next((r for r in scene.revisions if r.uid == scene.deployment.previous_revision), None)
    return before if before is not None and before.state in BEHIND else last_served(scene.revisions)


def _goes_to(operation: Operation, revision: str) -> bool:
    return (operation.operation, operation.revision, operation.cancel_requested) == ("rollback", revision, False)


def _candidate(scene: Scene, now: float, actor: str) -> tuple[Draft, Revision | None]:
    """A draft over what is there, and the candidate that somebody may have a word on."""
    draft = Draft((scene.deployment, *scene.revisions, *scene.operations), now, actor)
    candidate = candidate_beside(draft, scene.deployment)
    rollout = rollout_of(scene.deployment)
    on_its_way = candidate is not None and candidate.state in IN_PROMOTION
    return draft, candidate if on_its_way and rollout is not None else None


def _named(scene: Scene, word: str | None) -> Revision | None:
    """The revision that is called so by number, name or uid."""
    if word is None:
        return None
    found = next((r for r in scene.revisions if word in (r.uid, r.name, str(r.number))), None)
    if found is None:
        raise NotFound(
            f"deployment {_shown(scene.deployment)} has no revision {word}",
            remedy=f"see its revisions with `moor rollout {scene.deployment.name}`",
            target=f"Revision {word}",
        )
    return found


def _must_be(candidate: Revision, named: Revision | None, what: str) -> None:
    """A word on one revision is never taken for a word on another."""
    if named is not None and named.uid != candidate.uid:
        raise Conflict(
            f"cannot {what} revision {named.name}, which is {named.state}: the candidate is {candidate.name}",
            code="not_the_candidate",
            remedy=f"name {candidate.name}, or leave the revision out",
            target=f"Revision {named.name}",
        )


def _no_candidate(deployment: Deployment, what: str) -> Conflict:
    return Conflict(
        f"deployment {_shown(deployment)} has no candidate to {what}",
        code="no_rollout",
        remedy="apply the spec of the revision that it should have",
        target=_target(deployment),
    )


def _refuse_unless_served(deployment: Deployment) -> None:
    if deployment.deleting or deployment.status is not DeploymentStatus.CREATED:
        word = "being deleted" if deployment.deleting else str(deployment.status)
        raise Conflict(
            f"deployment {_shown(deployment)} is {word} and cannot be rolled back",
            code="deployment_asleep" if deployment.status is DeploymentStatus.PAUSED else "deployment_over",
            remedy=_how_to_be_served(deployment),
            target=_target(deployment),
        )


def _how_to_be_served(deployment: Deployment) -> str:
    """What helps where nothing serves; only one that sleeps can be woken."""
    name = deployment.name
    if deployment.deleting:
        return f"wait until it is gone (moor delete {name} --yes --wait), then apply the spec that it should have"
    if deployment.status is DeploymentStatus.PAUSED:
        return f"wake it first (moor wake {name}), or apply the spec that it should have"
    return f"delete it (moor delete {name} --yes --wait), then apply the spec that it should have"


def _operation(draft: Draft, what: str, revision: Revision, ids: Ids, text: str | None) -> Operation:
    deployment = next(draft.of(Deployment))
    row = draft.create(
        Operation(
            uid=ids.new("Operation"),
            name=f"{what}-{deployment.name}",
            namespace=deployment.namespace,
            operation=what,
            target=deployment.uid,
            actor=draft.actor,
            revision=revision.uid,
            steps=first_steps(what, 1, draft.now),
            annotations={"why": text} if text else {},
        ),
        reason("op.created", operation=what),
    )
    draft.set(deployment, operation=row.uid)
    return row


def _word(word: str, operation: Operation, text: str | None) -> dict[str, Any]:
    said = {"word": word, "by": operation.actor, "operation": operation.uid, "at": operation.created_at}
    return {**said, "text": text} if text else said


def _done(draft: Draft, deployment: Deployment, revision: Revision, operation: Operation) -> Outcome:
    return Outcome(
        draft.decision().change,
        {"deployment": deployment.uid, "revision": revision.uid, "operation": operation.uid, "changed": True},
    )


def _nothing(deployment: Deployment, revision: Revision | None, operation: str | None = None) -> Outcome:
    uid = revision.uid if revision is not None else deployment.active_revision
    return Outcome(None, {"deployment": deployment.uid, "revision": uid, "operation": operation, "changed": False})


def _shown(deployment: Deployment) -> str:
    return f"{deployment.namespace}/{deployment.name}"


def _target(deployment: Deployment) -> str:
    return f"Deployment {_shown(deployment)}"

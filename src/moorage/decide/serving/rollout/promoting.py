"""Promotion: one change in which the candidate becomes active and the active one begins to drain.

The change carries the versions of the deployment and of both revisions that the decision was made on, and the control
plane's fence: whatever moved meanwhile (status, active, candidate, decision), the store refuses all of it and the
decision is made again. Routes derive from these rows, so the next routing generation is written with them; until then
the active revision keeps its own. Withdrawal of the old replicas is asked for by stage `scale` of the same decision.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.serving.evidence import carried
from moorage.decide.serving.phase import is_ready
from moorage.decide.serving.rollout.record import Rollout, terms_of
from moorage.decide.serving.rollout.roles import live_replicas
from moorage.domain.nouns import Deployment, Revision
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import RevisionState

BEHIND = (RevisionState.DRAINING, RevisionState.SUPERSEDED)
"""States of a revision that served and was replaced."""


def promote(draft: Draft, deployment: Deployment, candidate: Revision, active: Revision, rollout: Rollout) -> None:
    """Traffic moves.

    Args:
        candidate: promoting; or provisioning or draining, where a rollback goes to it.
        active: the one that serves until this change.
        rollout: what is under way.
    """
    current = draft.row(deployment)
    trigger = "rollback" if draft.row(candidate).state is RevisionState.DRAINING else "promoted"
    draft.step(active, RevisionState.DRAINING, "replaced", _why_replaced(rollout, candidate, current))
    chosen = draft.row(candidate)
    decision = next((str(d["id"]) for d in reversed(chosen.decisions) if "id" in d), None)
    why = reason("revision.promoted", decision=decision if rollout.kind == "rollout" else None)
    draft.step(
        candidate,
        RevisionState.ACTIVE,
        trigger,
        why,
        activated_at=draft.now,
        initial_scale_reached=True,
        evidence=carried(chosen.evidence),
        retry_at=None,
        failures_in_row=0,
        not_ready=(),
    )
    draft.set(
        deployment,
        active_revision=candidate.uid,
        candidate_revision=None,
        previous_revision=_previous(draft, candidate, active, rollout),
        spec=with_revision(current.spec, chosen.spec),
        rollout=_window(draft, deployment, candidate, active, rollout),
        queued={k: v for k, v in current.queued.items() if "/" not in k},
        failures_in_row=chosen.failures_in_row,
        failed_at=chosen.failed_at,
        retry_at=chosen.retry_at,
        not_ready=chosen.not_ready,
        fatal_since_ran=False,
        initial_scale_reached=True,
    )
    _route(draft, candidate)


def _previous(draft: Draft, candidate: Revision, active: Revision, rollout: Rollout) -> str | None:
    """What the next rollback goes to: the one replaced now; after a rollback not that one, but what served before."""
    if rollout.kind != "rollback":
        return active.uid
    earlier = last_served(draft.of(Revision), (candidate.uid, active.uid))
    return earlier.uid if earlier is not None else None


def last_served(revisions: Iterable[Revision], but: tuple[str, ...] = ()) -> Revision | None:
    """Of those that can be gone back to the one that served last."""
    behind = [r for r in revisions if r.state in BEHIND and r.uid not in but]
    return max(behind, key=lambda r: (r.activated_at or 0.0, r.number), default=None)


def with_revision(spec: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """A deployment's document with the revision part of this revision in place of its own."""
    replicas = {**dict(spec.get("replicas") or {}), **dict(part.get("replicas") or {})}
    return {**spec, **part, "replicas": replicas}


def _why_replaced(rollout: Rollout, candidate: Revision, deployment: Deployment) -> Reason:
    if rollout.kind == "rollback":
        return reason("revision.rolled_back", to=candidate.name, by=rollout.by, why=rollout.why)
    del deployment
    return reason("revision.draining", by=candidate.name)


def _window(
    draft: Draft, deployment: Deployment, candidate: Revision, active: Revision, rollout: Rollout
) -> dict[str, Any] | None:
    """For a while after a rollout the guard looks on; going back has no window, so it never swings."""
    terms = terms_of(draft.row(deployment))
    window_s = terms.window_s if terms.guard.get("enabled", True) else 0.0
    if rollout.kind != "rollout" or window_s <= 0:
        return None
    return Rollout(
        candidate=candidate.uid,
        baseline=active.uid,
        kind="window",
        strategy=rollout.strategy,
        since=draft.now,
        step_since=draft.now,
        evidence_id=f"{candidate.uid}/window/{draft.now:.3f}",
        numbers=rollout.numbers,
        window_until=draft.now + window_s,
    ).to_wire()


def _route(draft: Draft, revision: Revision) -> None:
    """Its ready replicas take requests from this change on, the ones that were about to stop included."""
    for replica in live_replicas(draft, revision.uid):
        if is_ready(replica) and not replica.routed:
            draft.set(replica, routed=True, routed_why=None)
            draft.note(replica, reason("replica.routed"))

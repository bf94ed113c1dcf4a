"""An apply of another revision part over a deployment that lives: a candidate, beside what serves.

The live part is laid down at once. `Deployment.spec` keeps the revision part of what serves until the promotion, so
that a rejected candidate leaves nothing behind. Called by `commands.apply`.
"""

from collections.abc import Mapping
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.serving.evidence import carried
from moorage.decide.serving.rollout.closing import cancel_candidate
from moorage.decide.serving.rollout.record import Rollout, terms_of
from moorage.domain.nouns import Deployment, Revision
from moorage.domain.reasons import reason
from moorage.domain.states import DeploymentStatus


def live_document(deployment: Deployment, spec: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """The applied document with the revision part of what serves.

    Args:
        spec: what was applied.
        part: its revision part; names the fields that are kept from the deployment.
    """
    before = dict(deployment.spec)
    kept = {k: before[k] for k in part if k != "replicas" and k in before}
    fixed = {k: v for k in dict(part.get("replicas") or {}) if (v := dict(before.get("replicas") or {}).get(k))}
    return {**spec, **kept, "replicas": {**dict(spec.get("replicas") or {}), **fixed}}


def propose(draft: Draft, deployment: Deployment, part: Mapping[str, Any], digest: str, uid: str) -> Revision:
    """A new candidate; an older one is cancelled. Whatever sleeps is woken, whatever goes to sleep stays awake.

    Args:
        part, digest: of the new revision.
        uid: its uid.
    """
    cancel_candidate(draft, deployment, "a newer apply")
    current = draft.row(deployment)
    number = current.revision_count + 1
    revision = draft.create(
        Revision(
            uid=uid,
            name=f"{deployment.name}-{number}",
            namespace=deployment.namespace,
            labels=dict(current.labels),
            deployment=deployment.uid,
            number=number,
            digest=digest,
            spec=part,
        ),
        reason("revision.created", digest=digest, number=number),
    )
    draft.set(deployment, candidate_revision=uid, revision_count=number, rollout=None)
    if current.active_revision is None:
        _begin_anew(draft, deployment, part)
    else:
        draft.set(deployment, rollout=begin(draft, deployment, revision).to_wire())
    _keep_awake(draft, deployment, revision)
    return revision


def begin(draft: Draft, deployment: Deployment, candidate: Revision, kind: str = "rollout") -> Rollout:
    """The record of a comparison that begins now, the evidence of both emptied."""
    current, terms = draft.row(deployment), terms_of(draft.row(deployment))
    active = next(r for r in draft.of(Revision) if r.uid == current.active_revision)
    draft.set(active, evidence=carried(active.evidence))
    return Rollout(
        candidate=candidate.uid,
        baseline=active.uid,
        kind=kind,
        strategy=terms.strategy if kind == "rollout" else "none",
        since=draft.now,
        step_since=draft.now,
        weight=terms.steps[0] if terms.strategy == "canary" and terms.steps and kind == "rollout" else 0,
        deadline=draft.now + terms.deadline_s,
        evidence_id=f"{candidate.uid}/0" if kind == "rollout" else None,
        numbers={active.uid: active.number, candidate.uid: candidate.number},
        served=True if current.status is DeploymentStatus.PAUSED else None,
    )


def _begin_anew(draft: Draft, deployment: Deployment, part: Mapping[str, Any]) -> None:
    """The first revision gave way before it ever served: what it failed at does not count for this one."""
    spec = {**draft.row(deployment).spec, **{k: v for k, v in part.items() if k != "replicas"}}
    workers = dict(part.get("replicas") or {})
    spec["replicas"] = {**dict(spec.get("replicas") or {}), **workers}
    draft.set(
        deployment,
        spec=spec,
        failures_in_row=0,
        failed_at=None,
        retry_at=None,
        fatal_since_ran=False,
        not_ready=(),
        last_failure=None,
        queued={},
        initial_scale_reached=False,
    )


def _keep_awake(draft: Draft, deployment: Deployment, revision: Revision) -> None:
    current = draft.row(deployment)
    if current.status is DeploymentStatus.PAUSED:
        why = reason("deploy.rollout", revision=revision.name)
        draft.step(deployment, DeploymentStatus.CREATED, "rollout", why, paused_at=None)
    else:
        call_off_pause(draft, deployment, "a new revision is applied")


def call_off_pause(draft: Draft, deployment: Deployment, why: str) -> None:
    """Whatever goes to sleep stays awake."""
    if draft.row(deployment).hold is not None:
        draft.set(deployment, hold=None, active_at=draft.now)
        draft.note(deployment, reason("deploy.pause_aborted", why=why))

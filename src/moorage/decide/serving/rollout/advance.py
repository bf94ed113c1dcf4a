"""Stage 4 of the serving decision: the rollout under way moves on, as far as the rows let it.

1. orders to go back (`rollback`)
2. the candidate: its deadline; lost or won readiness; the guard's or a person's word; canary steps; promotion
3. the window after a promotion, in which the same guard may send it back
4. what was replaced becomes superseded once it is drained; what ended says when nothing of it is left

Every step is decided from rows alone, so a control plane that is killed anywhere goes on from what was committed. Which
replicas run follows in stage `scale` of the same decision.
"""

from moorage.decide.decision import Draft, Ids
from moorage.decide.serving.evidence import carried
from moorage.decide.serving.readiness import first_unready_why
from moorage.decide.serving.rollout import rollback, window
from moorage.decide.serving.rollout.closing import end_candidate, follow_draining, prove_gone
from moorage.decide.serving.rollout.promoting import promote
from moorage.decide.serving.rollout.record import Rollout, Terms, rollout_of, terms_of
from moorage.decide.serving.rollout.roles import candidate_beside, live_replicas, ready_replicas, revision_row
from moorage.decide.serving.rollout.sizes import gives_its_place, has_capacity
from moorage.decide.serving.rollout.verdict import accepts, judge_now, keep, rejects, said
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.nouns import Deployment, Operation, Replica, Revision
from moorage.domain.reasons import reason
from moorage.domain.states import DeploymentStatus, RevisionState

FAILURES_MAX = 3
"""Failures in a row after which something is called unhealthy (the lifecycle contract §7)."""

STEADY_S = 10.0
"""At least so long a candidate that ceased to be ready, or that nothing serves beside, must be ready at a stretch."""
STEADY_MAX_S = 600.0
"""What lived this long before it failed does not fail in a loop (`failures.RESET_AFTER_S`)."""


def advance(draft: Draft, snapshot: ServingSnapshot, ids: Ids) -> None:
    """Everything of a rollout that is due now."""
    deployment = draft.row(snapshot.deployment)
    if deployment.status is DeploymentStatus.CREATED and not deployment.deleting:
        rollback.pursue(draft, snapshot)
        if candidate_beside(draft, draft.row(deployment)) is not None:
            _carry_on(draft, snapshot)
    window.watch(draft, snapshot, ids)
    follow_draining(draft, snapshot)
    prove_gone(draft, snapshot)


def _carry_on(draft: Draft, snapshot: ServingSnapshot) -> None:
    deployment = draft.row(snapshot.deployment)
    candidate, active = candidate_beside(draft, deployment), revision_row(draft, deployment.active_revision)
    rollout = rollout_of(deployment)
    if candidate is None or active is None or rollout is None:
        return
    if rollout.served is None:  # before stage `scale` stops anything for it
        rollout = rollout.but(served=bool(ready_replicas(draft, active.uid)))
        draft.set(deployment, rollout=rollout.to_wire())
    if _too_late(draft, deployment, candidate, rollout):
        return
    ready = bool(ready_replicas(draft, candidate.uid))
    if not _follow_readiness(draft, snapshot, candidate, rollout, ready):
        if not _crash_loops(draft, deployment, candidate, active, rollout):
            _run_deadline(draft, deployment, rollout)
        return
    if rollout.kind == "rollback":
        rollback.complete(draft, deployment, candidate, active, rollout)
        return
    _judge(draft, snapshot, candidate, active, rollout)


def _too_late(draft: Draft, deployment: Deployment, candidate: Revision, rollout: Rollout) -> bool:
    """A candidate that is not promoted in time fails; one that waits for nothing but a person's word does not."""
    if rollout.deadline is None:
        return False
    if draft.now < rollout.deadline:
        draft.look_again(rollout.deadline)
        return False
    detail = _what_it_lacked(draft, candidate)
    text = "it was not promoted within the rollout's deadline" + (f": {detail}" if detail else "")
    end_candidate(draft, deployment, candidate, "deadline", reason("revision.failed", why=text))
    return True


def _crash_loops(draft: Draft, deployment: Deployment, candidate: Revision, active: Revision, rollout: Rollout) -> bool:
    """Ready more than once and failed again and again: that is not worth its deadline, and the guard says so."""
    current = draft.row(candidate)
    again = current.initial_scale_reached and current.failures_in_row >= FAILURES_MAX
    if not again or rollout.kind != "rollout" or _word_of(current) == "promote":
        return False
    decision = judge_now(draft, deployment, rollout, candidate, active, ready=False)
    if not rejects(decision):
        return False
    last = dict(dict(current.last_failure or {}).get("reason") or {}).get("message")
    text = f"{said(decision)}: failed {current.failures_in_row} times in a row, the last time: {last}"
    kept = keep(draft, candidate, active, decision, always=False)
    end_candidate(draft, deployment, candidate, "rejected", reason("revision.rejected", decision=kept, why=text))
    return True


def _word_of(candidate: Revision) -> str | None:
    """What a person said of it."""
    return dict(candidate.verdict or {}).get("word")


def _what_it_lacked(draft: Draft, candidate: Revision) -> str | None:
    """Replicas: why they failed, or what they wait for; else the word that the guard waited with."""
    if candidate.state is not RevisionState.EVALUATING:
        last = dict(dict(candidate.last_failure or {}).get("reason") or {}).get("message")
        return last or first_unready_why(live_replicas(draft, candidate.uid)) or "its replicas were not ready"
    judged = candidate.decisions[-1] if candidate.decisions else None
    waited = judged is not None and judged.get("verdict") == "WAIT"
    if judged is None or not waited:
        return None
    return "; ".join(dict.fromkeys(str(r.get("message")) for r in judged["reasons"]))


def _run_deadline(draft: Draft, deployment: Deployment, rollout: Rollout) -> None:
    """It no longer waits for a person alone: its time runs again."""
    if rollout.deadline is None:
        deadline = draft.now + terms_of(draft.row(deployment)).deadline_s
        draft.set(deployment, rollout=rollout.but(deadline=deadline).to_wire())
        draft.look_again(deadline)


def _follow_readiness(
    draft: Draft, snapshot: ServingSnapshot, candidate: Revision, rollout: Rollout, ready: bool
) -> bool:
    """provisioning ↔ evaluating, and out of promoting; whether it can be looked at further."""
    state = draft.row(candidate).state
    if ready:
        if state is RevisionState.PROVISIONING and rollout.kind == "rollout":
            draft.step(candidate, RevisionState.EVALUATING, "replica_ready", reason("revision.evaluating"))
        return state is not RevisionState.CANDIDATE
    if state is RevisionState.PROMOTING:
        why = reason("revision.decision_stale", why="it lost its ready replicas")
        draft.step(candidate, RevisionState.EVALUATING, "decision_stale", why)
    if draft.row(candidate).state is RevisionState.EVALUATING:
        draft.step(candidate, RevisionState.PROVISIONING, "lost_ready", reason("revision.lost_ready"))
        _distrust(draft, snapshot, candidate, rollout)
    return False


def _distrust(draft: Draft, snapshot: ServingSnapshot, candidate: Revision, rollout: Rollout) -> None:
    """What was seen of it before does not count any more, and it must outlive its longest life."""
    replicas = [r for r in draft.of(Replica) if r.revision == candidate.uid]
    lives = [(r.ended_at or draft.now) - r.ready_at for r in replicas if r.ready_at is not None]
    steady_s = min(max(STEADY_S, rollout.steady_s, *lives), STEADY_MAX_S)
    evidence_id = f"{rollout.candidate}/{rollout.step}/{draft.now:.3f}" if rollout.evidence_id else None
    anew = rollout.but(steady_s=steady_s, evidence_id=evidence_id)
    draft.set(snapshot.deployment, rollout=anew.to_wire())
    for uid in (rollout.candidate, rollout.baseline):
        _begin_evidence_anew(draft, uid)


def _steady(draft: Draft, deployment: Deployment, candidate: Revision, active: Revision, rollout: Rollout) -> bool:
    """Whether it has been ready for as long as it must."""
    alone = not ready_replicas(draft, active.uid) and gives_its_place(draft.row(deployment), rollout)
    needed_s = rollout.steady_s or (STEADY_S if alone and terms_of(draft.row(deployment)).guards else 0.0)
    if not needed_s:
        return True
    since = min((r.ready_at or draft.now for r in ready_replicas(draft, candidate.uid)), default=draft.now)
    if draft.now >= since + needed_s:
        return True
    draft.look_again(since + needed_s)
    return False


def _judge(draft: Draft, snapshot: ServingSnapshot, candidate: Revision, active: Revision, rollout: Rollout) -> None:
    """evaluating → promoting → active, as far as the word on it and its replicas allow."""
    deployment = draft.row(snapshot.deployment)
    decision = judge_now(draft, deployment, rollout, candidate, active, ready=True)
    by_person = _word_of(draft.row(candidate)) == "promote"
    moves = draft.row(candidate).state is RevisionState.PROMOTING and has_capacity(draft, deployment, candidate)
    kept = keep(draft, candidate, active, decision, always=moves and accepts(decision))
    if rejects(decision) and not by_person:
        why = reason("revision.rejected", decision=kept, why=said(decision))
        end_candidate(draft, deployment, candidate, "rejected", why)
        return
    if draft.row(candidate).state is RevisionState.EVALUATING:
        if not by_person and not accepts(decision):
            _run_deadline(draft, deployment, rollout)
            return
        if not by_person and not _may_go_on(draft, deployment, candidate, active, rollout):
            return
        draft.step(candidate, RevisionState.PROMOTING, "accepted", reason("revision.promoting"))
    if not has_capacity(draft, deployment, candidate) or _asked_to_cancel(snapshot, candidate):
        return
    if not by_person and not accepts(decision):
        why = reason("revision.decision_stale", why=said(decision))
        draft.step(candidate, RevisionState.EVALUATING, "decision_stale", why)
        return
    promote(draft, deployment, candidate, active, rollout)


def _may_go_on(draft: Draft, deployment: Deployment, candidate: Revision, active: Revision, rollout: Rollout) -> bool:
    """Whether an accepted candidate may be promoted: it stays ready, its steps are over, nobody is waited for."""
    if not _steady(draft, deployment, candidate, active, rollout):
        return False
    terms = terms_of(draft.row(deployment))
    serves = bool(ready_replicas(draft, active.uid))
    if rollout.strategy == "canary" and serves and not _last_step_over(draft, deployment, rollout, terms):
        return False
    if not terms.auto:
        now = rollout_of(draft.row(deployment)) or rollout  # its last step may just have been noted
        draft.set(deployment, rollout=now.but(deadline=None).to_wire())
        return False
    return True


def _last_step_over(draft: Draft, deployment: Deployment, rollout: Rollout, terms: Terms) -> bool:
    """Take the next canary step where this one lasted long enough; True behind the last one."""
    if rollout.step >= len(terms.steps):
        return True
    over = rollout.step_since + terms.step_interval_s
    if draft.now < over:
        draft.look_again(over)
        return False
    step = rollout.step + 1
    if step >= len(terms.steps):
        draft.set(deployment, rollout=rollout.but(step=step).to_wire())
        return True
    following = rollout.but(
        step=step,
        weight=terms.steps[step],
        step_since=draft.now,
        deadline=draft.now + terms.deadline_s,
        evidence_id=f"{rollout.candidate}/{step}",
    )
    draft.set(deployment, rollout=following.to_wire())
    draft.note(deployment, reason("deploy.canary", revision=_name(draft, rollout.candidate), weight=following.weight))
    for uid in (rollout.candidate, rollout.baseline):
        _begin_evidence_anew(draft, uid)
    return False


def _name(draft: Draft, uid: str) -> str:
    revision = revision_row(draft, uid)
    return revision.name if revision is not None else uid


def _begin_evidence_anew(draft: Draft, uid: str) -> None:
    """Each step is judged on what was seen in it; what was posted of quality stands."""
    revision = revision_row(draft, uid)
    if revision is not None:
        draft.set(revision, evidence=carried(revision.evidence))


def _asked_to_cancel(snapshot: ServingSnapshot, candidate: Revision) -> bool:
    """Before the point of no return a cancel that was seen is heeded; stage `operations` ends the candidate."""
    return any(o.cancel_requested and o.revision == candidate.uid for o in snapshot.operations if _applies(o))


def _applies(operation: Operation) -> bool:
    return operation.operation == "apply"

"""The release guard's word on two revisions, kept with the candidate: where the rollout and the guard meet.

One more decision is kept only when its verdict or its reasons change; the one that promotes is kept with the very
evidence it was made on. A decision is about exactly two revisions: `baseline` names the other one.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.serving import synthetic
from moorage.decide.serving.evidence import Seen
from moorage.decide.serving.guard import Facts, GuardDecision, Policy, Verdict, comparable, judge, same_outcome
from moorage.decide.serving.rollout.record import Rollout, terms_of
from moorage.decide.serving.rollout.roles import ready_replicas
from moorage.decide.serving.rollout.sizes import gives_its_place
from moorage.domain import limits
from moorage.domain.nouns import Deployment, Revision


def judge_now(
    draft: Draft, deployment: Deployment, rollout: Rollout, candidate: Revision, active: Revision, *, ready: bool
) -> GuardDecision:
    """The guard's answer on what is known now.

    Args:
        ready: the candidate has a ready replica. An active revision without one is no baseline, except in the window;
            one that was stopped to make room leaves the candidate to prove itself alone.
    """
    current = draft.row(deployment)
    window = rollout.kind == "window"
    kind = "window" if window else rollout.strategy
    serves = window or bool(ready_replicas(draft, active.uid))
    baseline = active if serves else None
    facts = synthetic.facts_of(current, baseline, draft.row(candidate), candidate_ready=ready)
    alone = not serves and gives_its_place(current, rollout)
    if alone:  # no client comes to it before it is promoted
        sent = bool(synthetic.asks_of(current, draft.row(candidate)))
        facts = replace(facts, baseline_stopped=True, applicable=sent)
    if window:  # clients are there to measure, whatever could be sent
        facts = replace(facts, applicable=True)
    policy = Policy.of(terms_of(current).guard)
    of_active, of_candidate = draft.row(active).evidence, draft.row(candidate).evidence
    seen, other = comparable(of_active, of_candidate, kind, policy.minimum_requests)
    return judge(policy, seen if serves or alone else None, other, facts)


def keep(draft: Draft, candidate: Revision, active: Revision | None, decision: GuardDecision, *, always: bool) -> str:
    """Store the decision with its candidate; its id.

    Args:
        always: also where it says what the last one says, but on other evidence.
    """
    kept = draft.row(candidate).decisions
    wire: dict[str, Any] = {**decision.to_wire(), "baseline": active.uid if active is not None else None}
    last = kept[-1] if kept else None
    if last is not None and _about_the_same(last, wire) and (not always or _same_inputs(last, wire)):
        return str(last["id"])
    number = int(str(last["id"]).rpartition("/")[2]) + 1 if last is not None and "id" in last else len(kept) + 1
    wire |= {"id": f"{candidate.name}/{number}", "at": draft.now}
    draft.set(candidate, decisions=(*kept, wire)[-limits.DECISIONS_KEPT :])
    return str(wire["id"])


def accept_first(draft: Draft, deployment: Deployment, revision: Revision) -> None:
    """The first revision is accepted on readiness: there is nothing to compare it with."""
    policy = Policy.of(terms_of(draft.row(deployment)).guard)
    keep(draft, revision, None, judge(policy, None, Seen(), Facts()), always=False)


def accepts(decision: GuardDecision) -> bool:
    """Whether the candidate may take over."""
    return decision.verdict is Verdict.ACCEPT


def rejects(decision: GuardDecision) -> bool:
    """Whether the candidate is out."""
    return decision.verdict is Verdict.REJECT


def said(decision: GuardDecision) -> str:
    """Its reasons as one sentence, each text once."""
    return "; ".join(dict.fromkeys(ground.message for ground in decision.reasons))


def _about_the_same(last: Mapping[str, Any], wire: Mapping[str, Any]) -> bool:
    return "id" in last and last.get("baseline") == wire["baseline"] and same_outcome(last, wire)


def _same_inputs(last: Mapping[str, Any], wire: Mapping[str, Any]) -> bool:
    return all(last.get(name) == wire[name] for name in ("policy", "evidence", "facts"))

"""Stage 4b of the serving decision: the size of a deployment follows its load, and what decided it is written down.

What is chosen is `autoscale`; here is when: at most one decision an interval, at once where a person moved a limit, and
while a deployment wakes for what waits for it. Each change and each reason to hold goes into `Deployment.scaling` and
the history when its code or the size changes. While a revision is rolled out, it is the active one whose size this is.
Called by `cycle` and, for the size of a wake, by `pausing`.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.serving import goodput
from moorage.decide.serving.autoscale import TOLERANCE, Choice, Facts, Policy, choose, wake_size
from moorage.decide.serving.phase import desired_replicas, initial_scale
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.nouns import Deployment, Replica
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import TERMINAL_REPLICA, DeploymentStatus, ReplicaStatus


def resize(draft: Draft, snapshot: ServingSnapshot) -> None:
    """Keep `Deployment.scaling` up to the load. Nothing while it sleeps, is to sleep, or has no ready replica."""
    deployment = draft.row(snapshot.deployment)
    policy = Policy.of(deployment.spec)
    if deployment.status is not DeploymentStatus.CREATED or deployment.deleting or deployment.hold is not None:
        return
    if not policy.scales:
        _fixed(draft, deployment, policy)
    elif any(r.routed for r in _own(draft, deployment)):
        if deployment.initial_scale_reached:
            _follow_load(draft, snapshot, policy)
    elif deployment.waking is not None:
        demand = snapshot.demand
        _raise_wake(draft, deployment, policy, demand.held + demand.in_flight)


def _own(draft: Draft, deployment: Deployment) -> list[Replica]:
    """Live replicas of the revision whose size this is."""
    serving = deployment.active_revision or deployment.candidate_revision
    return [
        r
        for r in draft.of(Replica)
        if r.revision == serving and r.stopping is None and r.status not in TERMINAL_REPLICA
    ]


def _fixed(draft: Draft, deployment: Deployment, policy: Policy) -> None:
    """One that never scaled has nothing to tell; one that did says that it does no more."""
    kept = deployment.scaling
    if kept is not None and _code(kept) != "scale.disabled":
        _keep(draft, deployment, Choice(policy.low, reason("scale.disabled")))


def _raise_wake(draft: Draft, deployment: Deployment, policy: Policy, waiting: int) -> None:
    """While it wakes, what waits for it is its size at once: there is no mean of a level that was zero."""
    to, size = wake_size(policy, waiting), desired_replicas(deployment)
    if to > size:
        _keep(draft, deployment, Choice(to, _woken(size, to, waiting)))


def _woken(size: int, to: int, waiting: int) -> Reason:
    return reason("scale.up", **{"from": size, "to": to, "why": f"{waiting} requests wait for it to wake"})


def at_wake(draft: Draft, deployment: Deployment, waiting: int) -> None:
    """The size with which a deployment begins to wake; whatever size it had before it slept is over."""
    policy = Policy.of(deployment.spec)
    if not policy.scales:
        return
    to = wake_size(policy, waiting)
    why = _woken(0, to, waiting) if to > policy.low else policy.at_min()
    _keep(draft, deployment, Choice(to, why))


def _follow_load(draft: Draft, snapshot: ServingSnapshot, policy: Policy) -> None:
    deployment = draft.row(snapshot.deployment)
    kept: Mapping[str, Any] = deployment.scaling or {}
    first = max(initial_scale(deployment.spec), 1)
    facts = Facts(
        desired=int(kept.get("desired", first)),
        since=float(kept.get("since", draft.now)),
        grew_at=float(kept.get("grew_at", -math.inf)),
        no_room=_no_room(draft, deployment),
    )
    if policy.slo is not None:
        facts = _with_goodput(draft, snapshot, policy, facts)
        deployment = draft.row(snapshot.deployment)
    choice = choose(policy, snapshot.load, facts, draft.now)
    due = float(kept.get("at", 0.0)) + policy.interval_s
    limited = facts.desired != policy.clamp(facts.desired)
    if _is_news(deployment.scaling, choice):
        if draft.now >= due or limited:
            _keep(draft, deployment, choice)
        else:
            draft.look_again(due)
    draft.look_again(choice.until)
    if _moves(policy, snapshot, choice.desired):
        draft.look_again(draft.now + policy.interval_s)


def _moves(policy: Policy, snapshot: ServingSnapshot, size: int) -> bool:
    """Whether the urgent window may ask for more before any gateway has something new to tell."""
    demand = snapshot.demand
    level = float(demand.held + demand.in_flight)
    return level > size * policy.unit * (1.0 + TOLERANCE) and size < policy.high


def _no_room(draft: Draft, deployment: Deployment) -> str | None:
    for replica in _own(draft, deployment):
        why = replica.reason
        if replica.status is ReplicaStatus.PENDING and why is not None and why.code == "replica.queued":
            return str(why.params.get("why") or why.message)
    return None


def _with_goodput(draft: Draft, snapshot: ServingSnapshot, policy: Policy, facts: Facts) -> Facts:
    deployment = draft.row(snapshot.deployment)
    if policy.slo is None:
        return facts
    kept: Mapping[str, Any] = deployment.scaling or {}
    routed = sum(r.routed for r in _own(draft, deployment))
    bench = goodput.Bench(
        revision=deployment.active_revision or "",
        replicas=routed if routed == facts.desired else 0,
        steady_s=draft.now - facts.since,
        window_s=policy.down_after_s,
        at_load=policy.unit,
    )
    found = goodput.measure(kept.get("goodput"), policy.slo, snapshot.load, bench, draft.now)
    if found is not None and deployment.scaling is not None:
        draft.set(deployment, scaling={**deployment.scaling, "goodput": found})
    known = found if found is not None else kept.get("goodput")
    per_replica, why = goodput.qualified(known, bench.revision)
    return replace(facts, per_replica=per_replica, unqualified=why)


def _is_news(kept: Mapping[str, Any] | None, choice: Choice) -> bool:
    """The size or the code: what only counts, or is measured anew at each look, is no news."""
    return kept is None or int(kept["desired"]) != choice.desired or _code(kept) != choice.reason.code


def _code(kept: Mapping[str, Any]) -> str:
    return str(dict(kept.get("reason") or {}).get("code"))


def _keep(draft: Draft, deployment: Deployment, choice: Choice) -> None:
    """Into the row, and into the history."""
    current = draft.row(deployment)
    kept: Mapping[str, Any] = current.scaling or {}
    changed = not kept or int(kept["desired"]) != choice.desired
    scaling = {
        **kept,
        "desired": choice.desired,
        "since": draft.now if changed else kept["since"],
        "at": draft.now,
        "reason": choice.reason.to_wire(),
    }
    if choice.reason.code == "scale.up":
        scaling["grew_at"] = draft.now
    draft.set(deployment, scaling=scaling)
    draft.note(deployment, choice.reason)

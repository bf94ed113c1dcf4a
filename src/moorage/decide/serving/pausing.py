"""Stage 4: sleep and wake.

Pausing is a handshake: the route goes to *hold*; every leased gateway confirms that nothing is in flight and nothing
held; anything held aborts it; unconfirmed for 30 s it is lifted; only after that the deployment is paused and its
replicas stop. A wake is a level (something is held), one per pause; a wake that failed and that nobody waits for any
more goes back to sleep and stays wakeable.
"""

from collections.abc import Mapping
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.nouns import Deployment, Replica
from moorage.domain.reasons import reason
from moorage.domain.states import TERMINAL_REPLICA, DeploymentStatus

HOLD_LIMIT_S = 30.0


def sleep_or_wake(draft: Draft, snapshot: ServingSnapshot) -> None:
    """Advance whichever of the two is under way."""
    deployment = draft.row(snapshot.deployment)
    if deployment.deleting:
        return
    if deployment.status is DeploymentStatus.PAUSED:
        if snapshot.demand.held > 0:
            wake(draft, deployment, held=snapshot.demand.held)
    elif deployment.status is DeploymentStatus.CREATED:
        _created(draft, snapshot)


def wake(draft: Draft, deployment: Deployment, held: int) -> None:
    """paused → created; replicas follow in stage `scale`. A person's wake holds nothing (`held` 0)."""
    draft.step(
        deployment,
        DeploymentStatus.CREATED,
        "wake_request",
        reason("deploy.wake_request"),
        waking={"since": draft.now, "held": held},
        wakes=deployment.wakes + 1,
        paused_at=None,
        retry_at=None,
        failures_in_row=0,
    )


def _created(draft: Draft, snapshot: ServingSnapshot) -> None:
    deployment = draft.row(snapshot.deployment)
    if deployment.hold is not None:
        _hold(draft, snapshot, deployment.hold)
    elif deployment.waking is not None:
        _back_to_sleep(draft, snapshot)
    elif minimum(deployment) == 0:
        _idle(draft, snapshot)


def minimum(deployment: Deployment) -> int:
    """`replicas.min` of the spec."""
    return int(dict(deployment.spec).get("replicas", {}).get("min", 1))


def _hold(draft: Draft, snapshot: ServingSnapshot, hold: Mapping[str, Any]) -> None:
    deployment, demand = draft.row(snapshot.deployment), snapshot.demand
    by_person = hold.get("why") == "paused_by_person"
    limit = float(hold["since"]) + HOLD_LIMIT_S
    if demand.held > 0:
        _lift(draft, deployment, "a request came in")
    elif demand.published_mode == "hold" and demand.confirmed and demand.in_flight == 0:
        trigger, code = ("paused_by_person", "deploy.paused_by_person") if by_person else ("idle", "deploy.idle")
        draft.step(deployment, DeploymentStatus.PAUSED, trigger, reason(code), hold=None, paused_at=draft.now)
    elif draft.now >= limit:
        _lift(draft, deployment, "not every gateway confirmed within 30 s")
    else:
        draft.look_again(limit)


def _lift(draft: Draft, deployment: Deployment, why: str) -> None:
    draft.set(deployment, hold=None, active_at=draft.now)
    draft.note(deployment, reason("deploy.pause_aborted", why=why))


def _back_to_sleep(draft: Draft, snapshot: ServingSnapshot) -> None:
    deployment = draft.row(snapshot.deployment)
    waking = dict(deployment.waking or {})
    failed = deployment.failed_at is not None and deployment.failed_at >= float(waking.get("since", draft.now))
    alive = any(r.status not in TERMINAL_REPLICA and r.stopping is None for r in draft.of(Replica))
    if failed and not alive and snapshot.demand.held == 0 and minimum(deployment) == 0:
        last = dict(deployment.last_failure or {})
        message = dict(last.get("reason") or {}).get("message", "a replica failed")
        draft.step(
            deployment,
            DeploymentStatus.PAUSED,
            "wake_failed",
            reason("deploy.wake_failed", error=message),
            waking=None,
            paused_at=draft.now,
        )


def _idle(draft: Draft, snapshot: ServingSnapshot) -> None:
    """Idle since the last request ended, and never before something was ready."""
    deployment, demand = draft.row(snapshot.deployment), snapshot.demand
    if demand.held or demand.in_flight or deployment.candidate_revision is not None:
        return
    ready = [r.ready_at for r in draft.of(Replica) if r.routed and r.ready_at is not None]
    if not ready:
        return
    timeout_s = float(dict(deployment.spec).get("scaling", {}).get("idle_timeout", 3600.0))
    since = max(min(ready), deployment.active_at or 0.0)
    if demand.idle_s is not None:
        since = max(since, draft.now - demand.idle_s)
    if draft.now < since + timeout_s:
        draft.look_again(since + timeout_s)
        return
    draft.set(deployment, hold={"since": draft.now, "why": "idle"})
    draft.note(deployment, reason("deploy.pausing"))
    draft.look_again(draft.now + HOLD_LIMIT_S)

"""Stage 4: sleep and wake.

Pausing is a handshake: the route goes to *hold*; every leased gateway confirms that nothing is in flight and nothing
held; anything held aborts it, once a gateway says so that said it after the pause began (what one said before may be
over); unconfirmed for 30 s it is lifted; only after that the deployment is paused and its replicas stop. A wake is a
level (something is held), one per pause; a wake that failed and that nobody waits for any more goes back to sleep and
stays wakeable.
"""

from collections.abc import Mapping
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.serving.resizing import at_wake
from moorage.decide.serving.snapshot import Demand, ServingSnapshot
from moorage.domain.nouns import Deployment, Replica
from moorage.domain.reasons import reason
from moorage.domain.states import TERMINAL_REPLICA, DeploymentStatus

HOLD_LIMIT_S = 30.0

ACTIVITY_SHARE = 1.0 / 8.0
"""Of the idle time-out: how much later than the row says the last request may have ended."""

UNKNOWN_S = 5.0
"""Until the next look while a gateway has not yet said when its last request ended."""


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


def wake(draft: Draft, deployment: Deployment, *, held: int = 0, by: str | None = None) -> None:
    """paused → created; replicas follow in stage `scale`. Requests wake it (`held`), or a person does (`by`).

    The back-off of a wake that failed is kept: however often it is asked, a broken model is not started in a circle.
    """
    draft.step(
        deployment,
        DeploymentStatus.CREATED,
        "wake_request",
        reason("deploy.wake_request", held=held or None, by=by),
        waking={"since": draft.now, "held": held},
        wakes=deployment.wakes + 1,
        paused_at=None,
    )
    at_wake(draft, deployment, held)


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
    if demand.held > 0 and draft.now - demand.held_told_s >= float(hold["since"]):
        _lift(draft, deployment, "a request came in")
    elif not by_person and minimum(deployment) > 0:
        _lift(draft, deployment, "its minimum was raised")
    elif demand.published_mode == "hold" and demand.confirmed and demand.in_flight == demand.held == 0:
        trigger, code = ("paused_by_person", "deploy.paused_by_person") if by_person else ("idle", "deploy.idle")
        draft.step(deployment, DeploymentStatus.PAUSED, trigger, reason(code), failures_in_row=0, **_asleep(draft))
    elif draft.now >= limit:
        _lift(draft, deployment, "not every gateway confirmed within 30 s")
    else:
        draft.look_again(limit)


def _remember_activity(draft: Draft, deployment: Deployment, demand: Demand, slack_s: float) -> None:
    """The end of the last request survives a restart of the gateways, to within the slack, for few writes."""
    busy = demand.held or demand.in_flight
    last = draft.now if busy else draft.now - demand.idle_s if demand.idle_s is not None else None
    if last is not None and last > (deployment.active_at or 0.0) + slack_s:
        draft.set(deployment, active_at=last)


def _last_request(deployment: Deployment, demand: Demand, now: float, slack_s: float) -> float:
    """When the last request ended; 0 where there was none. What only the row remembers may have been later."""
    if demand.idle_s is not None:
        return max(now - demand.idle_s, deployment.active_at or 0.0)
    return deployment.active_at + slack_s if deployment.active_at else 0.0


def _asleep(draft: Draft) -> dict[str, Any]:
    """What is set when it goes to sleep: whoever wakes it queues anew, and no handshake, wake or size is left."""
    return {"hold": None, "waking": None, "paused_at": draft.now, "queued": {}, "scaling": None}


def _lift(draft: Draft, deployment: Deployment, why: str) -> None:
    draft.set(deployment, hold=None, active_at=draft.now)
    draft.note(deployment, reason("deploy.pause_aborted", why=why))


def _back_to_sleep(draft: Draft, snapshot: ServingSnapshot) -> None:
    deployment = draft.row(snapshot.deployment)
    if deployment.active_revision is not None and deployment.candidate_revision is not None:
        return  # while another revision is rolled out nothing goes to sleep
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
            **_asleep(draft),
        )


def _idle(draft: Draft, snapshot: ServingSnapshot) -> None:
    """Idle since the last request ended, and never before something was ready."""
    deployment, demand = draft.row(snapshot.deployment), snapshot.demand
    timeout_s = float(dict(deployment.spec).get("scaling", {}).get("idle_timeout", 3600.0))
    _remember_activity(draft, deployment, demand, timeout_s * ACTIVITY_SHARE)
    if demand.held or demand.in_flight or deployment.candidate_revision is not None:
        return
    ready = [r.ready_at for r in draft.of(Replica) if r.routed and r.ready_at is not None]
    if not ready:
        return
    if not demand.known:
        draft.look_again(draft.now + UNKNOWN_S)
        return
    since = max(min(ready), _last_request(deployment, demand, draft.now, timeout_s * ACTIVITY_SHARE))
    if draft.now < since + timeout_s:
        draft.look_again(since + timeout_s)
        return
    draft.set(deployment, hold={"since": draft.now, "why": "idle"})
    draft.note(deployment, reason("deploy.pausing"))
    draft.look_again(draft.now + HOLD_LIMIT_S)

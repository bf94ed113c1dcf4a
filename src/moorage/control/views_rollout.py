"""A rollout as the API shows it, and in plain words: what moves, what it waits for, and what still drains.

Pure: rows and what gateways report in, JSON values out. Called by `control.reading`; the words are the same for every
client, so that none has to know the rules.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.control.views import JsonObject, iso, plain
from moorage.decide.serving.evidence import compared
from moorage.decide.serving.guard.policy import Policy
from moorage.decide.serving.phase import desired_replicas, is_ready
from moorage.decide.serving.rollout.record import Rollout, rollout_of, terms_of
from moorage.decide.serving.rollout.sizes import gives_its_place
from moorage.decide.serving.snapshot import Demand
from moorage.domain.nouns import Deployment, Replica, Revision
from moorage.domain.states import TERMINAL_REPLICA, ReplicaStatus, RevisionState
from moorage.domain.units import format_duration

AT: Mapping[ReplicaStatus, str] = {
    ReplicaStatus.PENDING: "waits for its place",
    ReplicaStatus.PULLING: "fetches its image or model",
    ReplicaStatus.INITING: "loads",
    ReplicaStatus.RUNNING: "is ready",
}
"""What a replica does, in words."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a rollout is shown by.

    Args:
        deployment, revisions: the rows.
        replicas: those that are not over, at least.
        demand: its traffic, where this control plane hears it.
        now: seconds since the epoch.
    """

    deployment: Deployment
    revisions: Sequence[Revision]
    replicas: Sequence[Replica]
    demand: Demand | None
    now: float

    def revision(self, uid: str | None) -> Revision | None:
        """The revision of that uid."""
        return next((r for r in self.revisions if uid is not None and r.uid == uid), None)

    def live(self, revision: str) -> list[Replica]:
        """Its replicas that are not over."""
        return [r for r in self.replicas if r.revision == revision and r.status not in TERMINAL_REPLICA]

    def ready(self, revision: str) -> int:
        """How many of them can answer."""
        return sum(map(is_ready, self.live(revision)))

    @property
    def draining(self) -> Revision | None:
        """The revision that was replaced and may still answer."""
        return next((r for r in self.revisions if r.state is RevisionState.DRAINING), None)


def is_shown(scene: Scene) -> bool:
    """Whether anything moves: a rollout, a rollback, the window after a promotion, or a revision that drains."""
    return rollout_of(scene.deployment) is not None or scene.draining is not None


def rollout_object(scene: Scene) -> JsonObject:
    """A Rollout. With nothing under way, `kind_of` is null and `revision` the active one."""
    row, rollout = scene.deployment, rollout_of(scene.deployment)
    revision = scene.revision(rollout.candidate if rollout else row.active_revision)
    baseline = scene.revision(rollout.baseline if rollout else row.previous_revision)
    decision = _last_decision(revision)
    if rollout is not None and rollout.kind == "rollback":  # not what was said when it first came to serve
        decision = _what_sent_back(baseline)
    return {
        "kind": "Rollout",
        "deployment": row.uid,
        "name": row.name,
        "namespace": row.namespace,
        "kind_of": rollout.kind if rollout else None,
        "revision": revision.uid if revision else None,
        "number": revision.number if revision else None,
        "state": str(revision.state) if revision else None,
        "baseline": _baseline(baseline),
        "strategy": rollout.strategy if rollout else terms_of(row).strategy,
        "steps": list(terms_of(row).steps),
        "step": rollout.step if rollout else None,
        "weight": rollout.weight if rollout else None,
        "step_until": iso(_step_until(row, rollout)),
        "auto": terms_of(row).auto,
        "since": iso(rollout.since) if rollout else None,
        "deadline": iso(rollout.deadline) if rollout else None,
        "window_until": iso(rollout.window_until) if rollout else None,
        "by": rollout.by if rollout else None,
        "why": rollout.why if rollout else None,
        "evidence": _evidence(scene, rollout),
        "decision": decision,
        "replicas": {
            "ready": scene.ready(revision.uid) if revision else 0,
            "wanted": _wanted(scene, rollout, revision),
        },
        "confirmed": sorted(g for g, yes in (scene.demand.gateways if scene.demand else {}).items() if yes),
        "draining": _draining(scene),
        "message": words(scene),
    }


def words(scene: Scene) -> str:
    """All of it in a sentence or two."""
    rollout = rollout_of(scene.deployment)
    said = [_moving(scene, rollout)] if rollout is not None else []
    left = _draining(scene)
    if left is not None:
        said.append(_drains(left))
    if said:
        return "; ".join(said)
    active = scene.revision(scene.deployment.active_revision)
    return f"nothing is rolled out; revision {active.number} serves" if active else "no revision serves yet"


def decision_object(kept: Mapping[str, Any], revision: Revision) -> JsonObject:
    """A GuardDecision, with the revision it was about."""
    shown = {"kind": "GuardDecision", "revision": revision.uid, "number": revision.number}
    return {**shown, **plain(kept)}


# Parts


def _baseline(revision: Revision | None) -> JsonObject | None:
    if revision is None:
        return None
    return {"revision": revision.uid, "number": revision.number, "state": str(revision.state)}


def _last_decision(revision: Revision | None) -> JsonObject | None:
    if revision is None or not revision.decisions:
        return None
    return decision_object(revision.decisions[-1], revision)


def _what_sent_back(left: Revision | None) -> JsonObject | None:
    """The decision by which a revision is gone back from; None: a person ordered it."""
    last = _last_decision(left)
    return last if last is not None and last.get("verdict") == "REJECT" else None


def _step_until(row: Deployment, rollout: Rollout | None) -> float | None:
    terms = terms_of(row)
    if rollout is None or rollout.kind != "rollout" or rollout.strategy != "canary" or rollout.step >= len(terms.steps):
        return None
    return rollout.step_since + terms.step_interval_s


def _evidence(scene: Scene, rollout: Rollout | None) -> JsonObject | None:
    """Requests that count on each side, and how many the guard needs."""
    if rollout is None or rollout.kind == "rollback":
        return None
    strategy = "window" if rollout.kind == "window" else rollout.strategy
    sides = {"candidate": scene.revision(rollout.candidate), "active": scene.revision(rollout.baseline)}
    counted = {word: compared(r.evidence, strategy).requests if r else 0 for word, r in sides.items()}
    return {"needed": Policy.of(terms_of(scene.deployment).guard).minimum_requests, **counted}


def _wanted(scene: Scene, rollout: Rollout | None, revision: Revision | None) -> int:
    """Ready replicas that what is under way goes on with: one while it is compared, else the load's."""
    if rollout is None or rollout.kind == "window" or revision is None:
        return desired_replicas(scene.deployment)
    grows = rollout.kind == "rollback" or revision.state is RevisionState.PROMOTING
    return max(desired_replicas(scene.deployment), 1) if grows else 1


def _draining(scene: Scene) -> JsonObject | None:
    revision = scene.draining
    if revision is None:
        return None
    left = scene.live(revision.uid)
    demand = scene.demand
    streams = sum(demand.by_replica.get(r.uid, 0) for r in left) if demand is not None and demand.known else None
    ages = [demand.oldest_s[r.uid] for r in left if r.uid in demand.oldest_s] if demand is not None else []
    until = max((float(r.stopping["drain_until"]) for r in left if r.stopping is not None), default=None)
    return {
        "revision": revision.uid,
        "number": revision.number,
        "replicas": len(left),
        "streams": streams,
        "oldest_s": round(max(ages), 3) if ages else None,
        "until": iso(until),
        "left_s": None if until is None else round(max(until - scene.now, 0.0), 3),
    }


# Words


def _moving(scene: Scene, rollout: Rollout) -> str:
    candidate, baseline = scene.revision(rollout.candidate), scene.revision(rollout.baseline)
    number, other = candidate.number if candidate else "?", baseline.number if baseline else "?"
    if candidate is None:
        return f"revision {number} is rolled out"
    if rollout.kind == "window":
        left = _span(max((rollout.window_until or scene.now) - scene.now, 0.0))
        return f"revision {number} serves since it replaced revision {other}, and is watched for {left} more"
    if rollout.kind == "rollback":
        why = f" ({rollout.why})" if rollout.why else ""
        return f"going back to revision {number}{why}: {_ready_of(scene, rollout, candidate)}; {other} serves meanwhile"
    if candidate.state in (RevisionState.CANDIDATE, RevisionState.PROVISIONING):
        return f"revision {number} starts: {_starting(scene, candidate)}; {_meanwhile(scene, rollout)}"
    if candidate.state is RevisionState.PROMOTING:
        return f"revision {number} is accepted and scaled to take over: {_ready_of(scene, rollout, candidate)}"
    if _is_alone(scene, rollout):
        return f"revision {number} proves itself, {_meanwhile(scene, rollout)}: {_compared(scene, rollout)}"
    return f"revision {number} is compared with revision {other}{_share(scene, rollout)}: {_compared(scene, rollout)}"


def _is_alone(scene: Scene, rollout: Rollout) -> bool:
    """The active revision was stopped to make room, so that the candidate alone is asked."""
    return not scene.ready(rollout.baseline) and gives_its_place(scene.deployment, rollout)


def _meanwhile(scene: Scene, rollout: Rollout) -> str:
    """What answers clients while the candidate is on its way."""
    baseline = scene.revision(rollout.baseline)
    other = baseline.number if baseline else "?"
    if _is_alone(scene, rollout):
        return f"revision {other} is stopped to make room for it, and requests are held"
    return f"revision {other} serves meanwhile"


def _ready_of(scene: Scene, rollout: Rollout, candidate: Revision) -> str:
    return f"{scene.ready(candidate.uid)} of {_wanted(scene, rollout, candidate)} replicas ready"


def _starting(scene: Scene, candidate: Revision) -> str:
    """What its first replica is at, or why it has none."""
    last = dict(dict(candidate.last_failure or {}).get("reason") or {}).get("message")
    if candidate.retry_at is not None and candidate.retry_at > scene.now:
        return f"its last replica failed ({last}), the next try is in {_span(candidate.retry_at - scene.now)}"
    live = scene.live(candidate.uid)
    if not live:
        return "no replica of it was asked for yet"
    word, reason = AT[live[-1].status], live[-1].reason
    return f"its replica {word}" + (f" ({reason.message})" if reason else "")


def _share(scene: Scene, rollout: Rollout) -> str:
    terms = terms_of(scene.deployment)
    if rollout.strategy == "canary":
        step = min(rollout.step + 1, len(terms.steps))
        return f" ({rollout.weight} % of the requests, step {step} of {len(terms.steps)})"
    told = {"header": "requests that ask for it", "mirror": "copies of requests"}.get(rollout.strategy)
    return f" ({told})" if told else ""


def _compared(scene: Scene, rollout: Rollout) -> str:
    candidate = scene.revision(rollout.candidate)
    last = candidate.decisions[-1] if candidate and candidate.decisions else None
    if last is not None and last.get("verdict") == "ACCEPT":
        if rollout.steady_s:
            span = _span(rollout.steady_s)
            return f"accepted so far; it ceased to be ready before, so it must stay ready for {span} at a stretch"
        if not terms_of(scene.deployment).auto:
            return f"accepted, and waits for  moor promote {scene.deployment.name}"
        return "accepted so far; its steps go on"
    seen = _evidence(scene, rollout) or {}
    sides = ("candidate",) if _is_alone(scene, rollout) else ("candidate", "active")
    few = min(seen.get(word, 0) for word in sides) < seen.get("needed", 0)
    if few or last is None:
        return _counted(seen, alone=_is_alone(scene, rollout))
    return "; ".join(dict.fromkeys(str(r.get("message")) for r in last.get("reasons") or ()))


def _counted(seen: Mapping[str, int], *, alone: bool) -> str:
    """How far each side is, never beyond what is needed."""
    needed = seen.get("needed", 0)
    at_it, at_other = (f"{min(seen.get(word, 0), needed)} of {needed}" for word in ("candidate", "active"))
    return f"{at_it} requests at it" + ("" if alone else f", {at_other} at the other")


def _drains(left: Mapping[str, Any]) -> str:
    streams = left["streams"]
    told = "requests in flight are not known"
    if streams is not None:
        told = f"{streams} request{'' if streams == 1 else 's'} in flight"
    oldest = f", the oldest for {_span(left['oldest_s'])}" if left["oldest_s"] is not None else ""
    until = f", for at most {_span(left['left_s'])} more" if left["left_s"] is not None else ""
    return f"revision {left['number']} drains: {told}{oldest}{until}"


def _span(length_s: float) -> str:
    """A length of time to the second."""
    return format_duration(float(round(length_s)))


def named(revisions: Iterable[Revision], word: str) -> Revision | None:
    """The revision that is called so by number, name or uid."""
    return next((r for r in revisions if word in (r.uid, r.name, str(r.number))), None)

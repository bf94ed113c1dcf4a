"""Where a deployment's requests may go, as rows show it: the content of its route, as plain values.

The publisher in `moorage.control.routing` turns it into a message and numbers the generation. Reads worker rows as
they are, so that a crash is withdrawn by the very commit that records it, before the serving decision ran.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from moorage.decide.serving.adopted import target
from moorage.decide.serving.goodput import MEASURED, Slo
from moorage.decide.serving.replicas import routable
from moorage.decide.serving.rollout.record import Rollout, rollout_of, takes_requests
from moorage.decide.serving.rollout.roles import serving_uid
from moorage.domain.nouns import Deployment, Replica, Revision, Worker
from moorage.domain.states import DeploymentStatus

Mode = Literal["serve", "hold", "asleep", "starting", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """One replica that may be asked."""

    replica: Replica
    worker: Worker


@dataclass(frozen=True, slots=True)
class RouteRevision:
    """How requests come to one revision of the targets; the fields mean what `wire.routing.RevisionRoute` says."""

    revision: Revision
    role: Literal["active", "candidate"] = "active"
    by: Literal["share", "header", "mirror"] = "share"
    share: float = 100.0
    """per cent"""


@dataclass(frozen=True, slots=True)
class Route:
    """The route of one deployment's endpoint."""

    mode: Mode
    targets: tuple[RouteTarget, ...]
    error: str | None = None
    error_code: str | None = None
    revisions: tuple[RouteRevision, ...] = ()
    """of the targets' revisions; empty: all targets are alike"""
    evidence_id: str | None = None
    """while set, gateways count by revision what clients meet"""


def route_of(
    deployment: Deployment,
    replicas: Iterable[Replica],
    workers: Mapping[str, Worker],
    revisions: Iterable[Revision] = (),
) -> Route:
    """The route as the rows imply it.

    Args:
        replicas: those that are not terminal.
        workers: by run uid.
        revisions: those that `Deployment.rollout` names, where there is one.
    """
    mode = _settled(deployment)
    if mode is not None:
        return Route(mode, (), *_error(deployment))
    if deployment.upstream is not None:
        return _adopted(deployment)
    targets = tuple(
        RouteTarget(r, workers[r.run])
        for r in sorted(replicas, key=lambda r: r.uid)
        if takes_requests(deployment, r.revision) and r.run in workers and routable(r, workers[r.run])
    )
    told, evidence_id = _compared(deployment, targets, {r.uid: r for r in revisions})
    if not told:  # nothing says how requests would come to a candidate, so none do
        targets = tuple(t for t in targets if t.replica.revision == serving_uid(deployment))
    if deployment.hold is not None:
        return Route("hold", targets)
    if targets:
        return Route("serve", targets, revisions=told, evidence_id=evidence_id)
    return Route("starting", (), *_error(deployment), evidence_id=evidence_id)


def _adopted(deployment: Deployment) -> Route:
    """Of a server that somebody else started: it gets requests as its mode and its health allow."""
    name, upstream = f"{deployment.namespace}/{deployment.name}", dict(deployment.upstream or {})
    if upstream.get("mode") == "observe":
        return Route("stopped", (), f"{name} is only observed; ask it at {upstream['url']}", "observed_only")
    found = target(deployment)
    if found is None:
        return Route(
            "starting", (), f"{name} does not serve: {upstream.get('why') or 'not seen yet'}", "no_ready_replica"
        )
    return Route("serve", (RouteTarget(*found),))


def _compared(
    deployment: Deployment, targets: Iterable[RouteTarget], revisions: Mapping[str, Revision]
) -> tuple[tuple[RouteRevision, ...], str | None]:
    """How requests come to the two revisions of a comparison; a candidate that takes none is not told of."""
    rollout = rollout_of(deployment)
    if rollout is None or rollout.evidence_id is None:
        return (), _measured(deployment)
    here = {t.replica.revision for t in targets}
    shares = []
    for uid, role in ((rollout.baseline, "active"), (rollout.candidate, "candidate")):
        if rollout.kind == "rollout" and uid in revisions and (role == "active" or uid in here):
            shares.append(_share(revisions[uid], role, rollout))
    return tuple(shares) if len(shares) > 1 else (), rollout.evidence_id


def _measured(deployment: Deployment) -> str | None:
    """Under which latencies are counted where its size follows an SLO and nothing is compared."""
    if deployment.active_revision is None or Slo.of((deployment.spec.get("scaling") or {}).get("slo")) is None:
        return None
    return f"{MEASURED}{deployment.active_revision}"


def _share(revision: Revision, role: str, rollout: Rollout) -> RouteRevision:
    if role == "active":
        return RouteRevision(revision, "active", "share", 100.0 - rollout.weight)
    if rollout.strategy == "header":
        return RouteRevision(revision, "candidate", "header", 0.0)
    if rollout.strategy == "mirror":
        return RouteRevision(revision, "candidate", "mirror", 100.0)
    return RouteRevision(revision, "candidate", "share", float(rollout.weight))


def _settled(deployment: Deployment) -> Mode | None:
    if deployment.deleting or deployment.status is DeploymentStatus.STOPPED:
        return "stopped"
    if deployment.status is DeploymentStatus.FAILED:
        return "failed"
    if deployment.status is DeploymentStatus.PAUSED:
        return "asleep"
    return None


def _error(deployment: Deployment) -> tuple[str | None, str | None]:
    """What a refused or given-up request is told."""
    name = f"{deployment.namespace}/{deployment.name}"
    if deployment.deleting:
        return f"deployment {name} is being deleted", "deployment_deleting"
    if deployment.status is DeploymentStatus.STOPPED:
        return f"deployment {name} is stopped", "deployment_stopped"
    last: Mapping[str, Any] = deployment.last_failure or {}
    message = dict(last.get("reason") or {}).get("message")
    if deployment.status is DeploymentStatus.FAILED:
        return f"deployment {name} failed: {message or 'see moor why'}", "deployment_failed"
    if message and deployment.failures_in_row:
        return f"deployment {name} has no ready replica; the last one failed: {message}", "no_ready_replica"
    return None, None

"""Where a deployment's requests may go, as rows show it: the content of its route, as plain values.

The publisher in `moorage.control.routing` turns it into a message and numbers the generation. Reads worker rows as
they are, so that a crash is withdrawn by the very commit that records it, before the serving decision ran.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from moorage.decide.serving.replicas import routable
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


def route_of(deployment: Deployment, replicas: Iterable[Replica], workers: Mapping[str, Worker]) -> Route:
    """The route as the rows imply it.

    Args:
        replicas: those that are not terminal.
        workers: by run uid.
    """
    mode = _settled(deployment)
    if mode is not None:
        return Route(mode, (), *_error(deployment))
    targets = tuple(
        RouteTarget(r, workers[r.run])
        for r in sorted(replicas, key=lambda r: r.uid)
        if r.run in workers and routable(r, workers[r.run])
    )
    if deployment.hold is not None:
        return Route("hold", targets)
    if targets:
        return Route("serve", targets)
    return Route("starting", (), *_error(deployment))


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

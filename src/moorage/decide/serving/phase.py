"""What a deployment is doing, derived from rows: the phase word and the counts beside it (the lifecycle contract §7).

Called by the views, so that the API, the CLI and the waiting rules all read one derivation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.domain.nouns import Deployment, Operation, Replica, Revision
from moorage.domain.states import DeploymentStatus, OperationState, Phase, ReplicaStatus, RevisionState

OPEN_OPERATION = frozenset(
    {
        OperationState.PENDING,
        OperationState.LEASED,
        OperationState.RUNNING,
        OperationState.WAITING,
        OperationState.CANCELLING,
        OperationState.NEEDS_ATTENTION,
    }
)
"""States of an operation that is not over."""

IN_PROMOTION = frozenset(
    {RevisionState.CANDIDATE, RevisionState.PROVISIONING, RevisionState.EVALUATING, RevisionState.PROMOTING}
)
STARTING = frozenset({ReplicaStatus.PENDING, ReplicaStatus.PULLING, ReplicaStatus.INITING})


KEPT_BACK = "replica.candidate"
"""Why a ready replica is not routed: its revision is a candidate that gets no requests of clients."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Replicas by what they do now. `ready` is routable; `current` counts status running."""

    desired: int
    current: int
    ready: int
    starting: int


def initial_scale(spec: Mapping[str, Any]) -> int:
    """Replicas that must be ready before the deployment counts as started: `initial`, never below `min`."""
    replicas = spec.get("replicas") or {}
    low = int(replicas.get("min", 1))
    return max(int(replicas.get("initial", max(low, 1))), low)


def bounds(spec: Mapping[str, Any]) -> tuple[int, int]:
    """Fewest and most replicas of one that is awake: at least one, and `max` never below `min`."""
    replicas = spec.get("replicas") or {}
    low = max(int(replicas.get("min", 1)), 1)
    return low, max(int(replicas.get("max") or low), low)


def desired_replicas(deployment: Deployment) -> int:
    """How many replicas the deployment should have now: what the autoscaler decided, within the limits."""
    if deployment.status is not DeploymentStatus.CREATED or deployment.deleting:
        return 0
    low, high = bounds(deployment.spec)
    if not deployment.initial_scale_reached:
        low = max(initial_scale(deployment.spec), 1)
    scaled = int((deployment.scaling or {}).get("desired", low))
    return max(min(scaled, high), low)


def is_ready(replica: Replica) -> bool:
    """Whether it can answer now, be it that only a candidate's place keeps requests from it."""
    if replica.status is not ReplicaStatus.RUNNING or replica.stopping is not None:
        return False
    return replica.routed or dict(replica.routed_why or {}).get("code") == KEPT_BACK


def of_candidate(deployment: Deployment, replica: Replica) -> bool:
    """Whether it belongs to a candidate beside the revision that serves."""
    return deployment.active_revision is not None and replica.revision == deployment.candidate_revision


def deployment_counts(deployment: Deployment, replicas: Iterable[Replica]) -> Counts:
    """Counts over the replicas of what serves, terminal ones given or not; those of a candidate are not among them."""
    if deployment.upstream is not None:  # there is the one that somebody else runs
        desired = int(deployment.status is DeploymentStatus.CREATED and not deployment.deleting)
        healthy = int(bool(deployment.upstream.get("healthy")))
        return Counts(desired, healthy * desired, healthy * desired, 0)
    current = ready = starting = 0
    for replica in replicas:
        if of_candidate(deployment, replica):
            continue
        if replica.status is ReplicaStatus.RUNNING and replica.stopping is None:
            current += 1
            ready += replica.routed
        elif replica.status in STARTING and replica.stopping is None:
            starting += 1
    return Counts(desired_replicas(deployment), current, ready, starting)


def promotion_in_progress(deployment: Deployment, revisions: Iterable[Revision]) -> bool:
    """Whether a candidate is on its way beside an active revision."""
    if deployment.active_revision is None or deployment.candidate_revision is None:
        return False
    return any(r.uid == deployment.candidate_revision and r.state in IN_PROMOTION for r in revisions)


def deployment_phase(
    deployment: Deployment,
    revisions: Iterable[Revision],
    replicas: Iterable[Replica],
    operation: Operation | None,
    now: float,
) -> Phase:
    """The first match of the contract's list.

    Args:
        revisions, replicas: rows of this deployment; terminal replicas may be left out.
        operation: the open operation of the deployment, if any.
        now: unused by the present rules; part of the signature because a phase is a fact of a moment.
    """
    del now
    replicas = tuple(replicas)
    status = deployment.status
    going = operation is not None and operation.operation in ("stop", "delete") and operation.state in OPEN_OPERATION
    if deployment.deleting or going:
        return Phase.DEACTIVATING
    if status is DeploymentStatus.STOPPED:
        return Phase.INACTIVE if deployment.ever_ready or deployment.past_pulling else Phase.BUILD_STOPPED
    if status is DeploymentStatus.FAILED:
        return _failed_phase(deployment)
    if status is DeploymentStatus.PAUSED:
        return Phase.SCALED_TO_ZERO
    counts = deployment_counts(deployment, replicas)
    if counts.ready > 0:
        return Phase.UPDATING if promotion_in_progress(deployment, revisions) else Phase.ACTIVE
    if deployment.upstream is not None:
        return Phase.UNHEALTHY if deployment.ever_ready else Phase.DEPLOYING
    if deployment.failures_in_row >= 3 or (deployment.fatal_since_ran and deployment.initial_scale_reached):
        return Phase.UNHEALTHY
    if deployment.waking is not None:
        return Phase.WAKING_UP
    live = [r for r in replicas if r.stopping is None]
    if any(r.status is ReplicaStatus.PULLING for r in live):
        return Phase.BUILDING
    if any(r.status is ReplicaStatus.INITING for r in live):
        return Phase.LOADING_MODEL
    return Phase.DEPLOYING


def _failed_phase(deployment: Deployment) -> Phase:
    if dict(deployment.last_failure or {}).get("fail_reason") == "image_pull_failed":
        return Phase.BUILD_FAILED
    return Phase.FAILED if deployment.ever_ready else Phase.DEPLOY_FAILED

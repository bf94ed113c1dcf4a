"""The state words of every noun. Which may follow which is in `lifecycles/`; what they mean is in the reference."""

from enum import StrEnum


class DeploymentStatus(StrEnum):
    """What was decided about a deployment (its `phase` says what is happening)."""

    CREATED = "created"
    PAUSED = "paused"
    FAILED = "failed"
    STOPPED = "stopped"


class RevisionState(StrEnum):
    """One immutable version of what a deployment serves."""

    CANDIDATE = "candidate"
    PROVISIONING = "provisioning"
    EVALUATING = "evaluating"
    PROMOTING = "promoting"
    ACTIVE = "active"
    DRAINING = "draining"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ReplicaStatus(StrEnum):
    """The serving view of one service run."""

    PENDING = "pending"
    PULLING = "pulling_docker_image"
    INITING = "initing_docker_container"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"


class RunState(StrEnum):
    """Derived from the run's workers."""

    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class WorkerState(StrEnum):
    """One process (or container) of a run on one machine."""

    PENDING = "Pending"
    PREPARING = "Preparing"
    PULLING = "Pulling"
    READY_TO_START = "ReadyToStart"
    STARTING = "Starting"
    RUNNING = "Running"
    STALE = "Stale"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    DOWN = "Down"


ACTIVE_WORKER = frozenset(
    {
        WorkerState.PREPARING,
        WorkerState.PULLING,
        WorkerState.READY_TO_START,
        WorkerState.STARTING,
        WorkerState.RUNNING,
        WorkerState.STALE,
    }
)
"""*Active* of the contract: from Preparing to Stale."""

ENDED_WORKER = frozenset({WorkerState.COMPLETED, WorkerState.FAILED, WorkerState.CANCELLED, WorkerState.DOWN})
"""States in which nothing of the worker is running as far as is known."""

TERMINAL_RUN = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED})
TERMINAL_REPLICA = frozenset({ReplicaStatus.FAILED, ReplicaStatus.STOPPED})


class MachineState(StrEnum):
    """A machine as its agent's lease shows it."""

    JOINING = "Joining"
    READY = "Ready"
    NOT_READY = "NotReady"
    RECONCILING = "Reconciling"
    DOWN = "Down"
    REMOVED = "Removed"


class NamespaceState(StrEnum):
    """A namespace has no life of its own: it is there."""

    ACTIVE = "active"


class KeyState(StrEnum):
    """A client's key of a namespace. That its time is over is seen by the clock, and no state."""

    ACTIVE = "active"
    REVOKED = "revoked"


class EndpointState(StrEnum):
    """An endpoint that people made has no life of its own: it is there, and bound to deployments."""

    ACTIVE = "active"


class OperationState(StrEnum):
    """A durable, keyed, resumable piece of work."""

    PENDING = "pending"
    LEASED = "leased"
    RUNNING = "running"
    WAITING = "waiting"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NEEDS_ATTENTION = "needs_attention"


class RunnerState(StrEnum):
    """One model server in the runner library."""

    STOPPED = "stopped"
    PULLING = "pulling"
    LOADING = "loading"
    RUNNING = "running"
    STOPPING = "stopping"
    ERROR = "error"


class StopCause(StrEnum):
    """Why a worker was asked to stop; decides what happens next."""

    USER = "user"
    PREEMPTION = "preemption"
    TIME_LIMIT = "time_limit"
    GANG_RESTART = "gang_restart"
    BARRIER_TIMEOUT = "barrier_timeout"
    MACHINE_DRAIN = "machine_drain"
    RUN_ENDED = "run_ended"
    WORKER_FAILED = "worker_failed"
    DEFAULT = "default"


class Phase(StrEnum):
    """What a deployment is doing, derived (LIFECYCLE §7)."""

    DEACTIVATING = "DEACTIVATING"
    BUILD_STOPPED = "BUILD_STOPPED"
    INACTIVE = "INACTIVE"
    BUILD_FAILED = "BUILD_FAILED"
    DEPLOY_FAILED = "DEPLOY_FAILED"
    FAILED = "FAILED"
    SCALED_TO_ZERO = "SCALED_TO_ZERO"
    UPDATING = "UPDATING"
    ACTIVE = "ACTIVE"
    UNHEALTHY = "UNHEALTHY"
    WAKING_UP = "WAKING_UP"
    BUILDING = "BUILDING"
    LOADING_MODEL = "LOADING_MODEL"
    DEPLOYING = "DEPLOYING"

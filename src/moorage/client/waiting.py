"""When a wait is over: pure rules over what was read last (the lifecycle contract §7, "Waiting").

The polarity is the point: only named words end a wait, every other word, unknown ones included, keeps polling. Nothing
here reads a clock or a socket; the loop that does is in `watching`. Called by it alone.

    ready   ACTIVE, SCALED_TO_ZERO
    failed  BUILD_FAILED, BUILD_STOPPED, DEPLOY_FAILED, FAILED, INACTIVE, UNHEALTHY
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = Mapping[str, Any]

READY = frozenset({"ACTIVE", "SCALED_TO_ZERO"})
FAILED = frozenset({"BUILD_FAILED", "BUILD_STOPPED", "DEPLOY_FAILED", "FAILED", "INACTIVE", "UNHEALTHY"})
ENDED = frozenset({"INACTIVE", "BUILD_STOPPED", "BUILD_FAILED", "DEPLOY_FAILED", "FAILED"})
"""Words that satisfy `stopped`: nothing of it runs or will run. UNHEALTHY and DEACTIVATING are on their way."""

BY_PERSON = frozenset({"INACTIVE", "BUILD_STOPPED"})
"""Failed words that a person caused: an earlier crash is not why."""

REVISION_LOST = frozenset({"rejected", "failed", "cancelled", "superseded"})
"""States of a bound revision from which it will not be the one that serves. superseded: another took its place."""

OPERATION_LOST = frozenset({"failed", "cancelled", "needs_attention"})
RUN_ENDED = frozenset({"Completed", "Failed", "Cancelled"})


class Goal(StrEnum):
    """What is waited for."""

    ACCEPTED = "accepted"
    READY = "ready"
    LIVE = "live"
    PROMOTED = "promoted"
    STOPPED = "stopped"
    COMPLETED = "completed"
    RUNNING = "running"
    DELETED = "deleted"


DEPLOYMENT_GOALS = frozenset({Goal.ACCEPTED, Goal.READY, Goal.LIVE, Goal.PROMOTED, Goal.STOPPED})
RUN_GOALS = frozenset({Goal.ACCEPTED, Goal.RUNNING, Goal.COMPLETED, Goal.STOPPED, Goal.DELETED})


@dataclass(frozen=True, slots=True)
class Bound:
    """What the wait belongs to, so that it never takes an older revision, or a namesake, for the one meant.

    Args:
        revision: uid of the revision that an apply returned.
        operation: uid of the operation that it returned.
        deployment: uid of the deployment.
    """

    revision: str | None = None
    operation: str | None = None
    deployment: str | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """The goal is reached. `serving` and `desired` say at what scale: a success at zero is never vacuous."""

    serving: bool
    desired: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The goal will not be reached.

    Args:
        why: a sentence.
        reason: the reason object behind it, if there is one.
        by_failure: whether the last failure (exit code, log) is what caused it, and not a person.
    """

    why: str
    reason: Json | None = None
    by_failure: bool = False


@dataclass(frozen=True, slots=True)
class KeepPolling:
    """Not yet. `why` says what is missing."""

    why: str


Verdict = Done | Failed | KeepPolling


@dataclass(frozen=True, slots=True)
class Beside:
    """What was read beside the deployment, where it was needed: the bound revision and the bound operation."""

    revision: Json | None = None
    operation: Json | None = field(default=None)


def judge(goal: Goal | str, deployment: Json, bound: Bound | None = None, beside: Beside | None = None) -> Verdict:
    """Whether the wait for `goal` is over, as this deployment object shows it.

    Args:
        goal: accepted, ready, live, promoted or stopped.
        deployment: the API's Deployment, or its tombstone (`deleted: true`).
        bound: what the wait belongs to; None: whatever the name means.
        beside: the bound revision and operation, where they were read.
    """
    goal, bound, beside = Goal(goal), bound or Bound(), beside or Beside()
    if goal is Goal.ACCEPTED:
        return _done(deployment)  # whatever can be read is durable
    if _is_gone(deployment, bound):
        if goal is Goal.STOPPED:
            return Done(False, 0)
        return Failed("it was deleted", deployment.get("reason"))
    if goal is Goal.STOPPED:
        return _stopped(deployment)
    lost = _lost(beside)
    if lost is not None:
        return lost
    failed = _failed_word(deployment)
    if failed is not None:
        return failed
    return {Goal.READY: _ready, Goal.LIVE: _live, Goal.PROMOTED: _promoted}[goal](deployment, bound)


def judge_run(goal: Goal | str, run: Json) -> Verdict:
    """As `judge`, for a Run (or its tombstone).

    `completed` needs state Completed; `running` is content with that as well; `stopped` with any end; `deleted` needs
    the tombstone.
    """
    goal, state = Goal(goal), str(run.get("state"))
    if goal is Goal.ACCEPTED:
        return Done(False, None)
    if run.get("deleted"):
        over = goal in (Goal.STOPPED, Goal.DELETED)
        return Done(False, 0) if over else Failed("it was deleted", run.get("reason"))
    if goal is Goal.DELETED:
        return KeepPolling("is being deleted" if run.get("deleting") else f"is {state} and not being deleted")
    if goal is Goal.RUNNING and state == "Running":
        return Done(False, None)
    if state not in RUN_ENDED:
        return KeepPolling(f"is {state}")
    if state == "Completed" or goal is Goal.STOPPED:
        return Done(False, 0)
    return Failed(f"ended {state}", run.get("reason"), by_failure=state == "Failed")


def judge_operation(operation: Json) -> Verdict:
    """Whether an operation is over. needs_attention fails: it goes on only after a person resolved it."""
    state = str(operation.get("state"))
    if state == "succeeded":
        return Done(False, None)
    if state in OPERATION_LOST:
        return Failed(f"{operation.get('operation', 'the operation')} ended {state}", _operation_reason(operation))
    return KeepPolling(f"is {state}")


def needs_beside(deployment: Json, bound: Bound) -> bool:
    """Whether the bound revision and operation must be read to judge: not when that revision is the active one."""
    return bound.revision is not None and deployment.get("active_revision") != bound.revision


def _is_gone(deployment: Json, bound: Bound) -> bool:
    uid = deployment.get("id")
    namesake = bound.deployment is not None and uid is not None and uid != bound.deployment
    return bool(deployment.get("deleted")) or namesake


def _stopped(deployment: Json) -> Verdict:
    phase = _phase(deployment)
    return Done(False, 0) if phase in ENDED else KeepPolling(f"is {phase}")


def _lost(beside: Beside) -> Failed | None:
    revision, operation = beside.revision, beside.operation
    if revision is not None and revision.get("state") in REVISION_LOST:
        number, state = revision.get("number", "?"), revision["state"]
        said = "was replaced by a later one" if state == "superseded" else f"ended {state}"
        return Failed(f"revision {number} {said}", revision.get("reason"), by_failure=state == "failed")
    if operation is not None and operation.get("state") in OPERATION_LOST:
        kind = operation.get("operation", "apply")
        return Failed(f"the {kind} ended {operation['state']}", _operation_reason(operation))
    return None


def _failed_word(deployment: Json) -> Failed | None:
    phase = _phase(deployment)
    if phase not in FAILED or (phase == "UNHEALTHY" and deployment.get("promotion_in_progress")):
        return None
    if phase in BY_PERSON:
        return Failed(f"is {phase}", deployment.get("reason"))
    return Failed(f"is {phase}", _deeper_reason(deployment), by_failure=True)


def _ready(deployment: Json, bound: Bound) -> Verdict:
    phase = _phase(deployment)
    if phase not in READY:
        return KeepPolling(f"is {phase}")
    if phase == "SCALED_TO_ZERO" and deployment.get("promotion_in_progress"):
        return KeepPolling("is SCALED_TO_ZERO while a promotion is on its way")
    if _never_reached_its_scale(deployment):
        return KeepPolling("has no replica and never had its initial ones, though at least one is wanted")
    if not _serves_bound(deployment, bound):
        return KeepPolling(f"is {phase} with another revision")
    return _done(deployment)


def _live(deployment: Json, bound: Bound) -> Verdict:
    if _replicas(deployment).get("max") == 0:
        return Failed("may have no replica at all (replicas.max is 0), so none will ever answer")
    if _count_ready(deployment) < 1:
        return KeepPolling(f"is {_phase(deployment)} with no ready replica")
    if not _serves_bound(deployment, bound):
        return KeepPolling("is served by another revision")
    return _done(deployment)


def _promoted(deployment: Json, bound: Bound) -> Verdict:
    active = deployment.get("active_revision")
    if bound.revision is not None:
        if active != bound.revision:
            return KeepPolling("another revision is active")
        return _promoted_and_serves(deployment)
    if active is None:
        return KeepPolling("no revision is active yet")
    if deployment.get("candidate_revision") or deployment.get("promotion_in_progress"):
        return KeepPolling("a candidate is on its way")
    return _promoted_and_serves(deployment)


def _promoted_and_serves(deployment: Json) -> Verdict:
    """Promoted with nothing ready is promoted only where nothing is wanted: what fails now is gone back from."""
    done = _done(deployment)
    if done.serving or not done.desired:
        return done
    return KeepPolling("is promoted, and has no ready replica")


def _serves_bound(deployment: Json, bound: Bound) -> bool:
    """Whether the phase speaks of the bound revision: the active one, or the only one there is (none active yet)."""
    active = deployment.get("active_revision")
    if bound.revision is None or active == bound.revision:
        return True
    return active is None and deployment.get("candidate_revision") in (None, bound.revision)


def _never_reached_its_scale(deployment: Json) -> bool:
    low = _replicas(deployment).get("min", 0)
    return (
        isinstance(low, int)
        and low > 0
        and deployment.get("initial_scale_reached") is False
        and _count_ready(deployment) == 0
    )


def _count_ready(deployment: Json) -> int:
    count = deployment.get("ready_replicas")
    if isinstance(count, int):
        return count
    return int(bool(deployment.get("serving", _phase(deployment) in ("ACTIVE", "UPDATING"))))


def _done(deployment: Json) -> Done:
    serving = deployment.get("serving")
    desired = deployment.get("desired_replicas")
    return Done(
        bool(serving) if serving is not None else _count_ready(deployment) > 0,
        desired if isinstance(desired, int) else None,
    )


def _phase(deployment: Json) -> str:
    return str(deployment.get("phase"))


def _replicas(deployment: Json) -> Json:
    spec = deployment.get("spec") or {}
    return spec.get("replicas") or {}


def _deeper_reason(deployment: Json) -> Json | None:
    """Why the last replica failed, where that is known; else why the deployment is as it is."""
    failure = deployment.get("last_failure") or {}
    inner = failure.get("reason")
    return inner if isinstance(inner, Mapping) else deployment.get("reason")


def _operation_reason(operation: Json) -> Json | None:
    return operation.get("error") or operation.get("waiting_reason") or operation.get("reason")

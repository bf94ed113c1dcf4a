"""Steps of the worker's table as the agent reports them: which trigger and reason each thing seen has. Pure."""

from typing import Any

from moorage.domain.reasons import Reason, reason
from moorage.domain.states import WorkerState
from moorage.runners.identity import Exit
from moorage.runners.port import PullProgress
from moorage.wire.agent import StepReport

REBOOT_ERROR = "machine rebooted"


def step(to: WorkerState, trigger: str, why: Reason) -> StepReport:
    """A step with its reason."""
    return StepReport(to=str(to), trigger=trigger, code=why.code, params=dict(why.params))


def picked_up() -> StepReport:
    """This machine begins to set the worker up."""
    return step(WorkerState.PREPARING, "picked_up", reason("prepare.started"))


def pulling(progress: PullProgress) -> StepReport:
    """Its image is being fetched."""
    return step(WorkerState.PULLING, "pulling", pull_reason(progress))


def pull_reason(progress: PullProgress) -> Reason:
    """How far its image is."""
    return reason("image.pulling", image=progress.image, done=progress.done, total=progress.total)


def at_barrier() -> StepReport:
    """It is set up and waits for the other members of its gang."""
    return step(WorkerState.READY_TO_START, "barrier", reason("gang.barrier"))


def barrier_open() -> StepReport:
    """Every member of its gang is ready, and its process or container exists."""
    return step(WorkerState.STARTING, "barrier_open", reason("gang.barrier_open"))


def started(pid: int | None, container: str | None = None) -> StepReport:
    """Its process or container exists."""
    return step(WorkerState.STARTING, "started", reason("container.started", pid=pid, container=container))


def running() -> StepReport:
    """Its command executes."""
    return step(WorkerState.RUNNING, "running", reason("container.running"))


def failed(why: Reason) -> StepReport:
    """This machine could not prepare or start it, or gave it up."""
    return step(WorkerState.FAILED, "failed", why)


def stop_requested(why: Reason) -> StepReport:
    """This machine itself stops it (drain, time limit)."""
    return step(WorkerState.STOPPING, "stop_requested", why)


def cancelled(how: Exit | None, killed: bool) -> StepReport:
    """A stopped worker is gone; `how` it ended, when known."""
    params: dict[str, Any] = {}
    if how is not None:
        params = {"code": how.code, "signal": how.signal or None, "killed": killed or None}
    return step(WorkerState.CANCELLED, "stop_confirmed", reason("stop.confirmed", **params))


def lost(after_s: float) -> StepReport:
    """This machine was cut off for too long, stopped it as its spec asks, and it is gone."""
    return step(WorkerState.DOWN, "machine_lost", reason("stop.disconnected", d=after_s))


def ended(how: Exit, *, rebooted: bool) -> StepReport:
    """What an exit that nobody asked for means."""
    if how.error and how.code is not None:
        return failed(reason("start.failed", error=how.error))
    if how.code is None:
        why = _why_unknown(how, rebooted=rebooted)
        return step(WorkerState.FAILED, "vanished", why)
    if how.oom:
        why = reason("oom_killed", code=how.code, signal=how.signal or None)
        return step(WorkerState.FAILED, "exited_nonzero", why)
    why = reason("exited", code=how.code, signal=how.signal or None)
    if how.code == 0:
        return step(WorkerState.COMPLETED, "exited_zero", why)
    return step(WorkerState.FAILED, "exited_nonzero", why)


def _why_unknown(how: Exit, *, rebooted: bool) -> Reason:
    if rebooted:
        return reason("machine.rebooted")
    return reason("container.missing") if how.missing else reason("exit.unknown")


def missing_path(state: str, pid: int | None, container: str | None = None) -> list[StepReport]:
    """The steps from a reported state up to Running that were taken and not yet reported."""
    up = [started(pid, container), running()]
    path = {"Pending": [picked_up(), *up], "Preparing": up, "Pulling": up, "ReadyToStart": [barrier_open(), running()]}
    return path.get(state, [running()] if state == WorkerState.STARTING else [])

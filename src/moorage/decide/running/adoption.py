"""What becomes of the processes that an agent still has when it (re)joins: kept or stopped, each with its reason.

Kept: the row is placed on this very machine with this very epoch, and its run is not over. Stopped: everything
else, since a place that was given away, or a run that ended, must not run twice; also a lost worker that never ran.
Workers that the server believed to be here and that the agent does not have are ended with what is known, and places
still held for ended ones are given up: the agent's ledger is complete.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.decide.decision import Decision, Draft
from moorage.domain.changes import Fence, Hold, Release
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import ACTIVE_WORKER, ENDED_WORKER, TERMINAL_RUN, MachineState, WorkerState


@dataclass(frozen=True, slots=True)
class HeldProcess:
    """One process (or its exit record) that the agent proved to be ours."""

    worker: str
    epoch: int
    alive: bool
    ran: bool = False
    """its machine saw it running"""
    ready: bool = False
    address: str | None = None
    process: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The answer to the agent, and the change that records it."""

    keep: tuple[str, ...]
    stop: tuple[str, ...]
    decision: Decision


def reconcile(
    machine: Machine,
    held: Iterable[HeldProcess],
    workers: Iterable[Worker],
    runs: Mapping[str, Run],
    now: float,
    *,
    rebooted: bool,
    fence: Fence | None = None,
) -> Reconciled:
    """Decide about every held process and every missing one.

    Args:
        machine: in Joining or Reconciling: what it does not have is missing, and it is Ready afterwards. In Ready or
            NotReady the agent only asks about what it holds and was not told to run; nothing counts as missing then,
            since new work may be on its way to it.
        workers: rows on this machine that have not ended or still hold a place, and rows of held processes wherever
            they are.
        rebooted: the boot id changed since the machine last joined.
    """
    draft = Draft((machine, *workers), now, f"machine:{machine.name}")
    by_uid = {w.uid: w for w in draft.of(Worker)}
    keep: list[str] = []
    stop: list[str] = []
    for process in held:
        worker = by_uid.pop(process.worker, None)
        if worker is None or not _ours(worker, process, machine, runs):
            stop.append(process.worker)
            continue
        keep.append(process.worker)
        if worker.state is WorkerState.DOWN and process.alive:
            draft.step(
                worker,
                WorkerState.RUNNING,
                "returned",
                reason("worker.returned", machine=machine.name),
                ready=process.ready,
                ran=True,
                handed_over=True,
                ended_at=None,
            )
            draft.write(_hold_again(worker, machine))
    if machine.state in (MachineState.JOINING, MachineState.RECONCILING):
        for worker in by_uid.values():
            if worker.machine == machine.uid:
                _missing(draft, worker, rebooted)
        _ready_again(draft, machine, len(keep), len(stop))
    return Reconciled(tuple(keep), tuple(stop), draft.decision(fence))


def _ours(worker: Worker, process: HeldProcess, machine: Machine, runs: Mapping[str, Run]) -> bool:
    run = runs.get(worker.run)
    if worker.machine != machine.uid or worker.epoch != process.epoch or run is None or run.state in TERMINAL_RUN:
        return False
    if worker.state is WorkerState.DOWN:
        return run.cancel is None and (worker.ran or process.ran or not process.alive)
    return worker.state in ACTIVE_WORKER or worker.state in (WorkerState.STOPPING, WorkerState.PENDING)


def _hold_again(worker: Worker, machine: Machine) -> Hold:
    """Its holdings left the ledger when the machine was lost; nothing was placed there since."""
    request = dict(worker.request)
    return Hold(
        machine=machine.uid,
        worker=worker.uid,
        epoch=worker.epoch,
        gpus=worker.gpus,
        cpu_milli=int(request.get("cpu_milli") or 0),
        memory_bytes=int(request.get("memory_bytes") or 0),
    )


def _missing(draft: Draft, worker: Worker, rebooted: bool) -> None:
    """The agent's ledger is complete, so what it does not have is not there."""
    if worker.state in ACTIVE_WORKER:
        why = reason("machine.rebooted") if rebooted else reason("container.missing")
        draft.step(
            worker,
            WorkerState.FAILED,
            "vanished",
            why,
            ready=False,
            handed_over=False,
            ended_at=draft.now,
            last_failure={"exit_code": None, "reason": why.to_wire(), "log": ""},
        )
    elif worker.state is WorkerState.STOPPING:
        draft.step(
            worker,
            WorkerState.CANCELLED,
            "stop_confirmed",
            reason("stop.confirmed"),
            ready=False,
            handed_over=False,
            ended_at=draft.now,
        )
    elif worker.state in ENDED_WORKER and worker.handed_over:
        draft.set(worker, handed_over=False)
        draft.note(worker, reason("worker.gone"))
    else:
        return
    draft.write(Release(worker.uid))


def _ready_again(draft: Draft, machine: Machine, kept: int, stopped: int) -> None:
    if machine.state is MachineState.JOINING and kept + stopped == 0:
        draft.step(machine, MachineState.READY, "joined", reason("machine.joined"))
        return
    if machine.state is MachineState.JOINING:
        draft.step(machine, MachineState.RECONCILING, "holds_processes", reason("machine.joined"))
    draft.step(machine, MachineState.READY, "reconciled", reason("machine.reconciled", kept=kept, stopped=stopped))

"""What becomes of the processes that an agent still has when it (re)joins: kept or stopped, each with its reason.

Kept: the row is placed on this very machine with this very epoch, and its run is not over. Stopped: everything
else, since a place that was given away, or a run that ended, must not run twice; also a lost worker that never ran.
What is to be stopped holds its place from this answer until its machine proves it gone, so that nothing starts beside
it. Workers that the server believed to be here and that the agent does not have are ended with what is known, and every
place that is held here for none of them is given up: the agent's ledger is complete.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from moorage.decide.decision import Decision, Draft
from moorage.decide.running.heartbeats import given_up, may_return
from moorage.decide.running.liveness import Place, release
from moorage.domain.changes import Fence, Hold
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.quotas import models_of
from moorage.domain.reasons import reason
from moorage.domain.states import ACTIVE_WORKER, ENDED_WORKER, TERMINAL_RUN, MachineState, WorkerState

SETTLING = frozenset({MachineState.JOINING, MachineState.RECONCILING})
"""States in which the agent's answer is complete: what it does not name is not there."""


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
    gpus: tuple[int, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0


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
    places: Mapping[Place, Iterable[int]] | None = None,
    fence: Fence | None = None,
) -> Reconciled:
    """Decide about every held process and every missing one.

    Args:
        machine: in Joining or Reconciling: what it does not have is missing, and it is Ready afterwards. In Ready or
            NotReady the agent only asks about what it holds and was not told to run; nothing counts as missing then,
            since new work may be on its way to it.
        workers: rows on this machine that have not ended, were lost, or still hold a place, and rows of held processes
            wherever they are.
        rebooted: the boot id changed since the machine last joined.
        places: every place that is held on this machine, with its GPUs.
    """
    draft = Draft((machine, *workers), now, f"machine:{machine.name}")
    by_uid = {w.uid: w for w in draft.of(Worker)}
    taken = Taken({place: frozenset(gpus) for place, gpus in (places or {}).items()})
    here: set[Place] = set()
    keep: list[str] = []
    stop: list[str] = []
    for process in held:
        here.add((process.worker, process.epoch))
        worker = by_uid.get(process.worker)
        if worker is not None and _ours(worker, process, machine, runs, taken):
            keep.append(process.worker)
            _keep(draft, machine, worker, process, taken)
        else:
            stop.append(process.worker)
            if process.alive:
                taken.hold(draft, _hold_until_gone(machine, process, worker))
    if machine.state in SETTLING:
        for worker in by_uid.values():
            if worker.machine == machine.uid and (worker.uid, worker.epoch) not in here:
                _missing(draft, worker, runs.get(worker.run), rebooted)
        left = sorted(place for place in taken.gpus if place not in here)
        release(draft, [place for place in left if not _on_its_way(by_uid.get(place[0]), machine, place)])
        _ready_again(draft, machine, len(keep), len(stop))
    return Reconciled(tuple(keep), tuple(stop), draft.decision(fence))


@dataclass(slots=True)
class Taken:
    """Places of one machine as this decision leaves them."""

    gpus: dict[Place, frozenset[int]]

    def by_others(self, place: Place) -> frozenset[int]:
        """GPUs that somebody else holds."""
        return frozenset(g for other, gpus in self.gpus.items() if other != place for g in gpus)

    def hold(self, draft: Draft, hold: Hold) -> None:
        """Take a place unless it is held; a GPU that was given away meanwhile stays with who has it."""
        place = (hold.worker, hold.epoch)
        if place not in self.gpus:
            taken, pairs = self.by_others(place), zip(hold.gpus, hold.models, strict=True)
            free = [(gpu, model) for gpu, model in pairs if gpu not in taken]
            gpus = tuple(gpu for gpu, _ in free)
            self.gpus[place] = frozenset(gpus)
            draft.write(replace(hold, gpus=gpus, models=tuple(model for _, model in free)))


def _ours(worker: Worker, process: HeldProcess, machine: Machine, runs: Mapping[str, Run], taken: Taken) -> bool:
    run = runs.get(worker.run)
    if worker.machine != machine.uid or worker.epoch != process.epoch or run is None or run.state in TERMINAL_RUN:
        return False
    if worker.state is WorkerState.DOWN:
        given_away = taken.by_others((worker.uid, worker.epoch)) & set(worker.gpus)
        return not process.alive or (may_return(run) and (worker.ran or process.ran) and not given_away)
    return worker.state in ACTIVE_WORKER or worker.state in (WorkerState.STOPPING, WorkerState.PENDING)


def _keep(draft: Draft, machine: Machine, worker: Worker, process: HeldProcess, taken: Taken) -> None:
    """A lost one that still runs is Running again; one that lost its heartbeat waits for a heartbeat, not for this."""
    if worker.state is not WorkerState.DOWN or not process.alive or given_up(worker):
        return
    draft.step(
        worker,
        WorkerState.RUNNING,
        "returned",
        reason("worker.returned", machine=machine.name),
        ready=process.ready,
        ran=True,
        running_since=worker.running_since or draft.now,
        handed_over=True,
        ended_at=None,
    )
    taken.hold(draft, _hold_again(worker, machine))


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
        namespace=worker.namespace,
        models=models_of(machine.capacity, worker.gpus),
    )


def _hold_until_gone(machine: Machine, process: HeldProcess, worker: Worker | None) -> Hold:
    """What must not run here is there until it is proven gone: by its machine's word, what it was started with."""
    return Hold(
        machine=machine.uid,
        worker=process.worker,
        epoch=process.epoch,
        gpus=process.gpus,
        cpu_milli=process.cpu_milli,
        memory_bytes=process.memory_bytes,
        namespace=worker.namespace if worker is not None else "",
        models=models_of(machine.capacity, process.gpus),
    )


def _on_its_way(worker: Worker | None, machine: Machine, place: Place) -> bool:
    """Placed here for an epoch that the agent was not told yet."""
    return (
        worker is not None
        and worker.machine == machine.uid
        and worker.epoch == place[1]
        and worker.state is WorkerState.PENDING
    )


def _missing(draft: Draft, worker: Worker, run: Run | None, rebooted: bool) -> None:
    """The agent's ledger is complete, so what it does not have is not there."""
    if worker.state in ACTIVE_WORKER:
        _vanished(draft, worker, "vanished", rebooted)
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
    elif worker.state is WorkerState.DOWN and may_return(run):
        _vanished(draft, worker, "late_report", rebooted)
    elif worker.state in ENDED_WORKER and worker.handed_over:
        draft.set(worker, handed_over=False)
        draft.note(worker, reason("worker.gone"))


def _vanished(draft: Draft, worker: Worker, trigger: str, rebooted: bool) -> None:
    """It ended, and nothing says how."""
    why = reason("machine.rebooted") if rebooted else reason("container.missing")
    draft.step(
        worker,
        WorkerState.FAILED,
        trigger,
        why,
        ready=False,
        handed_over=False,
        stale_since=None,
        ended_at=worker.ended_at or draft.now,
        last_failure={"exit_code": None, "reason": why.to_wire(), "log": ""},
    )


def _ready_again(draft: Draft, machine: Machine, kept: int, stopped: int) -> None:
    if machine.state is MachineState.JOINING and kept + stopped == 0:
        draft.step(machine, MachineState.READY, "joined", reason("machine.joined"))
        return
    if machine.state is MachineState.JOINING:
        draft.step(machine, MachineState.RECONCILING, "holds_processes", reason("machine.joined"))
    draft.step(machine, MachineState.READY, "reconciled", reason("machine.reconciled", kept=kept, stopped=stopped))

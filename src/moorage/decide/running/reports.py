"""What a machine's report makes of a worker's row.

The agent reports every step in order and may send a report again; the server may have moved the worker meanwhile
(Stopping, Down). So a report is laid over the row: steps the row has already taken are skipped, steps the table does
not allow from where the row is are dropped, the late end of a lost worker is taken as such, and a report of another
epoch or machine changes no state (issued is not observed; every effect is fenced by its epoch): its proof that nothing
is left frees the place that was held for that epoch, and how it ended is noted. Reports are numbered, so that one that
arrives twice says nothing twice. A lost worker runs again only through `adoption` or a heartbeat, never by a report.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.decide.running.heartbeats import given_up
from moorage.decide.running.members import GONE, proven_gone
from moorage.domain.changes import Release, Step, Update, Write
from moorage.domain.lifecycles import WORKER
from moorage.domain.nouns import Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import ENDED_WORKER, StopCause, WorkerState

STOP_CAUSES: Mapping[str, StopCause] = {
    "stop.time_limit": StopCause.TIME_LIMIT,
    "stop.drain": StopCause.MACHINE_DRAIN,
    "stop.user": StopCause.USER,
    "stop.barrier_timeout": StopCause.BARRIER_TIMEOUT,
}
"""Why a machine stopped a worker that nobody had asked it to stop; anything else is `default`."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One report of a worker, with observed times.

    Args:
        machine: uid of the machine that reports.
        seq: number of the report, rising per machine; 0 is unnumbered.
        steps: edges in order.
        ready: news about the server's readiness, or None.
        gone: the whole process tree of this epoch is proven gone.
    """

    machine: str
    epoch: int
    seq: int = 0
    steps: tuple[Step, ...] = ()
    ready: bool | None = None
    ready_why: Reason | None = None
    address: str | None = None
    process: dict[str, Any] | None = None
    exit_code: int | None = None
    log_tail: str | None = None
    gone: bool = False
    rendezvous: str | None = None
    ports: Mapping[str, str] | None = None


def apply(worker: Worker, seen: Seen, now: float) -> tuple[Write, ...]:
    """The writes that bring the row up to what was seen; empty when there is no news."""
    if worker.epoch != seen.epoch or worker.machine != seen.machine:
        return _of_another_placement(worker, seen)
    if _known(worker, seen):
        return ()
    steps = _fitting(worker, seen.steps)
    state = WorkerState(steps[-1].to) if steps else worker.state
    fields = _fields(worker, seen, steps, state, now)
    why = None if state in ENDED_WORKER else _readiness_news(worker, seen)
    writes: list[Write] = []
    notes = _notes(steps, fields, why)
    if steps or fields or why:
        if seen.seq:
            known = fields.get("reported", worker.reported) or {}
            fields["reported"] = {**dict(known), "epoch": seen.epoch, "seq": seen.seq}
        current = None if steps else why
        writes.append(Update("Worker", worker.uid, worker.version, steps, fields, current, notes))
    if seen.gone:
        writes.append(Release(worker.uid, seen.epoch))
    return tuple(writes)


def of_deleted(worker: str, seen: Seen) -> tuple[Write, ...]:
    """A report about a worker whose row is gone: all it can mean is that a place is free."""
    return (Release(worker, seen.epoch),) if seen.gone else ()


def _of_another_placement(worker: Worker, seen: Seen) -> tuple[Write, ...]:
    """An earlier copy, somewhere: never counted. That it is gone frees its place; how it ended is worth a note."""
    if seen.epoch >= worker.epoch:
        return ()
    release = (Release(worker.uid, seen.epoch),) if seen.gone else ()
    ends = [s.reason for s in seen.steps if s.to in (WorkerState.COMPLETED, WorkerState.FAILED)]
    last = dict(dict(worker.reported or {}).get("late") or {})
    told = last.get("epoch") == seen.epoch and seen.seq <= int(last.get("seq") or 0)
    if not ends or not seen.seq or told:
        return release
    reported = {**dict(worker.reported or {}), "late": {"epoch": seen.epoch, "seq": seen.seq}}
    note = reason("worker.earlier_ended", epoch=seen.epoch, reason=ends[-1].message, code=ends[-1].code)
    return (Update("Worker", worker.uid, worker.version, fields={"reported": reported}, notes=(note,)), *release)


def _known(worker: Worker, seen: Seen) -> bool:
    """Whether this report, or a later one of the same machine and epoch, was laid over the row before."""
    last = dict(worker.reported or {})
    return bool(seen.seq) and last.get("epoch") == seen.epoch and seen.seq <= int(last.get("seq") or 0)


def _notes(steps: Sequence[Step], fields: Mapping[str, Any], why: Reason | None) -> tuple[Reason, ...]:
    """Readiness beside steps; and a place that is free without a step, so that whoever waits for it is woken."""
    if steps:
        return (why,) if why is not None else ()
    freed = fields.get("handed_over") is False or GONE in fields.get("reported", ())
    return (reason("worker.gone"),) if freed else ()


def _readiness_news(worker: Worker, seen: Seen) -> Reason | None:
    """Readiness is recorded, so that the feed wakes whoever routes: once when it comes, each time its why changes."""
    if seen.ready and not worker.ready:
        return reason("ready.passed")
    return seen.ready_why if seen.ready is False else None


def _fitting(worker: Worker, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The longest part of the path that the row has not taken yet and may take."""
    state = str(worker.state)
    done = max((i for i, s in enumerate(steps) if s.to == state), default=-1)
    out: list[Step] = []
    for step in steps[done + 1 :]:
        late = _as_late(state, step)
        if WORKER.allows(state, late.to, late.trigger):
            out.append(late)
            state = late.to
    return tuple(out)


def _as_late(state: str, step: Step) -> Step:
    """The end of a worker that was given up for lost carries the table's word for late news."""
    if state == WorkerState.DOWN and step.to in (WorkerState.COMPLETED, WorkerState.FAILED):
        return Step(step.to, "late_report", step.reason, step.at)
    return step


def _fields(worker: Worker, seen: Seen, steps: Sequence[Step], state: WorkerState, now: float) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if seen.process is not None and seen.process != worker.process:
        fields["process"] = seen.process
    if seen.address is not None and seen.address != worker.address:
        fields["address"] = seen.address
    if seen.rendezvous is not None and seen.rendezvous != worker.rendezvous:
        fields["rendezvous"] = seen.rendezvous
    if seen.ports is not None and dict(seen.ports) != dict(worker.ports):
        fields["ports"] = dict(seen.ports)
    for step in steps:
        if step.to == WorkerState.STARTING:
            fields["started_at"] = step.at or now
        elif step.to == WorkerState.RUNNING:
            since = worker.running_since if worker.ran else None
            fields |= {"ran": True, "running_since": since or step.at or now}
        elif step.to == WorkerState.STOPPING:
            fields["stop"] = _own_stop(step, now)
    if seen.ready and worker.first_ready_at is None:
        fields["first_ready_at"] = now
    if state in ENDED_WORKER and steps:
        fields |= _ended(worker, seen, steps[-1], now)
    if seen.ready is not None and seen.ready != worker.ready and (state not in ENDED_WORKER or given_up(worker)):
        fields["ready"] = seen.ready
    return fields | (_gone(worker, seen, state) if seen.gone else {})


def _gone(worker: Worker, seen: Seen, state: WorkerState) -> dict[str, Any]:
    """Nothing of it is left: its place is free; and of a lost one nothing is waited for any more."""
    fields: dict[str, Any] = {}
    if worker.handed_over and state in ENDED_WORKER:
        fields["handed_over"] = False
    if state is WorkerState.DOWN and not proven_gone(worker):
        fields["reported"] = {**dict(worker.reported or {}), GONE: seen.epoch}
    return fields


def _own_stop(step: Step, now: float) -> dict[str, Any]:
    """Its machine stops it by itself: the limit of its time, a drain of the agent, or cut off for too long."""
    cause = STOP_CAUSES.get(step.reason.code, StopCause.DEFAULT)
    return {"cause": str(cause), "text": None, "since": step.at or now}


def _ended(worker: Worker, seen: Seen, last: Step, now: float) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "ready": False,
        "ended_at": last.at or now,
        "exit_code": seen.exit_code,
        "stale_since": None,
    }
    if last.to == WorkerState.FAILED:
        fields["last_failure"] = {
            "exit_code": seen.exit_code,
            "reason": last.reason.to_wire(),
            "log": seen.log_tail or "",
        }
    elif last.to == WorkerState.CANCELLED and seen.log_tail:
        fields["last_failure"] = {**dict(worker.last_failure or {}), "log": seen.log_tail}
    return fields

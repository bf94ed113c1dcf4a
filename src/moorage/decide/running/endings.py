"""Stage 2 of the run's decision: a person ends it (cancel, deletion, the stop of a gang's member).

A person's cancel wins over every other stop: one under way goes on as theirs, one that is done already changes its
cause (a note), so that nothing is queued again. What completed or failed stays as it is.
"""

from collections.abc import Mapping
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.running import members
from moorage.decide.running.policy import Policy
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import StopCause, WorkerState


def end_by_person(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> None:
    """Carry a cancel or a deletion to every worker."""
    run = members.lives(draft, snapshot)
    if run is None:
        return
    if run.deleting and run.cancel is None:
        run = draft.set(run, cancel={"cause": str(StopCause.USER), "text": "deleted", "at": draft.now})
    if run.cancel is None and policy.gang:
        run = _stopped_with_its_member(draft, run, policy)
    if run.cancel is None:
        return
    draft.set(run, restarting=None)
    for worker in draft.of(Worker):
        _end(draft, policy, worker, run.cancel)


def _stopped_with_its_member(draft: Draft, run: Run, policy: Policy) -> Run:
    """A person's stop of a needed member of a gang stops the gang."""
    for worker in policy.needed(list(draft.of(Worker))):
        stopping = worker.state in (WorkerState.STOPPING, WorkerState.CANCELLED)
        if stopping and members.cause_of(worker) in members.BY_PERSON:
            asked = dict(worker.stop or {})
            text = asked.get("text") or f"{worker.name} was stopped"
            return draft.set(run, cancel={"cause": asked["cause"], "text": text, "at": draft.now})
    return run


def _end(draft: Draft, policy: Policy, worker: Worker, cancel: Mapping[str, Any]) -> None:
    cause, text = StopCause(cancel["cause"]), cancel.get("text")
    why = _stop_reason(cause, text)
    if worker.state is WorkerState.DOWN:
        # decided: it may still run where nobody can reach it; on return it is stopped there first.
        stop = {"cause": str(cause), "text": text, "since": draft.now}
        draft.step(worker, WorkerState.CANCELLED, "cancelled", why, stop=stop, ended_at=draft.now)
    elif worker.state in (WorkerState.STOPPING, WorkerState.CANCELLED):
        if members.cause_of(worker) not in members.BY_PERSON:
            members.take_stop_over(draft, worker, cause, why, text)
    else:
        members.stop(draft, policy, worker, cause, why, text=text, grace_s=cancel.get("grace_s"))


def _stop_reason(cause: StopCause, text: str | None) -> Reason:
    """What a person's stop says of a worker."""
    return reason("stop.user", text=text or "cancelled") if cause is StopCause.USER else reason("stop.default")

"""Stage 6 of the run's decision: which waiting workers may be placed, and what the others wait for.

The rest of its run that is not made yet, other runs (`after`), other groups (`depends_on`), the limit of an array
(`max_parallel`), a restart of the whole that is still under way. The scheduler places only workers whose `waits` is
empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from moorage.decide.decision import Draft
from moorage.decide.running import members
from moorage.decide.running.policy import Policy
from moorage.decide.running.runs import is_over
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import TERMINAL_RUN, RunState, WorkerState


@dataclass(frozen=True, slots=True)
class Hindrance:
    """What keeps a worker from being placed; `for_good`: it can never come true."""

    why: Reason
    for_good: bool = False


def hold_back(draft: Draft, snapshot: RunSnapshot, policy: Policy) -> None:
    """Set or clear `waits` of every worker without a place; fail those whose dependency failed for good."""
    run = members.lives(draft, snapshot)
    if run is None or run.cancel is not None:
        return
    workers = list(draft.of(Worker))
    stored = {w.uid for w in snapshot.workers}
    after = _after(snapshot, policy, workers)
    groups = {name: _depends(policy, name, workers) for name in policy.groups}
    unplanned = _unplanned(run, policy)
    limited = _above_limit(draft, policy, run, workers)
    for worker in workers:
        if not members.unplaced(worker):
            continue
        found = _restarting(run) or unplanned or after or groups.get(worker.group) or limited.get(worker.uid)
        if found is not None and found.for_good and worker.uid in stored:
            _fail(draft, worker, found.why)
        else:
            _wait(draft, worker, found.why if found else None)


def _wait(draft: Draft, worker: Worker, why: Reason | None) -> None:
    """Written only when it changes."""
    told = dict(worker.waits or {})
    if why is None:
        if worker.waits is not None:
            draft.set(worker, waits=None)
            draft.because(worker, reason("worker.created"))
    elif (told.get("code"), told.get("params")) != (why.code, dict(why.params)):
        draft.set(worker, waits=why.to_wire())
        draft.because(worker, why)


def _fail(draft: Draft, worker: Worker, why: Reason) -> None:
    draft.step(
        worker,
        WorkerState.FAILED,
        "dependency_failed",
        why,
        waits=None,
        final=True,
        ended_at=draft.now,
        last_failure={"exit_code": None, "reason": why.to_wire(), "log": ""},
    )


def _restarting(run: Run) -> Hindrance | None:
    if run.restarting is None:
        return None
    return Hindrance(reason("run.requeued", cause=str(run.restarting["cause"])))


def _unplanned(run: Run, policy: Policy) -> Hindrance | None:
    """Members of a gang, and groups that wait for each other, are counted: all of them must be there first."""
    together = policy.gang or any(group.depends_on for group in policy.groups.values())
    return Hindrance(reason("run.planning")) if run.planned_at is None and together else None


# Other runs


def _after(snapshot: RunSnapshot, policy: Policy, workers: Sequence[Worker]) -> Hindrance | None:
    """decided: asked only until a worker of this run was first placed: a later run of that name concerns others."""
    if any(w.placed_at is not None or w.attempt > 1 for w in workers):
        return None
    found = [_after_one(name, condition, snapshot.after.get(name)) for name, condition in policy.after]
    hindrances = [h for h in found if h is not None]
    return next((h for h in hindrances if h.for_good), hindrances[0] if hindrances else None)


def _after_one(name: str, condition: str, other: Run | None) -> Hindrance | None:
    """decided: a run that ended otherwise than asked fails the dependency; one that is not there yet is waited for."""
    if other is not None and _met(condition, other.state):
        return None
    if other is not None and other.state in TERMINAL_RUN:
        return Hindrance(reason("depends.failed_run", run=name), for_good=True)
    missing = "there is no run of that name yet" if other is None else None
    return Hindrance(reason("depends.waiting_run", run=name, condition=condition, note=missing))


def _met(condition: str, state: RunState) -> bool:
    return {
        "completed": state is RunState.COMPLETED,
        "failed": state is RunState.FAILED,
        "ended": state in TERMINAL_RUN,
        "running": state in (RunState.RUNNING, RunState.COMPLETED),
    }.get(condition, False)


# Other groups


def _depends(policy: Policy, group: str, workers: Sequence[Worker]) -> Hindrance | None:
    found = [_depends_on(policy, other, condition, workers) for other, condition in policy.groups[group].depends_on]
    hindrances = [h for h in found if h is not None]
    return next((h for h in hindrances if h.for_good), hindrances[0] if hindrances else None)


def _depends_on(policy: Policy, group: str, condition: str, workers: Sequence[Worker]) -> Hindrance | None:
    """Completed satisfies. decided: a worker that a person stopped for good fails the dependency like a failed one."""
    theirs = [w for w in policy.needed(workers) if w.group == group] or [w for w in workers if w.group == group]
    if any(_lost_for_good(w) for w in theirs):
        return Hindrance(reason("depends.failed", group=group), for_good=True)
    if all(_fulfils(w, condition) for w in theirs):
        return None
    return Hindrance(reason("depends.waiting", group=group, condition=condition))


def _lost_for_good(worker: Worker) -> bool:
    stopped = worker.state is WorkerState.CANCELLED and members.cause_of(worker) not in members.REQUEUED
    return worker.final or stopped


def _fulfils(worker: Worker, condition: str) -> bool:
    if worker.state is WorkerState.COMPLETED:
        return True
    if condition == "healthy":
        return worker.state is WorkerState.RUNNING and worker.ready
    return worker.state in members.RUNNING


# Arrays


def _above_limit(draft: Draft, policy: Policy, run: Run, workers: Sequence[Worker]) -> dict[str, Hindrance]:
    """Waiting elements for which no place of the array is free.

    decided: what is placed, runs, stops, or is lost and may come back takes a place; then those that were let through,
    in order; one that waits for its back-off gives its place to another, and gets one again when the time has come.
    """
    if policy.max_parallel is None:
        return {}
    waiting = [w for w in workers if members.unplaced(w)]
    taken = sum(not members.unplaced(w) and not is_over(policy, run, w) for w in workers)
    order = sorted(waiting, key=lambda w: (_backs_off(w, draft.now), w.waits is not None))
    held = order[max(policy.max_parallel - taken, 0) :]
    for worker in held:
        if _backs_off(worker, draft.now):
            draft.look_again(worker.restart_at)
    why = reason("array.limit", k=policy.max_parallel)
    return {w.uid: Hindrance(why) for w in held}


def _backs_off(worker: Worker, now: float) -> bool:
    return worker.restart_at is not None and worker.restart_at > now

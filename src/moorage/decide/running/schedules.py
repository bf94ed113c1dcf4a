"""The decision about a run with a schedule: it makes runs NAME-TIME when they are due, and has no workers of its own.

1. a person's cancel or deletion ends it; the runs that it made go on
2. for the newest due time that has passed a run is made, or not, as `concurrency` says; of an outage one time is made
   up for, and how many were not is told
3. of the runs that it made and that have ended, the newest `keep` stay

A run and the mark that its time is dealt with are one change under the version of the scheduling row, so that no time
makes two. Called by `control/running` in place of `cycle`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.decide.decision import Decision, Draft, Ids
from moorage.decide.running.creating import create_run, waiting_reason
from moorage.decide.running.cron import count_due, last_due, next_due, stamp
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.changes import Fence
from moorage.domain.nouns import Run
from moorage.domain.reasons import reason
from moorage.domain.states import TERMINAL_RUN, RunState, StopCause

ACTOR = "controller:runs"


def decide_schedule(snapshot: RunSnapshot, ids: Ids, fence: Fence | None = None) -> Decision:
    """One decision: everything that is due for this schedule now, as one change."""
    draft = Draft((snapshot.run, *snapshot.made), snapshot.now, ACTOR)
    run = snapshot.run
    if run.cancel is not None or run.deleting:
        cause = dict(run.cancel or {})
        why = reason("run.cancelled", cause=cause.get("cause"), text=cause.get("text"))
        draft.step(run, RunState.CANCELLED, "cancelled", why, ended_at=draft.now)
        return draft.decision(fence)
    _make_due(draft, snapshot, ids)
    _forget_ended(draft, snapshot)
    _say_when(draft, run)
    return draft.decision(fence)


def _make_due(draft: Draft, snapshot: RunSnapshot, ids: Ids) -> None:
    run, asked = snapshot.run, dict(snapshot.run.spec["schedule"])
    plan = dict(run.schedule or {})
    next_at = plan.get("next_at")
    if next_at is None or draft.now < next_at:
        return
    due = last_due(asked["cron"], asked["timezone"], draft.now) or next_at
    passed = count_due(asked["cron"], asked["timezone"], next_at - 1.0, due)
    if passed > 1:
        _skipped(draft, run, passed - 1, due, "they passed while no control plane looked; one run makes up for them")
    made = tuple(r.uid for r in snapshot.made)
    if _may_run(draft, snapshot, asked["concurrency"], due):
        name = f"{run.name}-{stamp(due)}"
        spec = {**run.spec, "name": name, "schedule": None}
        new = create_run(draft, ids.new("Run"), run.namespace, name, spec, scheduled_by=run.uid)
        draft.note(run, reason("run.schedule_made", run=name, due=due))
        made = (new.uid, *made)
    following = next_due(asked["cron"], asked["timezone"], draft.now)
    draft.set(run, schedule={**plan, "next_at": following, "last_at": due, "made": made})


def _may_run(draft: Draft, snapshot: RunSnapshot, concurrency: str, due: float) -> bool:
    """Whether a run is made beside those that still go on; replaced ones are asked to end first."""
    if snapshot.refused is not None:
        _skipped(draft, snapshot.run, 1, due, snapshot.refused)
        return False
    going_on = [r for r in snapshot.made if r.state not in TERMINAL_RUN]
    if not going_on or concurrency == "allow":
        return True
    if concurrency == "forbid":
        _skipped(draft, snapshot.run, 1, due, f"{going_on[0].name} still goes on")
        return False
    for old in going_on:
        if old.cancel is None:
            text = f"replaced by the run due at {stamp(due)}"
            draft.set(old, cancel={"cause": str(StopCause.DEFAULT), "text": text, "at": draft.now})
            draft.note(old, reason("run.cancel_requested", text=text, by=ACTOR))
    return True


def _skipped(draft: Draft, run: Run, count: int, until: float, why: str) -> None:
    draft.note(run, reason("run.schedule_skipped", count=count, until=until, why=why))


def _forget_ended(draft: Draft, snapshot: RunSnapshot) -> None:
    """Delete the oldest of the ended ones, and what is gone from the list."""
    run = draft.row(snapshot.run)
    keep = int(run.spec["schedule"].get("keep", 0))
    ended = [r for r in snapshot.made if r.state in TERMINAL_RUN]
    for old in ended[keep:]:
        if not old.deleting:
            draft.set(old, deleting=True)
            draft.note(old, reason("run.deleting", by=ACTOR))
    known = {r.uid for r in snapshot.made}
    before: Mapping[str, Any] = snapshot.run.schedule or {}
    gone = set(before.get("made") or ()) - known
    if gone:
        plan = dict(run.schedule or {})
        draft.set(run, schedule={**plan, "made": _without(plan["made"], gone)})


def _without(uids: Iterable[str], gone: set[str]) -> tuple[str, ...]:
    return tuple(uid for uid in uids if uid not in gone)


def _say_when(draft: Draft, run: Run) -> None:
    """Wait for the next time; a schedule whose last time has passed has completed."""
    current = draft.row(run)
    why = waiting_reason(current)
    if why is None:
        draft.step(run, RunState.COMPLETED, "completed", reason("run.completed"), ended_at=draft.now)
        return
    draft.because(run, why)
    draft.look_again(float(dict(current.schedule or {})["next_at"]))

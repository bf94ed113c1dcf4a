"""The decision about one run of its own, as a recipe; each stage is a file of its own and reads what the ones before it
left in the draft.

1. planning: its workers are made
2. endings: a person's cancel or deletion goes to every worker, and wins over any other stop
3. limits: time limits, drained machines
4. gangs: a restart of the whole is begun, carried on, completed
5. restarts: what ended or was stopped is queued again, or has ended for good; long running forgives
6. waits: who may be placed; the others say what they wait for
7. barrier: a gang that is all there starts
8. following: the run's state follows its workers
9. leftovers: a run that ended keeps nothing running, and is removed when it is due

The order matters: a cancel is seen before anything is queued again, failures for good before the state is derived, and
the end of the run before its leftovers are stopped, so that one decision leaves nothing for a second one.
"""

from moorage.decide.decision import Decision, Draft, Ids
from moorage.decide.running import barrier, endings, following, gangs, leftovers, limits, planning, restarts, waits
from moorage.decide.running.policy import Policy
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.changes import Fence

ACTOR = "controller:runs"


def decide(snapshot: RunSnapshot, ids: Ids, fence: Fence | None = None) -> Decision:
    """One decision: everything that is due for this run now, as one change. Applied again it changes nothing."""
    policy = Policy.of(snapshot.run)
    ordered = policy.ordered(snapshot.workers)  # so that every stage has them by group and rank from `draft.of(Worker)`
    draft = Draft((snapshot.run, *ordered), snapshot.now, ACTOR)
    if planning.plan_workers(draft, snapshot, ids):
        waits.hold_back(draft, snapshot, policy)  # the rest begins when these rows are there
        return draft.decision(fence)
    endings.end_by_person(draft, snapshot, policy)
    limits.keep_limits(draft, snapshot, policy)
    restarts.forgive(draft, snapshot, policy)
    gangs.restart_whole(draft, snapshot, policy)
    restarts.restart_each(draft, snapshot, policy)
    waits.hold_back(draft, snapshot, policy)
    barrier.open_barrier(draft, snapshot, policy)
    following.follow(draft, snapshot, policy)
    leftovers.clear_up(draft, snapshot, policy)
    return draft.decision(fence)

"""Workers are judged by the heartbeats of their machine: every state, with every kind of news."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.decide.running.heartbeats import FORGOTTEN_AFTER_S, GRACE_S, any_late, excused, heard, watched
from moorage.decide.running.liveness import LeaseTimes, watch
from moorage.domain.changes import Release, Update
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import ACTIVE_WORKER, MachineState, RunState, WorkerState

W = WorkerState
NOW = 2_000_000.0
TIMES = LeaseTimes()
TTL = 60.0
RUN = Run(uid="r", name="train")
PLACE = ("w", 3)


def machine(**fields: Any) -> Machine:
    given = {"state": MachineState.READY, "heartbeat_at": NOW, **fields}
    return Machine(uid="m", name="lab", **given)


def worker(state: WorkerState = W.RUNNING, **fields: Any) -> Worker:
    given = {"epoch": 3, "machine": "m", "handed_over": True, "running_since": NOW - 1000, "ran": True, **fields}
    return Worker(uid="w", run="r", name="train-worker-0", state=state, **given)


def judged(it: Machine, *workers: Worker, run: Run | None = RUN, now: float = NOW, **more: Any) -> Any:
    safe_from = more.pop("safe_from", 0.0)
    held = more.pop("held", [(w.uid, w.epoch) for w in workers if w.handed_over])
    runs = {run.uid: run} if run else {}
    return watch(it, workers, TIMES, safe_from=safe_from, now=now, held=held, runs=runs).change


def moves(change: Any, uid: str = "w") -> list[tuple[str, str, str]]:
    writes = change.writes if change else ()
    return [
        (str(s.to), s.trigger, s.reason.code) for u in writes if isinstance(u, Update) and u.uid == uid for s in u.steps
    ]


def releases(change: Any) -> list[tuple[str, int | None]]:
    return [(w.worker, w.epoch) for w in (change.writes if change else ()) if isinstance(w, Release)]


LATE = [("Stale", "heartbeat_late", "heartbeat.late")]


@pytest.mark.parametrize(
    ("ago_s", "expected"), [(0.0, []), (TTL, []), (TTL + GRACE_S - 0.1, []), (TTL + GRACE_S, LATE), (500.0, LATE)]
)
def test_a_running_worker_is_stale_after_its_time_to_live_and_the_grace(ago_s: float, expected: object) -> None:
    assert moves(judged(machine(beats={"w": [3, NOW - ago_s]}), worker())) == expected


def test_one_that_never_beat_counts_from_when_it_was_seen_running() -> None:
    assert moves(judged(machine(), worker(running_since=NOW - 75.0))) == LATE
    assert moves(judged(machine(), worker(running_since=NOW - 74.0))) == []
    assert moves(judged(machine(beats={"w": [2, NOW]}), worker(running_since=NOW - 75.0))) == LATE, (
        "another placement's"
    )


def test_no_worker_is_late_before_this_leadership_has_lasted_its_time_to_live_and_grace() -> None:
    began = NOW - 74.0
    silent = machine(beats={"w": [3, NOW - 500.0]})
    assert moves(judged(silent, worker(), safe_from=began + TIMES.ttl_s)) == []
    assert moves(judged(silent, worker(), safe_from=began - 1.0 + TIMES.ttl_s)) == LATE


@pytest.mark.parametrize("state", [MachineState.NOT_READY, MachineState.READY])
def test_the_silence_of_a_machine_is_not_that_of_its_workers(state: MachineState) -> None:
    quiet = machine(state=state, heartbeat_at=NOW - 25.0, beats={"w": [3, NOW - 25.0 - 74.0]})
    assert moves(judged(quiet, worker())) == []


@pytest.mark.parametrize("state", [MachineState.RECONCILING, MachineState.JOINING, MachineState.REMOVED])
def test_nobody_is_judged_while_a_machine_says_what_it_has(state: MachineState) -> None:
    assert judged(machine(state=state, beats={"w": [3, NOW - 500.0]}), worker()) is None


STALE = worker(W.STALE, stale_since=NOW - TTL, heartbeat_at=NOW - 135.0)


@pytest.mark.parametrize(
    ("beat_at", "stale_since", "expected"),
    [
        (NOW, NOW - 30.0, [("Running", "heartbeat_back", "heartbeat.back")]),
        (NOW - 74.0, NOW - 30.0, [("Running", "heartbeat_back", "heartbeat.back")]),
        (NOW - 200.0, NOW - 59.0, []),
        (NOW - 200.0, NOW - 60.0, [("Down", "heartbeat_expired", "heartbeat.expired")]),
        (None, NOW - 60.0, [("Down", "heartbeat_expired", "heartbeat.expired")]),
        (None, NOW - 10.0, []),
    ],
)
def test_a_stale_worker_is_back_with_a_beat_or_down_after_another_time_to_live(
    beat_at: float | None, stale_since: float, expected: object
) -> None:
    beats = {"w": [3, beat_at]} if beat_at is not None else {}
    change = judged(machine(beats=beats), replace(STALE, stale_since=stale_since))
    assert moves(change) == expected


def test_one_lost_by_its_heartbeat_keeps_its_place() -> None:
    change = judged(machine(), STALE)
    assert moves(change) == [("Down", "heartbeat_expired", "heartbeat.expired")]
    assert releases(change) == []
    (update,) = change.writes
    assert "handed_over" not in update.fields


def test_stale_does_not_expire_before_this_leadership_has_lasted_a_time_to_live() -> None:
    assert moves(judged(machine(), STALE, safe_from=NOW - 59.0 + TIMES.ttl_s)) == []


BACK = [("Running", "returned", "heartbeat.back")]


@pytest.mark.parametrize(
    ("beats", "run", "fields", "expected"),
    [
        ({"w": [3, NOW]}, RUN, {}, BACK),
        ({"w": [3, NOW - 20.0]}, RUN, {}, []),
        ({"w": [2, NOW]}, RUN, {}, []),
        ({}, RUN, {}, []),
        ({"w": [3, NOW]}, RUN, {"handed_over": False}, []),
        ({"w": [3, NOW]}, replace(RUN, state=RunState.FAILED), {}, []),
        ({"w": [3, NOW]}, replace(RUN, cancel={"cause": "user"}), {}, []),
        ({"w": [3, NOW]}, replace(RUN, restarting={"cause": "gang_restart"}), {}, []),
        ({"w": [3, NOW]}, replace(RUN, deleting=True), {}, []),
        ({"w": [3, NOW]}, None, {}, []),
    ],
)
def test_one_that_was_given_up_runs_again_with_a_later_beat_of_the_same_placement_while_its_run_goes_on(
    beats: dict[str, Any], run: Run | None, fields: dict[str, Any], expected: object
) -> None:
    down = worker(W.DOWN, **{"ended_at": NOW - 20.0, **fields})
    assert moves(judged(machine(beats=beats), down, run=run)) == expected


@pytest.mark.parametrize("state", sorted(set(W) - {W.RUNNING, W.STALE, W.DOWN}))
def test_no_other_state_is_judged_by_beats(state: WorkerState) -> None:
    for beats in ({}, {"w": [3, NOW]}, {"w": [3, NOW - 5000.0]}):
        assert judged(machine(beats=beats), worker(state, stale_since=NOW - 5000.0)) is None


# The machine's own silence

LOST = {
    **{s: [("Down", "machine_lost", "machine.lost")] for s in ACTIVE_WORKER},
    W.STOPPING: [("Cancelled", "machine_lost", "stop.machine_lost")],
    W.PENDING: [("Pending", "unplaced", "worker.unplaced")],
    **{s: [] for s in (W.COMPLETED, W.FAILED, W.CANCELLED, W.DOWN)},
}


@pytest.mark.parametrize("state", list(W))
def test_a_lost_machine_loses_each_worker_as_the_table_says_and_every_place(state: WorkerState) -> None:
    change = judged(machine(heartbeat_at=NOW - 30.0), worker(state), held=[("w", 3), ("w", 2), ("gone", 1)])
    assert moves(change, "m") == [("Down", "lease_expired", "machine.lease_expired")]
    assert moves(change) == LOST[state]
    assert sorted(releases(change)) == [("gone", 1), ("w", 2), ("w", 3)]


@pytest.mark.parametrize(
    ("ttl_s", "ttl_set", "silent_s", "lost"),
    [
        (300.0, False, 30.0, True),
        (300.0, True, 30.0, False),
        (300.0, True, 299.0, False),
        (300.0, True, 300.0, True),
        (5.0, True, 29.0, False),
        (5.0, True, 30.0, True),
    ],
)
def test_a_time_to_live_that_the_run_set_lengthens_the_silence_its_machine_may_keep(
    ttl_s: float, ttl_set: bool, silent_s: float, lost: bool
) -> None:
    it = worker(heartbeat_ttl_s=ttl_s, ttl_set=ttl_set)
    state = MachineState.DOWN if silent_s > 30.0 else MachineState.READY
    silent = machine(heartbeat_at=NOW - silent_s, state=state, beats={"w": [3, NOW - silent_s]})
    change = judged(silent, it)
    assert bool(moves(change)) is lost
    assert releases(change) == ([PLACE] if lost else [])


def test_a_worker_that_outlasts_its_machine_is_looked_at_when_its_own_time_is_over() -> None:
    it = worker(heartbeat_ttl_s=300.0, ttl_set=True)
    silent = machine(heartbeat_at=NOW - 100.0, state=MachineState.DOWN)
    found = watch(silent, [it], TIMES, safe_from=0.0, now=NOW, held=[PLACE], runs={})
    assert (found.change, found.wake_at) == (None, NOW + 200.0)


def test_work_that_was_placed_on_a_machine_as_it_went_down_waits_for_another_place() -> None:
    change = judged(machine(heartbeat_at=NOW - 100.0, state=MachineState.DOWN), worker(W.PENDING))
    assert moves(change) == [("Pending", "unplaced", "worker.unplaced")]
    assert releases(change) == [PLACE]


@pytest.mark.parametrize(
    ("handed_over", "expected"), [(True, []), (False, [("Pending", "unplaced", "worker.unplaced")])]
)
def test_on_a_cordoned_machine_nothing_begins_that_its_agent_was_not_given(handed_over: bool, expected: object) -> None:
    change = judged(machine(cordoned="fan"), worker(W.PENDING, handed_over=handed_over), held=[PLACE])
    assert moves(change) == expected


def test_a_drained_machine_says_so_once_when_nothing_is_left_there() -> None:
    draining = machine(draining={"since": NOW, "until": NOW + 60.0}, cordoned="draining")
    assert judged(draining, worker(running_since=NOW)) is None
    assert judged(draining, held=[("gone", 1)]) is None, "something of an earlier copy is still there"
    change = judged(draining)
    (update,) = change.writes
    assert (update.reason.code, update.fields["draining"]["drained_at"]) == ("machine.drained", NOW)
    assert judged(replace(draining, draining=update.fields["draining"])) is None


# What a heartbeat keeps


def test_a_heartbeat_keeps_when_each_worker_was_heard_and_forgets_old_ones() -> None:
    before = {"a": [1, NOW - 10.0], "b": [2, NOW - 10.0], "old": [1, NOW - FORGOTTEN_AFTER_S]}
    assert heard(before, {"a": 1, "c": 4}, {"c": 7.0, "x": 1.0}, NOW) == {
        "a": [1, NOW],
        "b": [2, NOW - 10.0],
        "c": [4, NOW - 7.0],
    }


def test_an_agent_that_was_away_speaks_no_word_against_its_workers() -> None:
    assert excused({"a": [1, NOW - 500.0]}, NOW) == {"a": [1, NOW]}


def test_a_late_beat_is_seen_without_the_rows() -> None:
    running = watched([worker(), worker(W.STALE), worker(W.STARTING)])
    assert [w.worker for w in running] == ["w"]
    assert not any_late(machine(beats={"w": [3, NOW - 74.0]}), running, floor=0.0)
    assert any_late(machine(beats={"w": [3, NOW - 75.0]}), running, floor=0.0)
    assert not any_late(machine(beats={"w": [3, NOW - 75.0]}), running, floor=NOW - 1.0)
    assert any_late(machine(), running, floor=0.0)

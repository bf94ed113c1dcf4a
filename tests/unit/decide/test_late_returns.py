"""What comes back late: the answer to an agent that says what it holds, and reports about what was given up."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.decide.running.adoption import HeldProcess, reconcile
from moorage.decide.running.members import proven_gone
from moorage.decide.running.reports import Seen, apply, of_deleted
from moorage.domain.changes import Hold, Release, Step, Update
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import ACTIVE_WORKER, MachineState, RunState, WorkerState
from tests.memory_rows import STARTED, seen_of

W = WorkerState
NOW = 2_000_000.0
MACHINE = Machine(uid="m", name="lab", state=MachineState.RECONCILING)
RUN = Run(uid="r", name="train")
GONE = ("w", 2)


def worker(state: WorkerState = W.RUNNING, **fields: Any) -> Worker:
    given = {"epoch": 3, "machine": "m", "handed_over": True, "ran": True, "gpus": (0,), **fields}
    return Worker(uid="w", run="r", name="train-worker-0", state=state, **given)


def answer(it: Worker | None, *held: HeldProcess, run: Run = RUN, at: Machine = MACHINE, **more: Any) -> Any:
    rebooted, places = more.pop("rebooted", False), more.pop("places", {})
    rows = [it] if it else []
    return reconcile(at, held, rows, {run.uid: run}, NOW, rebooted=rebooted, places=places)


def moves(found: Any) -> list[tuple[str, str]]:
    writes = found if isinstance(found, tuple) else found.decision.change.writes if found.decision.change else ()
    return [(str(s.to), s.reason.code) for u in writes if isinstance(u, Update) and u.uid == "w" for s in u.steps]


def takes(found: Any) -> list[tuple[str, int, tuple[int, ...]]]:
    return [(w.worker, w.epoch, w.gpus) for w in found.decision.change.writes if isinstance(w, Hold)]


def frees(found: Any) -> list[tuple[str, int | None]]:
    writes = found if isinstance(found, tuple) else found.decision.change.writes
    return [(w.worker, w.epoch) for w in writes if isinstance(w, Release)]


ALIVE = HeldProcess("w", 3, alive=True, ran=True, gpus=(0,))
OLD = HeldProcess("w", 2, alive=True, ran=True, gpus=(0,))
KEPT = (*sorted(ACTIVE_WORKER), W.STOPPING, W.PENDING)


@pytest.mark.parametrize("state", list(W))
def test_what_runs_is_kept_as_its_state_says(state: WorkerState) -> None:
    found = answer(worker(state, handed_over=state is not W.DOWN), ALIVE)
    assert bool(found.keep) is (state in KEPT or state is W.DOWN)
    assert bool(found.stop) is not bool(found.keep)
    assert moves(found) == ([("Running", "worker.returned")] if state is W.DOWN else [])


@pytest.mark.parametrize(
    ("fields", "run", "process", "kept"),
    [
        ({}, RUN, ALIVE, True),
        ({"ran": False}, RUN, replace(ALIVE, ran=False), False),
        ({"ran": False}, RUN, ALIVE, True),
        ({}, replace(RUN, state=RunState.FAILED), ALIVE, False),
        ({}, replace(RUN, cancel={"cause": "user"}), ALIVE, False),
        ({}, replace(RUN, deleting=True), ALIVE, False),
        ({}, replace(RUN, restarting={"cause": "gang_restart"}), ALIVE, False),
        ({"epoch": 4, "machine": None}, RUN, ALIVE, False),
        ({"machine": "other"}, RUN, ALIVE, False),
    ],
)
def test_a_lost_worker_returns_only_while_nothing_was_decided_against_it(
    fields: dict[str, Any], run: Run, process: HeldProcess, kept: bool
) -> None:
    found = answer(worker(W.DOWN, **{"handed_over": False, **fields}), process, run=run)
    assert (found.keep, found.stop) == ((("w",), ()) if kept else ((), ("w",)))
    assert moves(found) == ([("Running", "worker.returned")] if kept else [])
    assert takes(found) == [("w", 3, (0,))], "kept or to be stopped: it has its place until it is proven gone"


def test_a_lost_worker_whose_place_was_given_away_is_stopped_and_takes_nothing_from_its_successor() -> None:
    found = answer(worker(W.DOWN, handed_over=False), ALIVE, places={("other", 1): (0,)})
    assert (found.stop, takes(found)) == (("w",), [("w", 3, ())])


def test_an_older_placement_is_stopped_and_holds_its_place_meanwhile() -> None:
    found = answer(worker(W.PENDING, machine=None, handed_over=False), OLD)
    assert (found.stop, takes(found)) == (("w",), [("w", 2, (0,))])
    again = answer(worker(W.PENDING, machine=None, handed_over=False), OLD, places={GONE: (0,)})
    assert takes(again) == [], "it holds it already"


def test_one_that_lost_its_heartbeat_waits_for_a_heartbeat_and_not_for_its_agent() -> None:
    found = answer(worker(W.DOWN), ALIVE, places={("w", 3): (0,)})
    assert (found.keep, moves(found), takes(found)) == (("w",), [], [])


MISSING = {
    **{s: [("Failed", "container.missing")] for s in ACTIVE_WORKER},
    W.DOWN: [("Failed", "container.missing")],
    W.STOPPING: [("Cancelled", "stop.confirmed")],
    **{s: [] for s in (W.PENDING, W.COMPLETED, W.FAILED, W.CANCELLED)},
}


@pytest.mark.parametrize("state", list(W))
def test_what_the_agent_does_not_have_ended_and_its_place_is_free(state: WorkerState) -> None:
    found = answer(worker(state), places={("w", 3): (0,), GONE: (1,)})
    assert moves(found) == MISSING[state]
    assert frees(found) == ([GONE] if state is W.PENDING else [GONE, ("w", 3)])


def test_after_a_boot_what_is_missing_says_so_and_an_exit_record_is_waited_for() -> None:
    assert moves(answer(worker(W.DOWN), rebooted=True)) == [("Failed", "machine.rebooted")]
    recorded = answer(worker(), replace(ALIVE, alive=False), rebooted=True, places={("w", 3): (0,)})
    assert (recorded.keep, moves(recorded), frees(recorded)) == (("w",), [], [])


@pytest.mark.parametrize("run", [replace(RUN, state=RunState.FAILED), replace(RUN, cancel={"cause": "user"})])
def test_a_lost_worker_of_a_run_that_is_over_stays_as_it_was_given_up(run: Run) -> None:
    assert moves(answer(worker(W.DOWN), run=run)) == []


@pytest.mark.parametrize("state", [MachineState.READY, MachineState.NOT_READY])
def test_an_agent_that_only_asks_loses_nothing_by_not_naming_it(state: MachineState) -> None:
    at = replace(MACHINE, state=state)
    assert answer(worker(), at=at, places={("w", 3): (0,), GONE: (1,)}).decision.change is None


# Reports

ENDS = [
    (0, "Completed:exited_zero:exited", "Completed"),
    (1, "Failed:exited_nonzero:exited", "Failed"),
]


@pytest.mark.parametrize(("code", "word", "state"), ENDS)
def test_the_late_end_of_a_lost_worker_stands(code: int, word: str, state: str) -> None:
    seen = seen_of(worker(), word, params={"code": code}, exit_code=code, gone=True, seq=9)
    writes = apply(worker(W.DOWN), seen, NOW)
    assert moves(writes) == [(state, "exited")]
    assert frees(writes) == [("w", 3)]
    assert [w.fields["handed_over"] for w in writes if isinstance(w, Update)] == [False]


@pytest.mark.parametrize("state", [W.COMPLETED, W.FAILED, W.CANCELLED])
@pytest.mark.parametrize(
    "word", ["Down:machine_lost:machine.lost", "Failed:vanished:container.missing", *[e[1] for e in ENDS]]
)
def test_what_has_ended_is_not_ended_again(state: WorkerState, word: str) -> None:
    params = {"code": 1} if "exited" in word else {}
    assert moves(apply(worker(state), seen_of(worker(), word, params=params, seq=9), NOW)) == []


def test_a_report_never_brings_a_lost_worker_back() -> None:
    assert moves(apply(worker(W.DOWN), seen_of(worker(), *STARTED, ready=True, seq=9), NOW)) == []


@pytest.mark.parametrize(("code", "word", "state"), ENDS)
@pytest.mark.parametrize("now_in", [W.PENDING, W.RUNNING, W.COMPLETED])
def test_the_end_of_an_earlier_placement_frees_its_place_and_is_noted_once(
    code: int, word: str, state: str, now_in: WorkerState
) -> None:
    seen = seen_of(worker(epoch=2), word, params={"code": code}, exit_code=code, gone=True, seq=9)
    it = worker(now_in, machine="other")
    writes = apply(it, seen, NOW)
    assert (moves(writes), frees(writes)) == ([], [GONE])
    (update,) = (w for w in writes if isinstance(w, Update))
    assert [n.code for n in update.notes] == ["worker.earlier_ended"]
    assert set(update.fields) == {"reported"}
    again = apply(replace(it, reported=update.fields["reported"]), seen, NOW)
    assert again == (Release(*GONE),), "told again it is no news"


def test_that_an_earlier_placement_is_gone_frees_its_place_alone() -> None:
    stopped = seen_of(worker(epoch=2), "Cancelled:stop_confirmed:stop.confirmed", gone=True, seq=9)
    assert apply(worker(W.RUNNING), stopped, NOW) == (Release(*GONE),)
    assert apply(worker(W.RUNNING), replace(stopped, gone=False), NOW) == ()
    assert of_deleted("w", stopped) == (Release(*GONE),)
    assert of_deleted("w", replace(stopped, gone=False)) == ()


def test_reports_of_now_and_of_an_earlier_placement_are_counted_apart() -> None:
    it = worker(reported={"epoch": 3, "seq": 40, "late": {"epoch": 2, "seq": 9}})
    seen = seen_of(worker(), "Completed:exited_zero:exited", params={"code": 0}, exit_code=0, seq=41)
    (update,) = apply(it, seen, NOW)
    assert isinstance(update, Update)
    assert update.fields["reported"] == {"epoch": 3, "seq": 41, "late": {"epoch": 2, "seq": 9}}


CAUSES = [
    ("stop.time_limit", {"d": 5.0}, "time_limit"),
    ("stop.drain", {"machine": "lab"}, "machine_drain"),
    ("stop.default", {}, "default"),
]


@pytest.mark.parametrize(("code", "params", "cause"), CAUSES)
@pytest.mark.parametrize("state", [W.PENDING, *sorted(ACTIVE_WORKER)])
def test_a_stop_that_its_machine_began_has_its_cause_on_the_row(
    state: WorkerState, code: str, params: dict[str, Any], cause: str
) -> None:
    step = Step(W.STOPPING, "stop_requested", reason(code, **params), NOW - 1.0)
    (update,) = apply(worker(state), Seen("m", 3, 9, (step,)), NOW)
    assert isinstance(update, Update)
    assert update.fields["stop"] == {"cause": cause, "text": None, "since": NOW - 1.0}


def test_a_stop_that_was_asked_for_keeps_its_cause() -> None:
    stop = {"cause": "user", "text": "enough", "since": NOW - 9.0}
    step = Step(W.STOPPING, "stop_requested", reason("stop.time_limit", d=5.0), NOW)
    assert apply(worker(W.STOPPING, stop=stop), Seen("m", 3, 9, (step,)), NOW) == ()


# A proof after the loss


DISCONNECTED = "Down:machine_lost:stop.disconnected"
"""What a machine says of a worker that it stopped since it was cut off."""


@pytest.mark.parametrize("word", [DISCONNECTED, "Cancelled:stop_confirmed:stop.confirmed"])
@pytest.mark.parametrize("handed_over", [True, False])
def test_the_proof_that_a_lost_worker_is_gone_is_kept_and_wakes_whoever_waits(word: str, handed_over: bool) -> None:
    params = {"d": 5.0} if "disconnected" in word else {}
    it = worker(W.DOWN, handed_over=handed_over)
    seen = seen_of(worker(), word, params=params, gone=True, seq=9)
    writes = apply(it, seen, NOW)
    (update,) = (w for w in writes if isinstance(w, Update))
    assert (moves(writes), frees(writes)) == ([], [("w", 3)])
    assert [n.code for n in update.notes] == ["worker.gone"]
    told = replace(it, reported=update.fields["reported"], handed_over=False)
    assert proven_gone(told)
    assert not proven_gone(replace(told, epoch=4)), "another placement is not proven gone by it"
    assert apply(told, seen, NOW) == (), "told again it is no news"


def test_a_worker_that_a_cut_off_machine_stopped_is_lost_and_proven_gone_by_one_report() -> None:
    """The report overtook the control plane's own clock: nothing was given up yet."""
    seen = seen_of(worker(), DISCONNECTED, params={"d": 5.0}, gone=True, seq=9)
    writes = apply(worker(), seen, NOW)
    assert (moves(writes), frees(writes)) == ([("Down", "stop.disconnected")], [("w", 3)])
    (update,) = (w for w in writes if isinstance(w, Update))
    assert (update.fields["handed_over"], update.fields["reported"]["gone"]) == (False, 3)
    assert "stop" not in update.fields, "nobody asked for its end, so its policy acts"

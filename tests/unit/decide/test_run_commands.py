"""What people's commands make of runs: nothing is lost, nothing is done twice, and every answer says what was done."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.decide.decision import Outcome
from moorage.decide.running import commands
from moorage.decide.running.commands import KnownRun, RunIntent
from moorage.decide.running.creating import run_digest
from moorage.domain.changes import Create, Release, Update
from moorage.domain.errors import Conflict
from moorage.domain.limits import AT_ONCE
from moorage.domain.nouns import Deployment, Run, Worker
from moorage.domain.states import RunState, WorkerState
from moorage.wire.spec import document, normalise
from tests.memory_rows import CountedIds

NOW = 1_800_000_000.0
OVER = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)
LIVE = (RunState.PENDING, RunState.STARTING, RunState.RUNNING)


def intent(**parts: Any) -> RunIntent:
    spec = normalise(
        document({"kind": "Run", "name": "train", "groups": [{"runtime": {"command": ["x"]}}], **parts}),
    )
    return RunIntent("default", "train", spec, run_digest(spec))


def run(state: RunState = RunState.RUNNING, **fields: Any) -> Run:
    wanted = intent()
    return Run(uid="run-1", name="train", state=state, spec=wanted.spec, digest=wanted.digest, **fields)


def submit(wanted: RunIntent, known: KnownRun, *, create_only: bool = False) -> Outcome:
    return commands.submit(wanted, known, CountedIds(), NOW, actor="person:p", create_only=create_only)


def created(outcome: Outcome) -> Run:
    assert outcome.change is not None
    write, *workers = outcome.change.writes
    assert all(isinstance(w, Create) and w.row.kind == "Worker" for w in workers)
    assert isinstance(write, Create)
    assert isinstance(write.row, Run)
    return write.row


def update(outcome: Outcome) -> Update:
    assert outcome.change is not None
    (write,) = [w for w in outcome.change.writes if isinstance(w, Update)]
    assert write.steps or write.notes or write.reason, "a change that no history tells wakes nobody"
    return write


def test_a_new_run_waits_with_its_spec_priority_and_time_of_submission() -> None:
    made = created(submit(intent(priority=5, labels={"team": "a"}), KnownRun()))
    assert (made.state, made.priority, made.queued_at, made.labels) == (RunState.PENDING, 5, NOW, {"team": "a"})
    assert made.digest == intent(priority=5).digest, "labels are no part of what makes two specs differ"


def made_with(outcome: Outcome) -> list[Worker]:
    assert outcome.change is not None
    rows = [write.row for write in outcome.change.writes if isinstance(write, Create)]
    return [row for row in rows if isinstance(row, Worker)]


def test_a_run_of_which_the_spec_says_all_is_made_with_its_workers_and_what_keeps_them_back() -> None:
    runs = {"runtime": {"command": ["x"]}}
    train = {"name": "train", "count": 2, "depends_on": [{"group": "data"}], **runs}
    outcome = submit(intent(groups=[{"name": "data", **runs}, train]), KnownRun())
    run, workers = created(outcome), made_with(outcome)
    assert run.planned_at == NOW
    assert [(w.group, w.rank, w.run) for w in workers] == [
        ("data", 0, run.uid),
        ("train", 0, run.uid),
        ("train", 1, run.uid),
    ]
    assert [(w.waits or {}).get("code") for w in workers] == [None, "depends.waiting", "depends.waiting"]


@pytest.mark.parametrize(
    "parts",
    [
        {"after": [{"run": "other", "condition": "completed"}]},
        {"groups": [{"runtime": {"command": ["x"]}, "total_gpus": 16}]},
        {"groups": [{"runtime": {"command": ["x"]}, "count": AT_ONCE + 1}]},
        {"schedule": {"cron": "0 3 * * *", "timezone": "UTC"}},
    ],
    ids=["after", "total_gpus", "large", "schedule"],
)
def test_a_run_whose_workers_depend_on_more_than_its_spec_is_made_without_them(parts: dict[str, Any]) -> None:
    outcome = submit(intent(**parts), KnownRun())
    assert created(outcome).planned_at is None
    assert made_with(outcome) == []


@pytest.mark.parametrize("state", LIVE)
def test_a_live_run_is_never_replaced(state: RunState) -> None:
    assert submit(intent(), KnownRun(run(state))).change is None
    with pytest.raises(Conflict) as refused:
        submit(intent(priority=1), KnownRun(run(state)))
    assert refused.value.code == "run_live"
    assert "moor cancel train" in str(refused.value.remedy)


@pytest.mark.parametrize("state", OVER)
def test_a_finished_run_is_repeated_only_by_a_restart_and_gives_its_name_up_to_another_spec(state: RunState) -> None:
    same = submit(intent(), KnownRun(run(state)))
    assert same.change is None
    assert "moor restart train" in same.answer["remedy"]
    assert str(state) in same.answer["message"]
    assert created(submit(intent(priority=1), KnownRun(run(state)))).uid != "run-1"


@pytest.mark.parametrize("state", [*LIVE, *OVER])
def test_create_only_refuses_whatever_has_the_name(state: RunState) -> None:
    with pytest.raises(Conflict, match="exists already"):
        submit(intent(priority=1), KnownRun(run(state)), create_only=True)


def test_a_run_that_is_being_deleted_is_waited_for_and_a_finished_one_of_them_is_not() -> None:
    with pytest.raises(Conflict) as refused:
        submit(intent(), KnownRun(run(deleting=True)))
    assert refused.value.code == "deleting"
    assert created(submit(intent(), KnownRun(run(RunState.COMPLETED, deleting=True))))


def test_labels_change_at_once_and_say_so() -> None:
    outcome = submit(intent(labels={"team": "b"}), KnownRun(run()))
    assert update(outcome).fields["labels"] == {"team": "b"}
    assert outcome.answer["changed"] is True


def test_the_name_of_a_deployment_is_refused_both_ways() -> None:
    with pytest.raises(Conflict) as refused:
        submit(intent(), KnownRun(deployment=Deployment(uid="dep-1", name="train")))
    assert refused.value.code == "name_taken"
    with pytest.raises(Conflict):
        commands.refuse_name_of_run(run(), "train")
    commands.refuse_name_of_run(None, "train")


def test_a_cancel_is_written_once_and_a_second_one_changes_nothing() -> None:
    first = commands.cancel(run(), NOW, actor="person:p", text="no")
    assert update(first).fields["cancel"] == {"cause": "user", "text": "no", "at": NOW}
    cancelled = run(cancel={"cause": "user", "text": "no", "at": NOW})
    assert commands.cancel(cancelled, NOW + 1, actor="person:q", text="other").change is None


@pytest.mark.parametrize("state", OVER)
def test_a_cancel_of_a_finished_run_is_a_no_op_that_says_so(state: RunState) -> None:
    outcome = commands.cancel(run(state), NOW, actor="person:p", text=None)
    assert outcome.change is None
    assert str(state) in outcome.answer["message"]


def test_a_person_s_cancel_takes_over_from_a_schedule_s() -> None:
    replaced = run(cancel={"cause": "default", "text": "replaced", "at": NOW})
    assert update(commands.cancel(replaced, NOW, actor="person:p", text=None)).fields["cancel"]["cause"] == "user"


def restart(row: Run, known: KnownRun | None = None) -> Outcome:
    return commands.restart(row, known or KnownRun(row), CountedIds(), NOW, actor="person:p", text=None)


def test_a_live_run_is_restarted_in_place_once() -> None:
    asked = update(restart(run())).fields["restarting"]
    assert asked["cause"] == "requested"
    assert asked["since"] == NOW
    assert restart(run(restarting=asked)).change is None


def test_a_finished_run_is_repeated_by_a_new_one_of_the_same_spec() -> None:
    old = run(RunState.FAILED)
    made = created(restart(old))
    assert (made.restarted_from, made.spec, made.name, made.state) == (old.uid, old.spec, old.name, RunState.PENDING)


@pytest.mark.parametrize(
    ("row", "known", "code"),
    [
        (run(cancel={"cause": "user"}), KnownRun(), "run_ending"),
        (run(deleting=True), KnownRun(), "run_ending"),
        (run(schedule={"next_at": NOW}), KnownRun(), "run_scheduled"),
        (run(RunState.FAILED), KnownRun(replace(run(), uid="run-2")), "name_taken"),
        (run(RunState.FAILED), KnownRun(deployment=Deployment(uid="dep-1", name="train")), "name_taken"),
    ],
)
def test_a_restart_that_cannot_be_is_refused_with_its_cause(row: Run, known: KnownRun, code: str) -> None:
    with pytest.raises(Conflict) as refused:
        restart(row, known)
    assert refused.value.code == code
    assert refused.value.remedy


def test_a_delete_ends_a_live_run_first_and_is_written_once() -> None:
    fields = update(commands.delete(run(), NOW, actor="person:p")).fields
    assert fields["deleting"] is True
    assert fields["cancel"]["cause"] == "user"
    over = update(commands.delete(run(RunState.COMPLETED), NOW, actor="person:p")).fields
    assert over == {"deleting": True, "deleted_by": "person:p"}
    assert commands.delete(run(deleting=True), NOW, actor="person:p").change is None


def stop(worker: Worker, text: str | None = "hot", state: RunState = RunState.RUNNING) -> Outcome:
    return commands.stop_worker(worker, run(state), NOW, actor="person:p", text=text)


@pytest.mark.parametrize(
    ("worker", "to"),
    [
        (Worker(uid="wrk-1", state=WorkerState.PENDING), "Cancelled"),
        (Worker(uid="wrk-1", state=WorkerState.DOWN, machine="mch-1", handed_over=True), "Cancelled"),
        (Worker(uid="wrk-1", state=WorkerState.PENDING, machine="mch-1", handed_over=True), "Stopping"),
        (Worker(uid="wrk-1", state=WorkerState.RUNNING, machine="mch-1", handed_over=True), "Stopping"),
        (Worker(uid="wrk-1", state=WorkerState.READY_TO_START, machine="mch-1", handed_over=True), "Stopping"),
    ],
)
def test_a_stopped_worker_is_cancelled_at_once_only_where_no_machine_runs_it(worker: Worker, to: str) -> None:
    outcome = stop(worker)
    written = update(outcome)
    assert [s.to for s in written.steps] == [to]
    assert outcome.answer["state"] == to
    assert written.fields["stop"]["cause"] == "user"
    assert written.fields["stop"]["text"] == "hot"


def test_a_place_that_was_given_and_not_picked_up_is_free_again() -> None:
    change = stop(Worker(uid="wrk-1", state=WorkerState.PENDING, machine="mch-1", epoch=4)).change
    assert change is not None
    assert Release("wrk-1", 4) in change.writes


def test_a_stop_without_words_has_the_default_cause() -> None:
    worker = Worker(uid="wrk-1", state=WorkerState.RUNNING, machine="mch-1", handed_over=True)
    assert update(stop(worker, None)).fields["stop"]["cause"] == "default"


def test_a_person_s_stop_of_a_preempted_worker_is_for_good() -> None:
    asked = {"cause": "preemption", "text": None, "since": NOW - 5, "grace_s": 30.0}
    for state in (WorkerState.STOPPING, WorkerState.CANCELLED):
        fields = update(stop(Worker(uid="wrk-1", state=state, stop=asked))).fields
        assert (fields["stop"]["cause"], fields["stop"]["since"]) == ("user", NOW - 5)


@pytest.mark.parametrize("state", [WorkerState.COMPLETED, WorkerState.FAILED])
def test_a_worker_that_ended_by_itself_is_left_as_it_is(state: WorkerState) -> None:
    outcome = stop(Worker(uid="wrk-1", state=state))
    assert outcome.change is None
    assert outcome.answer["changed"] is False

"""Runs over a whole control plane with a played agent: submitted, run to their end, cancelled, restarted, removed."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.control.loglines import LogOptions, LogSubject
from moorage.control.logsight import Sight
from moorage.domain.changes import Change, Update
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import reason
from moorage.wire.agent import StepReport
from tests.integration.control.control_plane import CANCELLED, STEPS, Agent, HandClock, Plane, until, worker_is

DONE = StepReport(to="Completed", trigger="exited_zero", code="exited", params={"code": 0})


def failed(code: int) -> StepReport:
    return StepReport(to="Failed", trigger="exited_nonzero", code="exited", params={"code": code})


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    plane = await Plane.open(tmp_path, HandClock())
    yield plane
    await plane.die()


async def submit(plane: Plane, name: str = "train", *, create_only: bool = False, **parts: Any) -> dict[str, Any]:
    group = {"runtime": {"command": ["python3", "train.py"]}, "restart_policy": "Never", **parts.pop("group", {})}
    document = {"kind": "Run", "name": name, "groups": [group], **parts}
    return await plane.commands.runs.apply(
        "default", name, document, actor="person:p", key=None, create_only=create_only
    )


async def run_is(plane: Plane, uid: str, *states: str) -> Run:
    async def ask() -> Run | None:
        row = await plane.store.get(Run, uid)
        return row if row is not None and row.state in states else None

    return await until(ask, f"run {uid} is {' or '.join(states)}")


async def gone(plane: Plane, uid: str) -> None:
    async def ask() -> bool:
        return await plane.store.get(Run, uid) is None

    await until(ask, f"run {uid} is removed")


async def test_a_run_is_placed_runs_and_completes_with_its_exit_code(plane: Plane) -> None:
    agent = await Agent(plane).join()
    uid = (await submit(plane))["run"]["id"]
    told = await agent.assigned("run")
    assert (told.launch.run_name, told.launch.command, told.launch.port) == ("train", ("python3", "train.py"), False)
    assert (told.go, told.owner, told.deployment) == (True, uid, None)
    await agent.report(told, *STEPS, process={"pid": 1})
    await run_is(plane, uid, "Running")
    await agent.report(told, DONE, exit_code=0, gone=True)
    run = await run_is(plane, uid, "Completed")
    assert (run.exit_code, run.reason and run.reason.code) == (0, "run.completed")
    assert await plane.store.holdings() == []


async def test_a_gang_that_is_kept_in_a_rack_is_submitted_and_placed_in_the_one_that_holds_it_whole(
    plane: Plane,
) -> None:
    for name, rack in (("a", "r1"), ("b", "r2"), ("c", "r2")):
        await Agent(plane, name).join(gpus=1, labels={"moorage/rack": rack})
    placement = {"topology": {"keep": "rack"}}
    group = {"count": 2, "resources": {"gpus": 1}}
    uid = (await submit(plane, group=group, gang=True, placement=placement))["run"]["id"]

    async def places() -> list[Worker]:
        return [w for w in await plane.rows(Worker, run=uid) if w.machine is not None]

    async def whole() -> bool:
        return len(await places()) == 2

    await until(whole, "both have a place")
    assert sorted(str(w.machine_name) for w in await places()) == ["b", "c"]


async def test_a_failed_run_says_which_worker_failed_where_and_with_what_code(plane: Plane) -> None:
    agent = await Agent(plane).join()
    uid = (await submit(plane))["run"]["id"]
    told = await agent.assigned("run")
    await agent.report(told, *STEPS, process={"pid": 1})
    await agent.report(told, failed(3), exit_code=3, log_tail="boom", gone=True)
    run = await run_is(plane, uid, "Failed")
    assert run.exit_code == 3
    assert run.reason is not None
    assert run.reason.code == "run.worker_failed"
    assert run.reason.params["machine"] == "lab"


async def test_a_cancel_is_carried_out_by_the_machine_and_confirmed(plane: Plane) -> None:
    agent = await Agent(plane).join()
    uid = (await submit(plane))["run"]["id"]
    told = await agent.assigned("run")
    await agent.report(told, *STEPS, process={"pid": 1})
    await plane.commands.runs.cancel("default", "train", actor="person:p", key=None, text="wrong data")
    stop = await agent.assigned("stop")
    assert stop.stop is not None
    assert (stop.stop.cause, stop.stop.text) == ("user", "wrong data")
    await agent.report(stop, CANCELLED, gone=True)
    await run_is(plane, uid, "Cancelled")
    again = await plane.commands.runs.cancel("default", "train", actor="person:p", key=None, text=None)
    assert again["changed"] is False
    assert "Cancelled already" in again["message"]


async def test_the_same_spec_is_a_no_op_and_another_one_waits_for_the_end(plane: Plane) -> None:
    agent = await Agent(plane).join()
    first = await submit(plane)
    again = await submit(plane)
    assert (again["run"]["id"], again["changed"]) == (first["run"]["id"], False)
    with pytest.raises(Conflict, match="another spec"):
        await submit(plane, priority=3)
    told = await agent.assigned("run")
    await agent.report(told, *STEPS, DONE, exit_code=0, gone=True)
    await run_is(plane, first["run"]["id"], "Completed")
    finished = await submit(plane)
    assert finished["changed"] is False
    assert "moor restart train" in finished["remedy"]
    other = await submit(plane, priority=3)
    assert other["changed"] is True
    assert other["run"]["id"] != first["run"]["id"]


async def test_a_restart_of_a_finished_run_is_a_new_one_that_says_so(plane: Plane) -> None:
    agent = await Agent(plane).join()
    first = (await submit(plane))["run"]["id"]
    told = await agent.assigned("run")
    await agent.report(told, *STEPS, DONE, exit_code=0, gone=True)
    await run_is(plane, first, "Completed")
    answer = await plane.commands.runs.restart("default", "train", actor="person:p", key=None, text=None)
    assert answer["run"]["restarted_from"] == first
    assert (await agent.assigned("run", not_in=(told.worker,))).run == answer["run"]["id"]


async def test_a_restart_is_told_once_of_the_run_and_once_of_each_worker_that_it_stops(plane: Plane) -> None:
    agent = await Agent(plane).join()
    uid = (await submit(plane))["run"]["id"]
    told = await agent.assigned("run")
    await agent.report(told, *STEPS, process={"pid": 1})
    await run_is(plane, uid, "Running")
    await plane.commands.runs.restart("default", "train", actor="person:p", key=None, text="once more")
    stop = await agent.assigned("stop")
    await agent.report(stop, CANCELLED, gone=True)
    again = await agent.assigned("run")
    assert again.epoch > told.epoch
    rows = [h for h in await plane.store.history(root=uid) if h.reason.code == "restart.requested"]
    assert [(h.object_kind, h.kind, h.actor) for h in rows] == [
        ("Run", "note", "person:p"),
        ("Worker", "change", "controller:runs"),
    ]
    assert [h.reason.params["text"] for h in rows] == ["once more"] * 2


async def test_the_log_of_an_attempt_is_found_on_its_machine_whatever_the_worker_waited_for_meanwhile(
    plane: Plane,
) -> None:
    agent = await Agent(plane).join()
    uid = (await submit(plane, group={"restart_policy": "OnFailure"}, restart={"backoff": "1s"}))["run"]["id"]
    told = await agent.assigned("run")
    await agent.report(told, *STEPS, process={"pid": 1})
    await agent.report(told, failed(3), exit_code=3, gone=True)

    async def waits() -> Worker | None:
        (worker,) = await plane.rows(Worker, run=uid)
        return worker if worker.attempt == 2 else None

    worker = await until(waits, "it waits for its next start")
    for code in ("depends.waiting", "run.planning"):  # any number of notes, as the scheduler and the waits write them
        why = reason(code, **({"group": "other", "condition": "ready"} if code == "depends.waiting" else {}))
        row = await plane.store.get(Worker, worker.uid)
        assert row is not None
        await plane.store.commit(Change((Update("Worker", row.uid, row.version, notes=(why,)),), "controller:test"))
    subject, options = LogSubject("train", run=uid), LogOptions(attempt=1)
    sight = Sight(plane.store)
    (place,) = await sight.places(await sight.look(subject, options), subject, options)
    assert (place.called, place.machine) == ("lab", agent.uid)


async def test_a_deleted_run_is_removed_only_once_its_machine_saw_it_gone(plane: Plane) -> None:
    agent = await Agent(plane).join()
    uid = (await submit(plane))["run"]["id"]
    told = await agent.assigned("run")
    await agent.report(told, *STEPS, process={"pid": 1})
    await plane.commands.runs.delete("default", "train", actor="person:p", key=None)
    stop = await agent.assigned("stop")
    assert await plane.store.get(Run, uid) is not None
    await agent.report(stop, CANCELLED, gone=True)
    await gone(plane, uid)
    assert await plane.rows(Worker) == []
    (tombstone,) = await plane.store.tombstones(Run, "default", "train")
    assert tombstone["uid"] == uid


async def test_names_of_deployments_and_live_runs_are_one_set(plane: Plane) -> None:
    await submit(plane, "both")
    with pytest.raises(Conflict, match="has the name both"):
        await plane.apply("both")
    await plane.apply("served")
    with pytest.raises(Conflict, match="has the name served"):
        await submit(plane, "served")


async def test_a_run_waits_for_the_run_it_comes_after(plane: Plane) -> None:
    agent = await Agent(plane).join()
    first = (await submit(plane, "prep"))["run"]["id"]
    second = (await submit(plane, "train", after=[{"run": "prep"}]))["run"]["id"]
    told = await agent.assigned("run")
    assert told.run == first
    await agent.report(told, *STEPS, DONE, exit_code=0, gone=True)
    assert (await agent.assigned("run", not_in=(told.worker,))).run == second


async def test_a_stopped_worker_is_cancelled_and_its_run_with_it(plane: Plane) -> None:
    agent = await Agent(plane).join()
    uid = (await submit(plane))["run"]["id"]
    told = await agent.assigned("run")
    await agent.report(told, *STEPS, process={"pid": 1})
    answer = await plane.commands.runs.stop_worker("default", told.worker, actor="person:p", key=None, text="hot")
    assert answer["state"] == "Stopping"
    stop = await agent.assigned("stop")
    await agent.report(stop, CANCELLED, gone=True)
    worker = await worker_is(plane, told.worker, "Cancelled")
    assert dict(worker.stop or {})["text"] == "hot"
    await run_is(plane, uid, "Cancelled")


async def test_a_control_plane_that_comes_back_ends_what_had_ended(tmp_path: Path) -> None:
    clock = HandClock()
    old = await Plane.open(tmp_path, clock, lead=False)
    uid = (await submit(old))["run"]["id"]
    old.lead()
    agent = await Agent(old).join()
    told = await agent.assigned("run")
    await old.die()
    blind = await Plane.open(tmp_path, clock, lead=False)
    agent.plane = blind
    await agent.report(told, *STEPS, DONE, exit_code=0, gone=True)
    assert (await blind.rows(Run))[0].state == "Pending"
    await blind.die()
    back = await Plane.open(tmp_path, clock)
    await run_is(back, uid, "Completed")
    await back.die()

"""The runs loop over a real store: what it reads, what wakes it, and that no time of a schedule makes two runs."""

from collections import Counter
from pathlib import Path
from typing import Any

from moorage.app.server import RandomIds
from moorage.control.running import PACED_FROM, RunsStep
from moorage.domain.changes import Change, Create, Update
from moorage.domain.errors import KeyReused
from moorage.domain.limits import AT_ONCE
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import RunState, WorkerState
from moorage.store import open_store
from moorage.wire.spec import document, normalise
from tests.integration.control.control_plane import Agent, HandClock, Plane, until

RUNS = 300
DAY = 86400.0


def spec(name: str, **parts: Any) -> dict[str, Any]:
    group = {"runtime": {"command": ["x"]}, **parts.pop("group", {})}
    return normalise(document({"kind": "Run", "name": name, "groups": [group], **parts}))


class CountingStore:
    """A store that counts what is asked of it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.asked[name] += 1
        return getattr(self._store, name)


async def test_all_runs_are_looked_over_with_a_few_queries_and_only_those_with_something_to_do_are_stepped(
    tmp_path: Path,
) -> None:
    clock = HandClock()
    store = await open_store(f"sqlite:///{tmp_path}/m.db", clock)
    writes = []
    for n in range(RUNS):
        row = Run(uid=f"run-{n}", name=f"r{n}", spec=spec(f"r{n}"), queued_at=clock.now(), planned_at=clock.now())
        writes.append(Create(row, reason("run.created")))
        told = Worker(uid=f"wrk-{n}", name=f"r{n}-0", run=row.uid, queued_at=clock.now(), machine="m", handed_over=True)
        writes.append(Create(told, reason("worker.created")))
    unplanned = Run(uid="run-new", name="new", spec=spec("new"), queued_at=clock.now())
    await store.commit(Change((*writes, Create(unplanned, reason("run.created"))), "person:p"))
    counting = CountingStore(store)
    step = RunsStep(counting, clock, RandomIds())  # type: ignore[arg-type]
    for uid in await step.everything():
        await step(uid)
    counting.asked.clear()
    assert list(await step.everything()) == []
    assert counting.asked.total() < 15, dict(counting.asked)
    await store.close()


async def test_a_run_of_many_workers_is_looked_at_by_pace_and_a_small_one_at_once(tmp_path: Path) -> None:
    clock = HandClock()
    store = await open_store(f"sqlite:///{tmp_path}/m.db", clock)
    row = Run(uid="run-1", name="many", spec=spec("many", array={"count": PACED_FROM}), queued_at=clock.now())
    await store.commit(Change((Create(row, reason("run.created")),), "person:p"))
    step = RunsStep(store, clock, RandomIds())
    assert step.pace_s("run-1") == 0.0
    await step("run-1")
    await step("run-1")
    assert step.pace_s("run-1") > 0.0
    await store.close()


async def test_a_decision_that_leaves_nothing_to_decide_wakes_no_step_and_everybody_elses_change_does(
    tmp_path: Path,
) -> None:
    clock = HandClock()
    store = await open_store(f"sqlite:///{tmp_path}/m.db", clock)
    row = Run(uid="run-1", name="r", spec=spec("r", max_queue_time=900), queued_at=clock.now())
    await store.commit(Change((Create(row, reason("run.created")),), "person:p"))
    counting = CountingStore(store)
    step = RunsStep(counting, clock, RandomIds())  # type: ignore[arg-type]
    submitted = await store.history()
    assert step.concerned_by(submitted) == {"run-1"}
    assert await step("run-1") == clock.now() + 900, (
        "the deadline that what it wrote has is known without a second look"
    )
    own = await store.history(after=submitted[-1].cursor)
    assert own
    assert step.concerned_by(own) == set()
    assert step.concerned_by(own) == {"run-1"}, "it is passed over once: the same rows again would be somebody's doubt"
    assert counting.asked["commit"] == 1
    await step("run-1")
    assert counting.asked["commit"] == 1, "an empty decision was committed"
    (worker,) = await store.find(Worker)
    told = Update("Worker", worker.uid, worker.version, reason=reason("queue.behind", run="other"))
    await store.commit(Change((told,), "controller:scheduler"))
    others = await store.history(after=own[-1].cursor)
    assert step.concerned_by(others) == {"run-1"}
    assert step.only_begun(others) == {"run-1"}
    await store.close()


async def test_a_decision_of_a_large_run_that_leaves_more_to_make_wakes_the_next_one(tmp_path: Path) -> None:
    clock = HandClock()
    store = await open_store(f"sqlite:///{tmp_path}/m.db", clock)
    row = Run(uid="run-1", name="many", spec=spec("many", array={"count": AT_ONCE + 1}), queued_at=clock.now())
    await store.commit(Change((Create(row, reason("run.created")),), "person:p"))
    step = RunsStep(store, clock, RandomIds())
    after = (await store.history())[-1].cursor
    await step("run-1")
    assert len(await store.find(Worker)) == AT_ONCE
    assert step.concerned_by(await store.history(after=after)) == {"run-1"}
    await store.close()


async def submit(plane: Plane, name: str, key: str | None = None, **parts: Any) -> dict[str, Any]:
    return await plane.commands.runs.apply(
        "default", name, spec(name, **parts), actor="person:p", key=key, create_only=False
    )


async def test_the_same_key_gives_the_first_answer_and_another_intent_under_it_is_refused(tmp_path: Path) -> None:
    plane = await Plane.open(tmp_path, HandClock())
    first = await submit(plane, "train", "k")
    assert await submit(plane, "train", "k") == first
    try:
        await submit(plane, "train", "k", priority=4)
        raise AssertionError("the key was taken for another intent")
    except KeyReused:
        pass
    assert len(await plane.rows(Run)) == 1
    await plane.die()


async def test_a_schedule_makes_one_run_for_a_time_also_when_its_control_plane_is_replaced(tmp_path: Path) -> None:
    clock = HandClock()
    plane = await Plane.open(tmp_path, clock)
    uid = (await submit(plane, "nightly", schedule={"cron": "0 3 * * *", "concurrency": "allow"}))["run"]["id"]

    async def waits() -> Run | None:
        row = await plane.store.get(Run, uid)
        return row if row is not None and row.reason is not None and row.reason.code == "run.scheduled" else None

    await until(waits, "the schedule waits for its time")
    clock.advance(DAY)

    async def made() -> list[Run]:
        return [r for r in await plane.rows(Run) if r.scheduled_by == uid]

    (first,) = await until(made, "the first run")
    assert first.name.startswith("nightly-")
    await plane.die()
    clock.advance(3 * DAY)
    plane = await Plane.open(tmp_path, clock)

    async def two() -> list[Run]:
        return found if len(found := await made()) == 2 else []

    await until(two, "one run for the three days that nobody looked")
    assert (await plane.codes()).count("run.schedule_skipped") == 1
    await plane.die()


async def test_a_run_is_planned_once_a_machine_can_hold_it(tmp_path: Path) -> None:
    plane = await Plane.open(tmp_path, HandClock())
    answer = await submit(plane, "train", group={"total_gpus": 4})
    assert any("no machine has joined" in w for w in answer["warnings"])

    async def refused() -> Run | None:
        row = (await plane.rows(Run))[0]
        return row if row.reason is not None and row.reason.code == "run.cannot_plan" else None

    await until(refused, "the run says that it cannot be planned")
    agent = await Agent(plane).join(gpus=8)
    told = await agent.assigned("run")
    assert (told.launch.gpus, told.launch.world_size) == ((0, 1, 2, 3), 1)
    await plane.die()


async def test_a_worker_lost_by_its_heartbeat_alone_stays_assigned_until_its_run_is_over(tmp_path: Path) -> None:
    plane = await Plane.open(tmp_path, HandClock(), lead=False)
    agent = await Agent(plane).join()
    run = Run(uid="run-1", name="r", state=RunState.PENDING, spec=spec("r"))
    lost = Worker(uid="wrk-1", name="r-0", run="run-1", machine=agent.uid, handed_over=True, epoch=1)
    await plane.store.commit(Change((Create(run, reason("run.created")), Create(lost, reason("worker.created"))), "p"))
    for state, trigger in (("Preparing", "picked_up"), ("Down", "machine_lost")):
        await _step(plane, Worker, "wrk-1", state, trigger)
    row = await plane.store.get(Worker, "wrk-1")
    assert row is not None
    assert row.state is WorkerState.DOWN
    told = await agent.assigned("run")
    assert told.worker == "wrk-1"
    await _step(plane, Run, "run-1", "Failed", "failed")
    work = await plane.machines.work(agent.uid, agent.incarnation, -1, 1.0)
    assert work is not None
    assert work.assignments == ()
    await plane.die()


async def _step(plane: Plane, kind: type[Run] | type[Worker], uid: str, to: str, trigger: str) -> None:
    from moorage.domain.changes import Step, Update

    row = await plane.store.get(kind, uid)
    assert row is not None
    step = Step(to, trigger, reason("run.created"))
    await plane.store.commit(Change((Update(kind.kind, uid, row.version, (step,)),), "controller:test"))

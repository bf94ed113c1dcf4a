"""What a heartbeat of a machine makes the control plane read: one row, and workers only when there is cause."""

from typing import Any

import pytest

from moorage.control.machines import LOOK_S, MachinesStep
from moorage.decide.running.liveness import LeaseTimes
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import MachineState, WorkerState

START = 5_000.0


class Clock:
    def __init__(self) -> None:
        self.at = START

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a step does not wait")


class Rows:
    """One machine and its workers; counts what is read of workers."""

    def __init__(self, clock: Clock, *workers: Worker) -> None:
        self.clock = clock
        self.machine = Machine(uid="m", name="lab", state=MachineState.READY, heartbeat_at=clock.now())
        self.workers = list(workers)
        self.looks = 0
        self.commits: list[Any] = []

    async def get(self, kind: type, uid: str) -> Any:
        assert (kind, uid) == (Machine, "m")
        return self.machine

    async def find(self, kind: type, **where: Any) -> list[Any]:
        if kind is Run:
            return [Run(uid="r")]
        self.looks += "machine" in where
        return list(self.workers) if "machine" in where else []

    async def holdings(self, machine: str) -> list[dict[str, Any]]:
        return [{"machine": machine, "worker": w.uid, "epoch": w.epoch, "gpus": ()} for w in self.workers]

    async def commit(self, change: Any) -> None:
        self.commits.append(change)

    def beat(self, *workers: Worker) -> None:
        beats = {**dict(self.machine.beats), **{w.uid: [w.epoch, self.clock.now()] for w in workers}}
        self.machine = Machine(
            uid="m", name="lab", state=MachineState.READY, heartbeat_at=self.clock.now(), beats=beats
        )


def worker(n: int, state: WorkerState = WorkerState.RUNNING) -> Worker:
    return Worker(uid=f"w{n}", run="r", state=state, machine="m", epoch=1, handed_over=True, running_since=START)


async def beats(step: MachinesStep, rows: Rows, times: int, *named: Worker) -> None:
    for _ in range(times):
        rows.clock.at += 10.0
        rows.beat(*named)
        await step("m")


def made(*workers: Worker) -> tuple[MachinesStep, Rows]:
    clock = Clock()
    rows = Rows(clock, *workers)
    step = MachinesStep(rows, clock, LeaseTimes())  # type: ignore[arg-type]  # what a step needs of a store
    return step, rows


async def test_workers_that_beat_are_read_once_a_minute_and_not_at_each_heartbeat() -> None:
    many = [worker(n) for n in range(50)]
    step, rows = made(*many)
    rows.beat(*many)
    await step("m")
    assert rows.looks == 1
    await beats(step, rows, 60, *many)
    assert rows.looks <= 1 + 600 / LOOK_S
    assert rows.commits == []


async def test_one_late_beat_is_acted_on_at_the_heartbeat_that_shows_it() -> None:
    fine, late = worker(1), worker(2)
    step, rows = made(fine, late)
    rows.beat(fine, late)
    await step("m")
    await beats(step, rows, 7, fine)
    assert rows.commits == []
    await beats(step, rows, 1, fine)
    (change,) = rows.commits
    assert [(u.uid, str(u.steps[0].to)) for u in change.writes] == [("w2", "Stale")]


@pytest.mark.parametrize("state", [WorkerState.STALE, WorkerState.DOWN])
async def test_what_may_come_back_is_looked_at_at_each_heartbeat(state: WorkerState) -> None:
    step, rows = made(Worker(**{**_fields(worker(1, state)), "stale_since": START, "ended_at": START}))
    await step("m")
    await beats(step, rows, 3)
    assert rows.looks == 4


async def test_news_of_its_workers_makes_the_next_step_read_them() -> None:
    step, rows = made(worker(1))
    rows.beat(worker(1))
    await step("m")
    assert not step.attends("m")
    step.look_again("m")
    assert step.attends("m")
    await step("m")
    assert rows.looks == 2


def _fields(row: Worker) -> dict[str, Any]:
    return {name: getattr(row, name) for name in ("uid", "run", "state", "machine", "epoch", "handed_over")}

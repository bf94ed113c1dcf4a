"""What no trace makes a simulation do: it keeps every promise of production, and repeats itself exactly."""

from collections import Counter
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.decide.scheduling.assign import Outcome
from moorage.decide.scheduling.policies import Policy
from moorage.domain.nouns import Machine
from moorage.domain.states import MachineState, WorkerState
from moorage.sim import play as playing
from moorage.sim.cluster import Cluster, Did
from moorage.sim.play import Played, Setting, play
from moorage.sim.report import Report, to_json
from moorage.sim.traces import Task, Trace
from tests.examples import examples

GIB = 1 << 30
TASK = st.builds(
    Task,
    name=st.just("t"),
    submit_s=st.integers(0, 300).map(float),
    duration_s=st.integers(0, 400).map(float),
    gpus=st.integers(0, 5),
    cpu_milli=st.integers(0, 9000),
    memory_bytes=st.integers(0, 20).map(lambda gib: gib * GIB),
    workers=st.integers(1, 3),
    gang=st.booleans(),
    priority=st.integers(0, 2),
    models=st.sampled_from([(), (), ("A",), ("A", "B")]),
    time_limit_s=st.sampled_from([None, 60.0, 300.0]),
)
TASKS = st.lists(TASK, max_size=12).map(lambda tasks: sorted(tasks, key=lambda task: task.submit_s))
POLICY = st.sampled_from(list(Policy))
MANY = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def fleet() -> list[Machine]:
    return [
        Machine(
            uid=f"m{n}",
            name=f"m{n}",
            state=MachineState.READY,
            capacity={
                "cpu_milli": 16_000,
                "memory_bytes": 32 * GIB,
                "gpus": tuple({"index": i, "model": "AB"[n % 2], "health": "ok"} for i in range(4)),
            },
        )
        for n in range(3)
    ]


class Watched(Cluster):
    """Adds up anew, after every cycle, what is held where, from the workers' rows alone."""

    def commit(self, outcome: Outcome, now: float) -> Did:
        did = super().commit(outcome, now)
        live = [w for w in self.workers.values() if w.state in (WorkerState.RUNNING, WorkerState.STOPPING)]
        held = Counter((w.machine, gpu) for w in live for gpu in w.gpus)
        assert max(held.values(), default=0) <= 1
        assert sum(held.values()) == self.allocated
        for machine in self.book.fleet.rooms():
            here = [w.request for w in live if w.machine == machine.machine.uid]
            assert sum(int(r["cpu_milli"]) for r in here) <= machine.limit_cpu_milli
            assert sum(int(r["memory_bytes"]) for r in here) <= machine.limit_memory_bytes
        for run in self.runs.values():
            if run.spec.get("gang"):
                mates = [self.workers[uid] for uid in self._members[run.uid]]
                assert len({w.state is WorkerState.PENDING for w in mates}) <= 1, "a gang is placed in part"
        return did


def watched(tasks: list[Task], policy: Policy, **setting: Any) -> Played:
    with patch.object(playing, "Cluster", Watched):
        return play(fleet(), tasks, policy, Setting(**setting))


@MANY
@given(TASKS, POLICY, st.booleans())
def test_in_a_simulation_no_gpu_is_held_twice_no_machine_oversubscribed_and_no_gang_placed_in_part(
    tasks: list[Task], policy: Policy, services: bool
) -> None:
    watched(tasks, policy, services=services)


@MANY
@given(TASKS, POLICY)
def test_every_task_that_some_machines_could_take_ends_in_finite_time(tasks: list[Task], policy: Policy) -> None:
    result = watched(tasks, policy)
    never = sum(waits.waiting for waits in result.waits)
    assert result.completed + never == len(tasks)
    assert sum(group.tasks for group in result.never) == never
    for group in result.never:  # gangs may be too large for all three machines together
        assert group.code in ("place.never_fits", "place.gang_not_whole"), group


@MANY
@given(TASKS, POLICY, st.integers(0, 3), st.booleans())
def test_the_same_seed_gives_the_same_report(tasks: list[Task], policy: Policy, seed: int, services: bool) -> None:
    def told() -> dict[str, Any]:
        result = play(fleet(), tasks, policy, Setting(seed=seed, services=services))
        return to_json(Report.of("x", fleet(), Trace(tuple(tasks)), [result], seed=seed, saturating=services))

    assert told() == told()

"""The ledger of GPUs agrees with what is held and reserved, whatever happens to work and to GPUs."""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.decide.invariants import gpu_violations
from moorage.decide.scheduling.accounts import Kept, Line, Surroundings, counts, kept_now, lines
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import WorkerState
from tests.examples import examples
from tests.scheduling_world import SchedulingWorld

MACHINES, GPUS = 2, 4
JOB = st.fixed_dictionaries(
    {
        "gpu": st.integers(1, 4),
        "count": st.integers(1, 2),
        "gang": st.booleans(),
        "priority": st.integers(0, 2),
        "time_limit": st.sampled_from([None, 60.0, 3600.0]),
    }
)
GPU_IS = st.sampled_from(
    [
        {"health": "faulty", "fault": "Xid 79"},
        {"health": "at_risk", "fault": "rows"},
        {"health": "ok", "foreign_bytes": 1 << 30},
        {"health": "ok"},
        None,
    ]
)
ACT = st.one_of(
    st.tuples(st.just("submit"), JOB),
    st.tuples(st.sampled_from(["end", "fail", "gone", "requeue"]), st.integers(0, 9)),
    st.tuples(st.just("gpu"), st.tuples(st.integers(0, MACHINES - 1), st.integers(0, GPUS - 1), GPU_IS)),
    st.tuples(st.just("wait"), st.integers(1, 2000)),
)


def act(world: SchedulingWorld, word: str, value: Any, number: int) -> None:
    if word == "submit":
        world.submit(f"j{number}", **{k: v for k, v in value.items() if v not in (None, False)})
    elif word == "wait":
        world.now += value
    elif word == "gpu":
        turn(world, *value)
    elif word == "requeue":
        world.requeue_preempted()
    else:
        state = WorkerState.STOPPING if word == "gone" else WorkerState.RUNNING
        found = [w for w in world.standing() if w.state is state]
        if not found:
            return
        uid = found[value % len(found)].uid
        if word == "gone":
            world.gone(uid)
        elif word == "end" or world.run_of(world.w(uid)).spec.get("gang"):
            world.ends(uid)
        else:
            world.fails(uid)
            world.queued_again(uid, restart_at=world.now + 10)


def turn(world: SchedulingWorld, number: int, index: int, fields: dict[str, Any] | None) -> None:
    """A GPU is so from now on; None: its machine does not report it any more."""
    row = world.rows[f"machine-m{number}"]
    assert isinstance(row, Machine)
    others = [g for g in row.capacity["gpus"] if g["index"] != index]
    new = (
        [] if fields is None else [{"index": index, "vendor": "nvidia", "model": "H100", "memory_bytes": 80, **fields}]
    )
    gpus = tuple(sorted([*others, *new], key=lambda g: int(g["index"])))
    world.rows[row.uid] = replace(row, capacity={**row.capacity, "gpus": gpus})


def ledger(
    world: SchedulingWorld,
) -> dict[str, tuple[Machine, list[dict[str, Any]], tuple[Kept, ...], tuple[Line, ...]]]:
    kept = kept_now(world.book(), world.now)
    around = Surroundings({w.uid: w for w in world.standing()}, {r.uid: r for r in world.of(Run)})
    found = {}
    for machine in world.of(Machine):
        held = [
            {"worker": h.worker, "epoch": h.epoch, "gpus": h.gpus}
            for h in world.holds.values()
            if h.machine == machine.uid
        ]
        found[machine.name] = (machine, held, kept, lines(machine, held, kept, around))
    return found


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACT, min_size=1, max_size=25))
def test_every_gpu_is_in_one_state_and_the_sums_agree(acts: list[tuple[str, Any]]) -> None:
    world = SchedulingWorld()
    for n in range(MACHINES):
        world.machine(f"m{n}", gpu_count=GPUS)
    for number, (word, value) in enumerate(acts):
        act(world, word, value, number)
        for stage in ("before", "after"):
            for machine, held, kept, found in ledger(world).values():
                assert gpu_violations(machine, held, kept, found) == (), (stage, word)
                assert sum(count for _, count in counts(found)) == len(found)
            if stage == "before":
                spoilt = no_use(world)
                world.cycle()
                new = {(w.machine, g) for w in world.of(Worker) for g in w.gpus if _fresh(w)}
                assert not new & spoilt, "a faulty GPU, or one with strangers, was given"
        world.start_all()


def _fresh(worker: Worker) -> bool:
    return bool(worker.state is WorkerState.PENDING and worker.machine is not None)


def no_use(world: SchedulingWorld) -> set[tuple[str, int]]:
    return {
        (machine.uid, int(gpu["index"]))
        for machine in world.of(Machine)
        for gpu in machine.capacity["gpus"]
        if gpu.get("health") == "faulty" or gpu.get("foreign_bytes")
    }

"""What no sequence of submissions, ends, failures, stops and changes of quotas makes of a namespace's quota."""

from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.decide.scheduling import quota, whatif
from moorage.decide.scheduling.assign import Why, decide
from moorage.decide.scheduling.quota import Usage, asked_of
from moorage.domain.states import WorkerState
from tests.examples import examples
from tests.scheduling_world import SchedulingWorld, gpus

NAMESPACES = ("a", "b", "c")
"""the last never has a quota"""
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "gpus": st.integers(0, 6),
        "cpu": st.integers(0, 8000),
        "gpu_models.H100": st.integers(0, 3),
        "gpu_models.A100": st.integers(0, 3),
    },
)
JOB = st.fixed_dictionaries(
    {
        "namespace": st.sampled_from(("a", "a", "b", "b", "c")),
        "gpu": st.sampled_from([1, 1, 2, 3, 0]),
        "models": st.sampled_from([(), (), ("H100",), ("A100", "H100")]),
        "cpu": st.sampled_from([0, 1000, 3000]),
        "count": st.integers(1, 3),
        "gang": st.sampled_from([False, False, True, {"min_available": 2}]),
        "priority": st.integers(0, 2),
        "time_limit": st.sampled_from([None, 600.0]),
        "labels": st.sampled_from([{}, {}, {"pool": "x"}]),
    }
)
SUBMIT = st.tuples(st.just("submit"), JOB)
ACT = st.one_of(
    SUBMIT,
    SUBMIT,
    st.tuples(st.just("limit"), st.tuples(st.sampled_from(NAMESPACES[:2]), LIMITS)),
    st.tuples(st.sampled_from(["end", "fail", "gone", "requeue"]), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.integers(1, 200)),
)
ACTS = st.tuples(st.lists(SUBMIT, min_size=2, max_size=5), st.lists(ACT, max_size=15)).map(lambda t: [*t[0], *t[1]])
"""Enough that quotas bind, then whatever happens."""
MANY = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Life:
    """A cluster of two kinds of GPUs and namespaces with quotas, with a cycle after each act."""

    def __init__(self) -> None:
        self.world = SchedulingWorld()
        self.world.limits = {"a": {"gpus": 3}, "b": {"gpu_models.H100": 2, "gpu_models.A100": 2, "cpu": 4000}}
        self.world.machine("h", gpu_count=4, labels={"pool": "x"})
        self.world.machine("i", capacity={"gpus": gpus(4, "A100")})
        self.world.machine("mixed", capacity={"gpus": (*gpus(2), *_shifted(gpus(2, "A100"), 2))})
        self.jobs = 0

    def act(self, word: str, value: Any) -> None:
        """One act, without a cycle."""
        if word == "submit":
            self._submit(value)
        elif word == "limit":
            self.world.limits[value[0]] = value[1]
        elif word == "wait":
            self.world.now += value
        elif word == "requeue":
            self.world.requeue_preempted()
        else:
            self._worker(word, value)

    def _submit(self, job: dict[str, Any]) -> None:
        request = {"cpu_milli": job["cpu"], "gpus": {"count": job["gpu"], "models": job["models"]}}
        given = {k: job[k] for k in ("gang", "priority", "time_limit") if job[k] not in (None, False)}
        if job["labels"]:
            given["placement"] = {"labels": job["labels"]}
        name = f"j{self.jobs}"
        self.jobs += 1
        self.world.submit(name, count=job["count"], namespace=job["namespace"], request=request, **given)

    def _worker(self, word: str, value: int) -> None:
        world = self.world
        wanted = WorkerState.STOPPING if word == "gone" else WorkerState.RUNNING
        running = [w for w in world.standing() if w.state is wanted]
        if not running:
            return
        worker = running[value % len(running)]
        if word == "gone":
            world.gone(worker.uid)
        elif word == "end" or world.run_of(worker).spec.get("gang"):
            world.ends(worker.uid)
        else:
            world.fails(worker.uid)
            world.queued_again(worker.uid, restart_at=world.now + 10)


def _shifted(found: tuple[dict[str, Any], ...], by: int) -> Iterator[dict[str, Any]]:
    return ({**gpu, "index": gpu["index"] + by} for gpu in found)


@MANY
@given(ACTS)
def test_no_placement_ever_exceeds_a_quota(acts: list[tuple[str, Any]]) -> None:
    life = Life()
    for word, value in acts:
        life.act(word, value)
        world = life.world
        before = {namespace: world.used(namespace) for namespace in NAMESPACES}
        world.cycle()
        for namespace, limits in world.limits.items():
            used = world.used(namespace)
            for resource, limit in limits.items():
                grown = used.get(resource, 0) > before[namespace].get(resource, 0)
                assert not grown or used[resource] <= limit, f"{namespace}: {used} of {limits}"
        world.start_all()


@MANY
@given(ACTS)
def test_the_use_of_a_namespace_is_the_sum_over_live_holdings(acts: list[tuple[str, Any]]) -> None:
    """Kept up machine by machine or summed anew: whatever failed, was stopped or preempted meanwhile, nothing leaks."""
    life, kept_up = Life(), Usage()
    for word, value in acts:
        life.act(word, value)
        life.world.cycle()
        life.world.start_all()
        held = life.world.held()
        for machine in ("h", "i", "mixed"):
            kept_up.put(f"machine-{machine}", held.get(f"machine-{machine}", []))
        for namespace in NAMESPACES:
            assert _nonzero(kept_up.totals.get(namespace, {})) == _nonzero(life.world.used(namespace))
    for worker in life.world.standing():
        life.world.ends(worker.uid) if worker.state is WorkerState.RUNNING else life.world.gone(worker.uid)
    assert all(not _nonzero(life.world.used(namespace)) for namespace in NAMESPACES)


@MANY
@given(ACTS)
def test_only_who_would_exceed_a_quota_is_told_to_wait_for_it(acts: list[tuple[str, Any]]) -> None:
    life = Life()
    for word, value in acts:
        life.act(word, value)
        world = life.world
        for wait in world.cycle().outcome.waits:
            assert (wait.why is Why.QUOTA) == (wait.full is not None)
            if wait.full is not None:
                limits, asked = world.limits[wait.unit.run.namespace], asked_of(wait.unit)
                for over in wait.full.overs:
                    assert over.limit == limits[over.resource]
                    assert over.used + over.asked > over.limit
                    assert over.asked == asked.get(over.resource, asked["gpus"]) or wait.full.any_of
        world.start_all()


@MANY
@given(ACTS)
def test_who_waits_for_a_quota_blocks_nobody(acts: list[tuple[str, Any]]) -> None:
    """Taken out of the queue, everybody else is placed just the same."""
    life = Life()
    for word, value in acts:
        life.act(word, value)
        book, now = life.world.book(), life.world.now
        outcome = decide(book, now)
        units = [w.unit for w in outcome.waits if w.why is Why.QUOTA]
        gangs = {unit.run.uid for unit in units if unit.gang}  # nobody of a gang starts before those it needs
        waiting = {e.worker.uid for unit in units for e in unit.members}
        waiting |= {e.worker.uid for e in book.queue if e.run.uid in gangs}
        if not waiting & book.queue.keeping.keys():
            others, whole = book.queue.copy(), book.queue
            for uid in waiting:
                others.drop(uid)
            book.queue = others
            alone = {e.worker.uid for found in decide(book, now).placed for e, _ in found}
            book.queue = whole
            assert alone == {e.worker.uid for found in outcome.placed for e, _ in found}
        life.world.cycle()
        life.world.start_all()


@MANY
@given(ACTS)
def test_a_quota_raised_as_why_says_starts_the_work(acts: list[tuple[str, Any]]) -> None:
    life = Life()
    for word, value in acts:
        life.act(word, value)
        world = life.world
        book = world.book()
        full = [wait for wait in decide(book, world.now).waits if wait.full is not None]
        for wait in full[:1]:  # one an act: each is decided twice more
            if wait.full is not None and list(whatif.raised_quota(book, wait, world.now)):
                namespace, before = wait.unit.run.namespace, dict(world.limits)
                world.limits[namespace] = dict(quota.raised(before[namespace], wait.full))
                placed = {e.worker.uid for found in decide(world.book(), world.now).placed for e, _ in found}
                world.limits = before
                assert {e.worker.uid for e in wait.unit.members} <= placed
        world.cycle()
        world.start_all()


def _nonzero(amounts: dict[str, int]) -> dict[str, int]:
    return {resource: amount for resource, amount in amounts.items() if amount}

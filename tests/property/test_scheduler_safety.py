"""What no sequence of submissions, ends, failures, stops and machines coming and going makes the scheduler do."""

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.decide.scheduling import whatif
from moorage.decide.scheduling.assign import Outcome, Why, begin, decide
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.cycle import Cycle
from moorage.decide.scheduling.feasible import mask, refusals
from moorage.decide.scheduling.ledger import Ledger
from moorage.decide.scheduling.order import minimum_of
from moorage.domain.changes import Update
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import MachineState, WorkerState
from tests.examples import examples
from tests.memory_rows import START
from tests.scheduling_world import SchedulingWorld, gpu_holders

MACHINES = 3
LIMITS = st.sampled_from([None, 60.0, 3600.0])
JOB = st.fixed_dictionaries(
    {
        "gpu": st.integers(0, 4),
        "count": st.integers(1, 3),
        "gang": st.sampled_from([False, False, True, {"min_available": 1}, {"min_available": 2}]),
        "priority": st.integers(0, 2),
        "time_limit": LIMITS,
        "placement": st.sampled_from(
            [{}, {}, {"spread": "machine"}, {"labels": {"pool": "a"}}, {"topology": {"keep": "machine"}}]
        ),
    }
)
ACT = st.one_of(
    st.tuples(st.just("submit"), JOB),
    st.tuples(
        st.sampled_from(["end", "fail", "gone", "requeue", "cordon", "uncordon", "down", "up"]), st.integers(0, 9)
    ),
    st.tuples(st.just("wait"), st.integers(1, 4000)),
)
ACTS = st.lists(ACT, min_size=1, max_size=25)
MANY = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Life:
    """A cluster that lives through acts, with a cycle after each."""

    def __init__(self) -> None:
        self.world = SchedulingWorld()
        for n in range(MACHINES):
            self.world.machine(f"m{n}", gpu_count=4, labels={"pool": "ab"[n % 2]})
        self.jobs = 0
        self.head: tuple[str, float | None] | None = None

    def act(self, word: str, value: Any) -> Cycle:
        """One act, and a cycle."""
        world = self.world
        if word == "submit":
            given = {k: v for k, v in value.items() if v not in (None, {}, False)}
            world.submit(f"j{self.jobs}", **given)
            self.jobs += 1
        elif word == "wait":
            world.now += value
            self._overdue()
        elif word in ("cordon", "uncordon", "down", "up"):
            self._machine(word, value)
        else:
            self._worker(word, value)
        cycle = world.cycle()
        world.start_all()
        return cycle

    def _overdue(self) -> None:
        """A time limit ends what ran that long."""
        for worker in self.world.of(Worker):
            limit = self.world.run_of(worker).spec.get("time_limit")
            started = worker.started_at
            if worker.state is WorkerState.RUNNING and limit and started and self.world.now >= started + limit:
                self.world.ends(worker.uid)

    def _machine(self, word: str, value: int) -> None:
        row = self.world.rows[f"machine-m{value % MACHINES}"]
        assert isinstance(row, Machine)
        if word in ("cordon", "uncordon"):
            self.world.rows[row.uid] = replace(row, cordoned="x" if word == "cordon" else None)
        else:
            state = MachineState.NOT_READY if word == "down" else MachineState.READY
            self.world.rows[row.uid] = replace(row, state=state)

    def _worker(self, word: str, value: int) -> None:
        world = self.world
        if word == "requeue":
            world.requeue_preempted()
            return
        wanted = WorkerState.STOPPING if word == "gone" else WorkerState.RUNNING
        running = [w for w in self.world.standing() if w.state is wanted]
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


@MANY
@given(ACTS)
def test_no_gpu_is_held_twice_and_no_machine_is_oversubscribed(acts: list[tuple[str, Any]]) -> None:
    life = Life()
    for word, value in acts:
        life.act(word, value)
        assert max(Counter(gpu_holders(life.world)).values(), default=0) <= 1
        for room in life.world.rooms():
            assert room.free_cpu_milli >= 0
            assert room.free_memory_bytes >= 0


@MANY
@given(ACTS)
def test_a_gang_is_never_placed_in_part(acts: list[tuple[str, Any]]) -> None:
    life = Life()
    for word, value in acts:
        life.act(word, value)
        for run in life.world.of(Run):
            if run.spec.get("gang"):
                members = [w for w in life.world.of(Worker) if w.run == run.uid]
                needed = sorted(members, key=lambda w: w.rank)[: minimum_of(run) or len(members)]
                waiting = [w for w in needed if w.state is WorkerState.PENDING and w.machine is None]
                placed = [w for w in needed if w.machine is not None and w.state is not WorkerState.COMPLETED]
                stopped = any(w.stop for w in members)
                assert not waiting or not placed or stopped, f"{run.name}: {len(placed)} of {len(needed)}"


@MANY
@given(ACTS)
def test_only_lower_priority_is_stopped_and_only_for_work_that_then_fits(acts: list[tuple[str, Any]]) -> None:
    life = Life()
    for word, value in acts:
        cycle = life.act(word, value)
        for wait in cycle.outcome.waits:
            if wait.plan is None:
                continue
            assert all(v.run.priority < wait.unit.priority for v in wait.plan.victims)
            assert {e.worker.uid for e, _ in wait.plan.room} == {e.worker.uid for e in wait.unit.members}
            for victim in wait.plan.victims:
                assert not _fits_without(life.world, wait.unit.first.worker.uid, wait.plan, victim), "one too many"


def _fits_without(world: SchedulingWorld, uid: str, plan: Any, spared: Any) -> bool:
    """Whether the unit would fit with all victims but one gone."""
    gone = {h.worker.uid for v in plan.victims if v is not spared for h in v.holders}
    other = SchedulingWorld()
    other.now, other.rows = world.now, dict(world.rows)
    other.holds = {k: h for k, h in world.holds.items() if k[0] not in gone}
    for row in gone:
        other.rows.pop(row)
    row = other.w(uid)
    other.rows[uid] = replace(row, placement=None)
    book = other.book()
    alone = Book(book.fleet, type(book.queue).of([w for w in other.pending() if w.run == row.run], _runs(other)))
    alone.holders = book.holders
    outcome = decide(alone, other.now)
    return any(e.worker.uid == uid for found in outcome.placed for e, _ in found)


def _runs(world: SchedulingWorld) -> dict[str, Run]:
    return {r.uid: r for r in world.of(Run)}


@MANY
@given(st.lists(st.tuples(JOB, st.integers(0, 600)), min_size=2, max_size=14))
def test_backfill_never_delays_the_head(jobs: list[tuple[dict[str, Any], int]]) -> None:
    """While nothing of higher priority comes, the head's start only moves earlier."""
    life = Life()
    promised: dict[str, float] = {}
    for job, passes in jobs:
        life.act("submit", {**job, "priority": 0, "time_limit": job["time_limit"] or 7200.0})
        cycle = life.act("wait", passes)
        head = cycle.outcome.head
        if head is not None and head.start is not None:
            uid = head.unit.first.worker.uid
            assert head.start <= promised.get(uid, head.start), "the head was put off"
            promised[uid] = head.start
            assert head.start > START


@MANY
@given(st.lists(JOB, min_size=1, max_size=10))
def test_finite_work_starves_nobody(jobs: list[dict[str, Any]]) -> None:
    life = Life()
    for job in jobs:
        life.act("submit", job)
    for _ in range(200):
        standing = life.world.standing()
        if not standing:
            break
        for worker in standing:
            life.act("gone" if worker.state is WorkerState.STOPPING else "end", 0)
        life.act("requeue", 0)
    left = [w for w in life.world.pending() if life.world.code(w.uid) != "restart.backoff"]  # waits for time alone
    codes = {life.world.code(w.uid) for w in left}
    assert codes <= {"place.never_fits", "place.gang_not_whole", "place.min_not_whole", "place.no_machine_fits"}, codes
    for worker in left:
        wait = life.world.wait_of(life.world.cycle(), worker.uid)
        assert wait.why is Why.ROOM


@MANY
@given(ACTS)
def test_what_why_proposes_happens_when_it_is_done(acts: list[tuple[str, Any]]) -> None:
    life = Life()
    for word, value in acts:
        life.act(word, value)
    book = life.world.book()
    outcome: Outcome = decide(book, life.world.now)
    for wait in list(outcome.waits)[:3]:
        for remedy in whatif.remedies(book, wait.unit, life.world.now):
            changed = _made_in_the_world(life.world, wait.unit, remedy.change)
            if changed is None:
                continue
            again = decide(changed.book(), changed.now)
            uid = wait.unit.first.worker.uid
            place = whatif.placed(again, wait.unit) or next(
                (w.plan.room for w in again.waits if w.plan is not None and w.unit.first.worker.uid == uid), None
            )
            assert place is not None, remedy
            for name in {changed.rows[_machine_of(again, spot)].name for _, spot in place}:
                assert name in remedy.effect


def _machine_of(outcome: Outcome, spot: Any) -> str:
    return outcome.ledger.fleet.room(spot.row).machine.uid


def _made_in_the_world(world: SchedulingWorld, unit: Any, change: str) -> SchedulingWorld | None:
    """A world in which somebody did what was proposed, by the rows alone; None: a change of another kind."""
    other = SchedulingWorld()
    other.now, other.rows, other.holds = world.now, dict(world.rows), dict(world.holds)
    run = unit.run
    last = change.split()[-1]
    if change.startswith("uncordon machine "):
        other.rows[f"machine-{last}"] = replace(other.rows[f"machine-{last}"], cordoned=None)  # type: ignore[call-arg]  # it is a machine
    elif change.startswith("raise its priority to "):
        other.rows[run.uid] = replace(run, priority=int(last))
    elif change.startswith("drop "):
        other.rows[run.uid] = replace(run, spec={**run.spec, "placement": {}})
    elif change.startswith("ask for ") and "GPUs" in change:
        for worker in [w for w in other.pending() if w.run == run.uid]:
            request = {**worker.request, "gpus": {"count": int(change.split()[2])}}
            other.rows[worker.uid] = replace(worker, request=request)
    elif change.startswith("when ") and change.endswith(" ends"):
        ending = next(r for r in other.of(Run) if r.name == change.split()[1])
        for worker in [w for w in other.of(Worker) if w.run == ending.uid]:
            other.holds = {key: hold for key, hold in other.holds.items() if hold.worker != worker.uid}
            if worker.machine is not None:
                del other.rows[worker.uid]
    else:
        return None
    return other


@MANY
@given(ACTS)
def test_a_machine_fits_exactly_when_it_refuses_for_no_reason(acts: list[tuple[str, Any]]) -> None:
    life = Life()
    for word, value in acts:
        life.act(word, value)
    book = life.world.book()
    ledger = Ledger(book.fleet)
    for entry in book.queue:
        fits = mask(ledger, entry.ask, entry.apart)
        for room in book.fleet.rooms():
            row = book.fleet.row(room.machine.uid)
            assert bool(fits[row]) == (not refusals(entry.ask, ledger.room(row, entry.apart), entry.apart))


@MANY
@given(ACTS)
def test_a_book_kept_up_row_by_row_decides_as_one_built_whole(acts: list[tuple[str, Any]]) -> None:
    life = Life()
    kept = life.world.book()
    before = dict(life.world.rows)
    for word, value in acts:
        life.act(word, value)
        holding = {h.worker: h.machine for h in life.world.holds.values()}
        for room in life.world.rooms():
            kept.room(room)
        for uid, row in life.world.rows.items():
            if before.get(uid) is not row and row.kind == "Worker":
                kept.worker(row, life.world.run_of(row), holding.get(uid))  # type: ignore[arg-type]  # its kind says so
        before = dict(life.world.rows)
        built = life.world.book()
        assert _told(decide(kept, life.world.now)) == _told(decide(built, life.world.now))


@MANY
@given(ACTS)
def test_work_that_shares_a_look_is_told_what_it_would_be_told_alone(acts: list[tuple[str, Any]]) -> None:
    life = Life()
    for word, value in acts:
        life.act(word, value)
        book, now = life.world.book(), life.world.now
        alone = begin(book, now)
        alone.line.alike[:] = -1
        alone.walk()
        assert _told(decide(book, now)) == _told(alone.outcome())


def _told(outcome: Outcome) -> Any:
    fleet = outcome.ledger.fleet
    placed = sorted(
        (e.worker.uid, fleet.room(s.row).machine.name, s.gpus) for found in outcome.placed for e, s in found
    )
    waits = [(w.unit.first.worker.uid, w.why, w.until) for w in outcome.waits]
    return placed, waits, outcome.wake_at


@MANY
@given(ACTS)
def test_a_cycle_that_changed_nothing_is_followed_by_one_that_writes_nothing(acts: list[tuple[str, Any]]) -> None:
    life = Life()
    for word, value in acts:
        life.act(word, value)
    life.world.settle()
    assert not [w for c in life.world.cycle().changes for w in c.writes if isinstance(w, Update)]

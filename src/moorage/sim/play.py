"""Plays a trace: an event loop over arrivals, ends and stops, with a cycle of the production scheduler at each instant.

Deterministic: the same machines, tasks, policy and seed give the same result, apart from the seconds it took. Real
time, and whether to stop, are asked of the caller (`main`).
"""

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from moorage.decide.scheduling.assign import Outcome, Wait, Why
from moorage.decide.scheduling.policies import Policy
from moorage.decide.scheduling.writes import wait_reason
from moorage.domain.nouns import Machine, Worker
from moorage.domain.states import WorkerState
from moorage.sim.cluster import EPOCH, Cluster, Did
from moorage.sim.measures import Series, Waits, Work, size_class, waits_by_class
from moorage.sim.refusals import Never, Refusals
from moorage.sim.traces import Task

FRAGMENT_LOOKS = 300
"""Moments at which fragmentation is measured."""

PLANS_MAX = 10_000
"""Cycles at one instant; each but the last makes a plan of preemption. More is a defect."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What a simulation cost: real seconds, which differ from one time to the next.

    Args:
        wall_s: all of it.
        scheduler_cpu_s: CPU of the decisions only.
        cycles: how often the scheduler looked.
        decisions: units that it placed or told to wait, over all cycles.
    """

    wall_s: float
    scheduler_cpu_s: float
    cycles: int
    decisions: int


@dataclass(frozen=True, slots=True)
class Played:
    """What one policy did with a trace.

    Args:
        until_s: simulated time at its end.
        tasks: how many were submitted; `placed`: workers given a place, again after a preemption included.
        allocated_mean, allocated_most: GPUs held, over time and at once.
        allocated_full: mean of the GPUs held while all there are, or more, were asked for; where nothing ends, the
            GPUs held in the end; None: the cluster never was full.
        fragmented: GPUs expected to be of no use to the next task: mean over the looks, and at the last of them.
        lost_s: seconds for which preempted workers had run, to start over.
    """

    policy: Policy
    until_s: float
    tasks: int
    placed: int
    completed: int
    allocated_mean: float
    allocated_most: int
    allocated_full: float | None
    fragmented_mean: float
    fragmented_last: float
    preemptions: int
    lost_s: float
    backfills: int
    waits: tuple[Waits, ...]
    never: tuple[Never, ...]
    series: Series
    fragments: tuple[tuple[float, float], ...]
    effort: Effort
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """What stands around a simulation.

    Args:
        seed: of a random policy.
        services: nothing ends.
        monotonic, cpu: real seconds, and seconds of this process's CPU.
        stopped: whether to end now, with what there is.
        progress: called now and then with tasks submitted and simulated seconds.
    """

    seed: int = 0
    services: bool = False
    monotonic: Callable[[], float] = lambda: 0.0
    cpu: Callable[[], float] = lambda: 0.0
    stopped: Callable[[], bool] = lambda: False
    progress: Callable[[int, float], None] = lambda _tasks, _at: None


def play(machines: Sequence[Machine], tasks: Sequence[Task], policy: Policy, setting: Setting) -> Played:
    """Play these tasks, in order of submission, on these machines."""
    return _Game(tasks, policy, setting, Cluster.of(machines, services=setting.services)).play()


ENDS, GONE, WAKE = 0, 1, 2


@dataclass(slots=True)
class _Game:
    """The state of a simulation."""

    tasks: Sequence[Task]
    policy: Policy
    setting: Setting
    cluster: Cluster
    work: Work = field(init=False)
    draw: random.Random = field(init=False)
    series: Series = field(default_factory=Series)
    fragments: list[tuple[float, float]] = field(default_factory=list)
    events: list[tuple[float, int, str, int]] = field(default_factory=list)
    """(at, kind, worker, attempt)"""
    next_task: int = 0
    task_of: dict[str, Task] = field(default_factory=dict)
    """by uid of a run that has not ended"""
    unstarted: dict[str, set[str]] = field(default_factory=dict)
    """by uid of a run: its workers that never started"""
    started: list[tuple[int, float]] = field(default_factory=list)
    refusals: Refusals = field(default_factory=Refusals)
    withdrawn: int = 0
    """where nothing ends: workers that found no room"""
    last: Outcome | None = None
    wakes: set[float] = field(default_factory=set)
    waiting_gpus: int = 0
    placed: int = 0
    completed: int = 0
    preemptions: int = 0
    lost_s: float = 0.0
    backfills: int = 0
    cycles: int = 0
    decisions: int = 0
    instants: int = 0
    scheduler_cpu_s: float = 0.0

    def __post_init__(self) -> None:
        self.work = Work(self.tasks)
        self.draw = random.Random(self.setting.seed)

    def play(self) -> Played:
        """Every instant in order."""
        began, interrupted = self.setting.monotonic(), False
        now = 0.0
        while (at := self._next()) is not None:
            if self.setting.stopped():
                interrupted = True
                break
            now = at
            self._instant(now)
        if self.fragments and self.fragments[-1][0] != now:
            self._look(now)
        return self._result(now, self.setting.monotonic() - began, interrupted)

    def _next(self) -> float | None:
        arrival = self.tasks[self.next_task].submit_s if self.next_task < len(self.tasks) else None
        event = self.events[0][0] if self.events else None
        return min((at for at in (arrival, event) if at is not None), default=None)

    def _instant(self, now: float) -> None:
        while self.events and self.events[0][0] <= now:
            self._happens(*heapq.heappop(self.events))
        while self.next_task < len(self.tasks) and self.tasks[self.next_task].submit_s <= now:
            self._submit(self.tasks[self.next_task], now)
        self._cycles(now)
        allocated = self.cluster.allocated
        self.series.add(now, allocated, allocated + self.waiting_gpus, self.withdrawn + len(self.cluster.book.queue))
        if self.instants % max(1, len(self.tasks) // FRAGMENT_LOOKS) == 0:
            self._look(now)
            self.setting.progress(self.next_task, now)
        self.instants += 1

    def _cycles(self, now: float) -> None:
        """A cycle, and another after each plan of preemption, which would wake it; none for nobody."""
        for _ in range(PLANS_MAX):
            if not len(self.cluster.book.queue) or not self._cycle(now).stopping:
                return
        raise RuntimeError("the scheduler stops work for ever at one instant")

    def _look(self, now: float) -> None:
        self.fragments.append((now, self.work.fragmentation(self.cluster.book.fleet)))

    # What happens

    def _submit(self, task: Task, now: float) -> None:
        run = self.cluster.submit(task, self.next_task, EPOCH + now)
        self.next_task += 1
        self.task_of[run.uid] = task
        self.unstarted[run.uid] = {f"{run.uid}-{rank}" for rank in range(task.workers)}
        self.waiting_gpus += task.gpus_total

    def _happens(self, _at: float, kind: int, uid: str, attempt: int) -> None:
        if kind == WAKE:
            self.wakes.discard(_at)
            return
        worker = self.cluster.workers.get(uid)
        if worker is None or worker.attempt != attempt:
            return
        if kind == GONE:
            waited = len(self.cluster.book.queue)
            self.cluster.gone(uid)
            again = len(self.cluster.book.queue) - waited
            self.waiting_gpus += again * self.task_of[worker.run].gpus
        elif worker.state is WorkerState.RUNNING and self.cluster.ends(uid):
            self.completed += 1
            del self.task_of[worker.run]

    def _cycle(self, now: float) -> Did:
        began = self.setting.cpu()
        outcome = self.cluster.cycle(EPOCH + now, self.policy, self.draw.getrandbits(63))
        self.scheduler_cpu_s += self.setting.cpu() - began
        did = self.cluster.commit(outcome, EPOCH + now)
        self.last = outcome
        if self.setting.services:
            self._withdraw(outcome)
        self.cycles += 1
        self.decisions += did.units + did.waited
        self.backfills += did.backfilled
        for worker in did.placed:
            self._placed(worker, now)
        for worker, gone_at in did.stopping:
            self.preemptions += 1
            self.lost_s += now - ((worker.started_at or EPOCH) - EPOCH)
            heapq.heappush(self.events, (gone_at - EPOCH, GONE, worker.uid, worker.attempt))
        if outcome.wake_at is not None and outcome.wake_at - EPOCH > now:
            self._wake(outcome.wake_at - EPOCH)
        return did

    def _withdraw(self, outcome: Outcome) -> None:
        """Where nothing ends, what found no room never will: like the published method, it is not tried again."""
        for wait in outcome.waits:
            if wait.why is Why.ROOM:
                if self._unstarted(wait):
                    self._note(wait)
                for entry in wait.unit.members:
                    self.cluster.book.forget(entry.worker.uid)
                    self.withdrawn += 1

    def _unstarted(self, wait: Wait) -> bool:
        left = self.unstarted.get(wait.unit.run.uid, ())
        return any(entry.worker.uid in left for entry in wait.unit.members)

    def _note(self, wait: Wait) -> None:
        assert self.last is not None
        run = wait.unit.run.uid
        why = wait_reason(self.cluster.book, self.last, wait)
        self.refusals.note(run, size_class(self.task_of[run].gpus_total), wait.unit.first, why)

    def _wake(self, at: float) -> None:
        if at not in self.wakes:
            self.wakes.add(at)
            heapq.heappush(self.events, (at, WAKE, "", 0))

    def _placed(self, worker: Worker, now: float) -> None:
        task = self.task_of[worker.run]
        self.placed += 1
        self.waiting_gpus -= task.gpus
        if not self.setting.services:
            heapq.heappush(self.events, (now + task.runs_s, ENDS, worker.uid, worker.attempt))
        left = self.unstarted.get(worker.run)
        if left is not None:
            left.discard(worker.uid)
            if not left:
                del self.unstarted[worker.run]
                self.started.append((task.gpus_total, now - task.submit_s))

    # The end

    def _result(self, now: float, wall_s: float, interrupted: bool) -> Played:
        never = [self.task_of[run].gpus_total for run in self.unstarted]
        series, fragments = self.series, [value for _, value in self.fragments]
        return Played(
            policy=self.policy,
            until_s=now,
            tasks=self.next_task,
            placed=self.placed,
            completed=self.completed,
            allocated_mean=series.mean(series.allocated),
            allocated_most=int(max(series.allocated, default=0)),
            allocated_full=self._full(),
            fragmented_mean=sum(fragments) / len(fragments) if fragments else 0.0,
            fragmented_last=fragments[-1] if fragments else 0.0,
            preemptions=self.preemptions,
            lost_s=self.lost_s,
            backfills=self.backfills,
            waits=waits_by_class(self.started, never),
            never=self._never(),
            series=series,
            fragments=tuple(self.fragments),
            effort=Effort(wall_s, self.scheduler_cpu_s, self.cycles, self.decisions),
            interrupted=interrupted,
        )

    def _full(self) -> float | None:
        if self.setting.services and self.series.asked and self.series.asked[-1] >= self.cluster.gpus_total:
            return self.series.allocated[-1]
        return self.series.mean_while_full(self.cluster.gpus_total)

    def _never(self) -> tuple[Never, ...]:
        """Runs of which a worker never started, by the reason that the scheduler gives for it."""
        for wait in self.last.waits if self.last is not None and not self.setting.services else ():
            if self._unstarted(wait):
                self._note(wait)
        return self.refusals.told(self.cluster.book.fleet)

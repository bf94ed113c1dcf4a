"""What is measured of a simulation while it runs, and how it is summed up. Pure; `play` feeds it.

Fragmentation is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): the free GPUs that a task drawn at
random from the work could not use, because their machine lacks GPUs enough, CPU, memory or the model, expected over
that draw. Here the work is what the trace asks for with whole GPUs; tasks without GPUs are left out. Whether a machine
takes a task is asked of the scheduler's own predicate.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from moorage.decide.scheduling.feasible import mask
from moorage.decide.scheduling.fleet import Fleet
from moorage.decide.scheduling.ledger import Ledger
from moorage.decide.scheduling.snapshot import Ask, Placement, Request
from moorage.sim.traces import Task

KINDS_MAX = 64
"""Kinds of tasks that fragmentation is expected over, the commonest first."""

CLASSES: tuple[tuple[str, int, int | None], ...] = (
    ("no GPU", 0, 0),
    ("1 GPU", 1, 1),
    ("2-3 GPUs", 2, 3),
    ("4-7 GPUs", 4, 7),
    ("8 GPUs", 8, 8),
    ("9-63 GPUs", 9, 63),
    ("64 GPUs and more", 64, None),
)
"""Size classes of tasks by the GPUs of all their workers: name, from, to."""

POINTS = 300
"""Points of a series in a report."""


def size_class(gpus: int) -> str:
    """The class of a task with so many GPUs in all."""
    return next(name for name, least, most in CLASSES if gpus >= least and (most is None or gpus <= most))


def percentile(ordered: Sequence[float], part: float) -> float | None:
    """The smallest of these values (sorted) that at least `part` of them do not exceed."""
    if not ordered:
        return None
    return ordered[max(0, -(-int(len(ordered) * part * 1000) // 1000) - 1)]


class Work:
    """Kinds of GPU tasks and how often each is seen.

    Args:
        tasks: the trace.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        counts: dict[Ask, int] = {}
        for task in tasks:
            if task.gpus:
                ask = _ask(task)
                counts[ask] = counts.get(ask, 0) + task.workers
        commonest = sorted(counts.items(), key=lambda one: -one[1])[:KINDS_MAX]
        total = sum(count for _, count in commonest)
        self.kinds = [(ask, count / total) for ask, count in commonest]

    def fragmentation(self, fleet: Fleet) -> float:
        """Free GPUs that are expected to be of no use to the next task."""
        ledger = Ledger(fleet)
        free = np.bitwise_count(ledger.gpus).astype(np.int64)
        return sum(share * float(free[~mask(ledger, ask)].sum()) for ask, share in self.kinds)


def _ask(task: Task) -> Ask:
    request = Request(task.cpu_milli, task.memory_bytes, task.gpus, models=task.models)
    return Ask.of(request, Placement(labels=task.labels))


@dataclass(slots=True)
class Series:
    """What was so from each moment on until the next."""

    at: "array[float]" = field(default_factory=lambda: array("d"))
    allocated: "array[float]" = field(default_factory=lambda: array("d"))
    """GPUs held"""
    asked: "array[float]" = field(default_factory=lambda: array("d"))
    """GPUs held or waited for"""
    waiting: "array[float]" = field(default_factory=lambda: array("d"))
    """workers that wait"""

    def add(self, at: float, allocated: int, asked: int, waiting: int) -> None:
        """A moment, later than the ones before."""
        self.at.append(at)
        self.allocated.append(allocated)
        self.asked.append(asked)
        self.waiting.append(waiting)

    def mean(self, of: "array[float]") -> float:
        """Its mean over time."""
        steps = np.diff(np.asarray(self.at))
        return float((np.asarray(of)[:-1] * steps).sum() / steps.sum()) if len(steps) and steps.sum() else 0.0

    def mean_while_full(self, gpus_total: int) -> float | None:
        """Mean of the GPUs held while all there are, or more, are asked for; None: they never were."""
        steps = np.diff(np.asarray(self.at))
        full = (np.asarray(self.asked)[:-1] >= gpus_total) * steps
        return float((np.asarray(self.allocated)[:-1] * full).sum() / full.sum()) if full.sum() else None

    def points(self, of: "array[float]", count: int = POINTS) -> list[tuple[float, float]]:
        """At most `count` points of one column: means over equal stretches of time."""
        at, values = np.asarray(self.at), np.asarray(of)
        if len(at) < 2 or at[-1] <= at[0]:
            return [(float(t), float(v)) for t, v in zip(at[-1:], values[-1:], strict=True)]
        area = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(at))])
        edges = np.linspace(at[0], at[-1], count + 1)
        means = np.diff(np.interp(edges, at, area)) / np.diff(edges)
        return [(float(t), float(v)) for t, v in zip(edges[1:], means, strict=True)]


@dataclass(frozen=True, slots=True)
class Waits:
    """How long tasks of one size waited until all their workers had started once, in seconds.

    Args:
        started: how many did start.
        p50_s, p90_s, p99_s: of those; None without any.
        waiting: how many never did.
    """

    size: str
    started: int
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    waiting: int


def waits_by_class(started: Iterable[tuple[int, float]], never: Iterable[int]) -> tuple[Waits, ...]:
    """Waits of each size class that occurs.

    Args:
        started: GPUs and wait of each task that started.
        never: GPUs of each that did not.
    """
    seconds: dict[str, list[float]] = {}
    left: dict[str, int] = {}
    for gpus, wait in started:
        seconds.setdefault(size_class(gpus), []).append(wait)
    for gpus in never:
        left[size_class(gpus)] = left.get(size_class(gpus), 0) + 1
    return tuple(
        _waits(name, sorted(seconds.get(name, ())), left.get(name, 0))
        for name, _, _ in CLASSES
        if name in seconds or name in left
    )


def _waits(name: str, ordered: list[float], left: int) -> Waits:
    p50, p90, p99 = (percentile(ordered, part) for part in (0.5, 0.9, 0.99))
    return Waits(name, len(ordered), p50, p90, p99, left)

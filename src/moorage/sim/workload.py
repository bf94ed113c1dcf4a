"""What of a trace is played: a part of its hours, a sample, copies, or a cluster filled until it is more than full.

Every draw comes from the seed. Called by `main`.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from moorage.domain.errors import InvalidSpec
from moorage.sim.traces import Task, Trace

SATURATE_TO = 1.3
"""GPUs asked for, as a part of all there are, up to which a cluster is filled (Weng et al., USENIX ATC 2023)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is played.

    Args:
        hours: from and to, since the beginning of the trace; None: to its end.
        sample: each task is played with this probability.
        scale: each task is played so many times (a fraction by chance), at the same moment.
        pace: the clock of arrivals runs so many times as fast; how long tasks take stays.
        saturate: tasks arrive, in an order drawn anew for each pass over the trace, until `SATURATE_TO` of all GPUs is
            asked for; nothing ends.
        limits: each task declares a time limit of so many times its duration.
        seed: of every draw.
    """

    hours: tuple[float, float | None] = (0.0, None)
    sample: float = 1.0
    scale: float = 1.0
    pace: float = 1.0
    saturate: bool = False
    limits: float | None = None
    seed: int = 0


def choose(trace: Trace, choice: Choice, gpus_total: int) -> Trace:
    """The tasks that are played, with notes on what was chosen.

    Args:
        gpus_total: all GPUs of the cluster.

    Raises:
        InvalidSpec: nothing is left.
    """
    draw = random.Random(choice.seed)
    tasks, notes = list(trace.tasks), list(trace.notes)
    begin, end = choice.hours[0] * 3600, None if choice.hours[1] is None else choice.hours[1] * 3600
    if begin or end is not None:
        tasks = [replace(t, submit_s=t.submit_s - begin) for t in tasks if _within(t.submit_s, begin, end)]
        notes.append(f"Only tasks submitted in hours {choice.hours[0]:g} to {_hour(choice.hours[1])} are played.")
    if choice.sample < 1.0:
        tasks = [task for task in tasks if draw.random() < choice.sample]
        notes.append(f"A sample of {choice.sample:.0%} of the tasks is played.")
    if choice.scale != 1.0:
        tasks = [task for task in tasks for _ in range(int(choice.scale) + (draw.random() < choice.scale % 1))]
        notes.append(f"Each task is submitted {choice.scale:g} times, at the same moment.")
    if choice.pace != 1.0:
        tasks = [replace(task, submit_s=task.submit_s / choice.pace) for task in tasks]
        notes.append(f"Tasks arrive {choice.pace:g} times as fast as in the trace; each takes as long as there.")
    if not tasks:
        raise InvalidSpec("no task of the trace is left to play", remedy="widen --hours, --sample or --scale")
    if choice.saturate:
        tasks = _saturating(tasks, gpus_total, draw)
        notes.append(
            f"{len(tasks)} tasks, drawn from the trace by seed, arrive one by one until {SATURATE_TO:.0%} of all GPUs "
            "is asked for; nothing ends."
        )
    if choice.limits is not None:
        tasks = [replace(t, time_limit_s=max(1.0, t.duration_s * choice.limits)) for t in tasks]
        notes.append(f"Each task declares a time limit of {choice.limits:g} times what it takes.")
    return Trace(tuple(tasks), tuple(notes))


def _within(at: float, begin: float, end: float | None) -> bool:
    return begin <= at and (end is None or at < end)


def _hour(at: float | None) -> str:
    return "the end" if at is None else f"{at:g}"


def _saturating(tasks: Sequence[Task], gpus_total: int, draw: random.Random) -> list[Task]:
    if not any(task.gpus for task in tasks):
        raise InvalidSpec("no task asks for a GPU: the cluster cannot be filled", remedy="leave --saturate out")
    chosen: list[Task] = []
    asked = 0
    while asked < SATURATE_TO * gpus_total:
        for task in draw.sample(tasks, len(tasks)):
            if asked >= SATURATE_TO * gpus_total:
                break
            chosen.append(replace(task, submit_s=float(len(chosen))))
            asked += task.gpus_total
    return chosen

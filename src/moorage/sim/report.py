"""A simulation's report as plain values (for JSON, and what tables and pages are drawn from)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from moorage.domain.nouns import Machine
from moorage.sim.play import Played
from moorage.sim.traces import Trace

FRAGMENTATION = (
    "Fragmentation: free GPUs that a task drawn at random from the trace could not use, because their machine lacks "
    'GPUs enough, CPU, memory or the model (Weng et al., "Beware of Fragmentation", USENIX ATC 2023).'
)


@dataclass(frozen=True, slots=True)
class Report:
    """One or more policies over the same machines and tasks.

    Args:
        title: what was played, in a few words.
        notes: what a reader must know of it, in sentences.
        saturating: nothing ended; the cluster was filled.
    """

    title: str
    machines: int
    gpus: int
    tasks: int
    gpus_asked: int
    seed: int
    saturating: bool
    notes: tuple[str, ...]
    played: tuple[Played, ...]

    @staticmethod
    def of(
        title: str, machines: Sequence[Machine], trace: Trace, played: Sequence[Played], *, seed: int, saturating: bool
    ) -> "Report":
        """The report of these."""
        notes = list(trace.notes)
        if not saturating:
            notes.append(_life(played))
        if any(one.interrupted for one in played):
            notes.append("It was interrupted: what is shown is what had happened until then.")
        gpus = sum(len(machine.capacity["gpus"]) for machine in machines)
        asked = sum(task.gpus_total for task in trace.tasks)
        return Report(
            title, len(machines), gpus, len(trace.tasks), asked, seed, saturating, tuple(notes), tuple(played)
        )

    @property
    def interrupted(self) -> bool:
        """Whether some of it is missing."""
        return any(one.interrupted for one in self.played)


def _life(played: Sequence[Played]) -> str:
    stopped = any(one.preemptions for one in played)
    text = "A worker runs from the moment it is placed, for as long as it did in the trace"
    more = "; one that is preempted leaves after its grace and starts over" if stopped else ""
    return f"{text}{more}."


def to_json(report: Report) -> dict[str, Any]:
    """The report for programs. What differs from one time to the next is under `effort` alone."""
    return {
        "title": report.title,
        "machines": report.machines,
        "gpus": report.gpus,
        "tasks": report.tasks,
        "gpus_asked": report.gpus_asked,
        "seed": report.seed,
        "saturating": report.saturating,
        "interrupted": report.interrupted,
        "notes": [*report.notes, FRAGMENTATION],
        "policies": [_policy(report, one) for one in report.played],
    }


def _policy(report: Report, one: Played) -> dict[str, Any]:
    effort = one.effort
    rate = effort.decisions / effort.scheduler_cpu_s if effort.scheduler_cpu_s else None
    return {
        "policy": str(one.policy),
        "until_s": one.until_s,
        "submitted": one.tasks,
        "completed": one.completed,
        "placements": one.placed,
        "allocated": {
            "mean": part(one.allocated_mean, report.gpus),
            "most": part(one.allocated_most, report.gpus),
            "saturated": None if one.allocated_full is None else part(one.allocated_full, report.gpus),
        },
        "fragmentation_gpus": {"mean": one.fragmented_mean, "last": one.fragmented_last},
        "preemptions": one.preemptions,
        "lost_worker_s": one.lost_s,
        "backfills": one.backfills,
        "waits": [asdict(waits) for waits in one.waits],
        "never_placed": [asdict(never) for never in one.never],
        "series": {
            "allocated_gpus": one.series.points(one.series.allocated),
            "asked_gpus": one.series.points(one.series.asked),
            "waiting_workers": one.series.points(one.series.waiting),
            "fragmented_gpus": [list(point) for point in one.fragments],
        },
        "effort": {**asdict(effort), "decisions_per_cpu_s": rate},
    }


def part(gpus: float, total: int) -> dict[str, float]:
    """GPUs, and which part of all they are."""
    return {"gpus": gpus, "part": gpus / total if total else 0.0}

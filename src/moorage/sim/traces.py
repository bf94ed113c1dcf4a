"""Tasks of a simulation, from a CSV file: our own columns, or those of the openb trace. Called by `main`.

    name,submit_s,duration_s,gpus,cpu,memory_gib,workers,gang,priority,models,time_limit_s,labels

A task is a run of `workers` processes, each with so many GPUs, cores and GiB; `gang` places them whole or not at all;
`models` are joined by a bar; a time limit, where given, also ends it. The openb format (cluster-trace-gpu-v2023) is
known by its header: name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time and more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.sim.sheets import Row, Sheet, read

NEEDED = ("submit_s", "duration_s", "gpus", "cpu", "memory_gib")
OPTIONAL = ("name", "workers", "gang", "priority", "models", "time_limit_s", "labels")
OPENB = ("name", "cpu_milli", "memory_mib", "num_gpu", "creation_time", "deletion_time")

WORKERS_MAX = 10_000
PRIORITY_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """One submission of a trace: a run of its own.

    Args:
        submit_s: seconds since the beginning of the trace.
        duration_s: how long each worker runs once it has started.
        gpus, cpu_milli, memory_bytes: of each worker.
        time_limit_s: what it declares; None: nothing.
    """

    name: str
    submit_s: float
    duration_s: float
    gpus: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    workers: int = 1
    gang: bool = False
    priority: int = 0
    models: tuple[str, ...] = ()
    time_limit_s: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus_total(self) -> int:
        """Of all its workers."""
        return self.gpus * self.workers

    @property
    def runs_s(self) -> float:
        """Seconds from a start to its end: its duration, or its limit where that is shorter."""
        return self.duration_s if self.time_limit_s is None else min(self.duration_s, self.time_limit_s)


@dataclass(frozen=True, slots=True)
class Trace:
    """Every task, by time of submission.

    Args:
        notes: what was changed in reading it, in sentences.
    """

    tasks: tuple[Task, ...]
    notes: tuple[str, ...] = ()


def load(path: Path) -> Trace:
    """Every task of a file.

    Raises:
        NotFound: there is no such file.
        InvalidSpec: something in it is wrong.
    """
    sheet = read(path)
    if sheet.has(*OPENB):
        return _sorted([_openb(row) for row in sheet.rows], _openb_notes(sheet))
    sheet.check(NEEDED, OPTIONAL)
    return _sorted([_own(row) for row in sheet.rows], ())


def _sorted(tasks: list[Task], notes: tuple[str, ...]) -> Trace:
    return Trace(tuple(sorted(tasks, key=lambda task: task.submit_s)), notes)


def _own(row: Row) -> Task:
    workers, priority = row.whole("workers", 1, least=1), row.whole("priority", 0, least=-PRIORITY_MAX)
    if workers > WORKERS_MAX:
        raise row.wrong("workers", f"{workers} workers; a run has at most {WORKERS_MAX}")
    if priority > PRIORITY_MAX:
        raise row.wrong("priority", f"{priority} is above {PRIORITY_MAX}")
    return Task(
        name=row.text("name", f"task-{row.line - 1}"),
        submit_s=row.number("submit_s"),
        duration_s=row.number("duration_s"),
        gpus=row.whole("gpus"),
        cpu_milli=round(row.number("cpu") * 1000),
        memory_bytes=round(row.number("memory_gib") * (1 << 30)),
        workers=workers,
        gang=row.flag("gang"),
        priority=priority,
        models=_models(row, "models"),
        time_limit_s=row.number("time_limit_s", least=1.0) if row.text("time_limit_s") else None,
        labels=row.pairs("labels"),
    )


def _models(row: Row, column: str) -> tuple[str, ...]:
    return tuple(filter(None, (model.strip() for model in row.text(column).split("|"))))


# openb


def _openb(row: Row) -> Task:
    submitted, deleted = row.number("creation_time"), row.number("deletion_time")
    started = row.number("scheduled_time", submitted)
    if deleted < started:
        raise row.wrong("deletion_time", f"{deleted:g} is before the task began ({started:g})")
    return Task(
        name=row.text("name"),
        submit_s=submitted,
        duration_s=deleted - started,
        gpus=row.whole("num_gpu"),
        cpu_milli=row.whole("cpu_milli"),
        memory_bytes=row.whole("memory_mib") << 20,
        models=_models(row, "gpu_spec"),
    )


def _openb_notes(sheet: Sheet) -> tuple[str, ...]:
    shares = sum(1 for row in sheet.rows if _is_share(row))
    unplaced = sum(1 for row in sheet.rows if sheet.has("scheduled_time") and not row.text("scheduled_time"))
    notes: list[str] = []
    if shares:
        notes.append(f"{shares} tasks ask for a share of one GPU (gpu_milli below 1000): each is given a whole one.")
    if unplaced:
        notes.append(f"{unplaced} tasks never started in the trace: here they run from creation to deletion.")
    return tuple(notes)


def _is_share(row: Row) -> bool:
    return row.whole("num_gpu") == 1 and 0 < row.number("gpu_milli", 1000.0) < 1000

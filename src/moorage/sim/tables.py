"""A report as tables for a terminal, and their cells as the page shows them. Rows only; drawing is in `cli.output`."""

from collections.abc import Iterator

from moorage.cli.output import Column, Table
from moorage.sim.play import Played
from moorage.sim.refusals import Never
from moorage.sim.report import Report

LINES: tuple[str, ...] = (
    "GPUs allocated, mean",
    "GPUs allocated, most",
    "GPUs allocated when full",
    "fragmented GPUs, mean",
    "fragmented GPUs, last",
    "placements",
    "tasks completed",
    "tasks never placed",
    "preemptions",
    "work lost to them",
    "backfills",
    "simulated time",
    "wall time",
    "scheduler's CPU",
    "decisions per CPU second",
)
"""What is said of each policy."""


def summary(report: Report) -> Table:
    """A column for each policy."""
    columns = (Column("measure"), *(Column(str(one.policy), right=True) for one in report.played))
    each = [values(report, one) for one in report.played]
    return Table(columns, tuple((name, *(cells[at] for cells in each)) for at, name in enumerate(LINES)))


def values(report: Report, one: Played) -> tuple[str, ...]:
    """The cells of one policy, in the order of `LINES`."""
    effort = one.effort
    rate = f"{effort.decisions / effort.scheduler_cpu_s:,.0f}" if effort.scheduler_cpu_s else "-"
    full = "never full" if one.allocated_full is None else _gpus(one.allocated_full, report.gpus)
    return (
        _gpus(one.allocated_mean, report.gpus),
        _gpus(one.allocated_most, report.gpus),
        full,
        f"{one.fragmented_mean:,.1f}",
        f"{one.fragmented_last:,.1f}",
        f"{one.placed:,}",
        f"{one.completed:,}",
        f"{sum(waits.waiting for waits in one.waits):,}",
        f"{one.preemptions:,}",
        span(one.lost_s),
        f"{one.backfills:,}",
        span(one.until_s),
        span(effort.wall_s),
        span(effort.scheduler_cpu_s),
        rate,
    )


def _gpus(count: float, total: int) -> str:
    return f"{count:,.0f} ({count / total:.2%})" if total else f"{count:,.0f}"


def waits(report: Report) -> Table:
    """Waiting times by size class, a row for each class and policy."""
    columns = (
        Column("size"),
        Column("policy"),
        *(Column(title, right=True) for title in ("started", "wait p50", "p90", "p99", "never started")),
    )
    return Table(columns, tuple(_wait_rows(report)), empty="no task was submitted")


def _wait_rows(report: Report) -> Iterator[tuple[str, ...]]:
    by_size = [{w.size: w for w in one.waits} for one in report.played]
    for size in dict.fromkeys(w.size for one in report.played for w in one.waits):
        for one, known in zip(report.played, by_size, strict=True):
            if size in known:
                w = known[size]
                times = ("-" if p is None else span(p) for p in (w.p50_s, w.p90_s, w.p99_s))
                yield (size, str(one.policy), f"{w.started:,}", *times, f"{w.waiting:,}")


def never(report: Report) -> Table:
    """Tasks that never started, by reason."""
    columns = (Column("policy"), Column("tasks", right=True), Column("sizes", flex=True), Column("why", flex=True))
    rows = tuple(
        (str(one.policy), f"{group.tasks:,}", ", ".join(f"{n:,} of {s}" for s, n in group.sizes.items()), _why(group))
        for one in report.played
        for group in one.never
    )
    return Table(columns, rows, empty="every task was placed")


def _why(group: Never) -> str:
    """The reason, and how many machines refuse for what in the end."""
    machines = ", ".join(f"{code} on {count:,.0f}" for code, count in group.machines.items())
    return f"{group.message}; {machines}" if machines else group.message


_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def span(seconds: float) -> str:
    """Seconds as people read them."""
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return "0 s" if seconds == 0 else f"{seconds:.3g} s"

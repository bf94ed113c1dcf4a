"""Tables of GPUs: what each is taken by, since and until when. Objects in, tables out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moorage.cli.layout import Column, Table
from moorage.cli.rows import size
from moorage.cli.times import age, seconds, span

Object = Mapping[str, Any]

SHOWN_MAX = 40
"""GPUs listed below each other in `top`; of more, what counts is how many, and each machine has its own list."""

_WHY = Column("WHY", flex=True)
_STATE = Column("STATE", state=True)
_WORK = (
    Column("WORK"),
    Column("PROCESS", right=True, minor=True),
    Column("SINCE", right=True),
    Column("UNTIL", right=True),
)
_COLUMNS = (
    *(Column("GPU", right=True), Column("MODEL"), Column("MEMORY", right=True, minor=True)),
    *(Column("HEALTH", state=True), _STATE, *_WORK, _WHY),
)
_TAKEN = (Column("MACHINE"), Column("GPU", right=True), Column("MODEL", minor=True), _STATE, *_WORK, _WHY)
_RESERVED = {
    "restart": "kept for its restart",
    "preemption": "others were stopped for it",
    "head": "next in the queue",
}


def machine_table(machine: Object, now: float) -> Table:
    """Every GPU of one machine."""
    cells = tuple(
        (
            str(gpu.get("index")),
            str(gpu.get("model") or "-"),
            size(gpu.get("memory")),
            str(gpu.get("health")),
            *_taken(gpu, now),
        )
        for gpu in machine.get("gpus") or ()
    )
    return Table(_COLUMNS, cells, "no GPUs")


def taken_table(machines: Sequence[Object], now: float) -> tuple[Table, int]:
    """The GPUs that are not free, of all machines; and how many more there are than are listed."""
    found = [
        (str(machine["name"]), str(gpu.get("index")), str(gpu.get("model") or "-"), *_taken(gpu, now))
        for machine in machines
        for gpu in machine.get("gpus") or ()
        if gpu.get("holder") != "free" or gpu.get("fault")
    ]
    return Table(_TAKEN, tuple(found[:SHOWN_MAX])), max(0, len(found) - SHOWN_MAX)


def summary(gpus: Sequence[Object]) -> str:
    """`3 of 8 GPUs held, 1 faulty`; empty without any."""
    if not gpus:
        return ""
    words = [f"{_count(gpus, 'held')} of {len(gpus)} GPUs held"]
    words += [f"{n} {word}" for word in ("reserved", "faulty", "foreign") if (n := _count(gpus, word))]
    return ", ".join(words)


def _count(gpus: Sequence[Object], holder: str) -> int:
    return sum(1 for gpu in gpus if gpu.get("holder") == holder)


def _taken(gpu: Object, now: float) -> tuple[str, ...]:
    process = gpu.get("process") or {}
    return (
        str(gpu.get("holder")),
        str(gpu.get("work") or "-"),
        str(process.get("pid") or str(process.get("container") or "-")[:12]),
        age(gpu.get("since"), now),
        _until(gpu.get("until"), now),
        "; ".join(_whys(gpu)),
    )


def _until(stamp: str | None, now: float) -> str:
    if not stamp:
        return "-"
    left_s = seconds(stamp) - now
    return f"in {span(left_s)}" if left_s > 0 else "overdue"


def _whys(gpu: Object) -> Iterator[str]:
    if gpu.get("reserved_why"):
        yield _RESERVED.get(str(gpu["reserved_why"]), str(gpu["reserved_why"]))
    if gpu.get("fault"):
        yield str(gpu["fault"])
    if gpu.get("foreign_bytes"):
        pids = [str(pid) for pid in gpu.get("foreign_pids") or ()]
        whose = f" of {', '.join(pids)}" if pids else ""
        yield f"{float(gpu['foreign_bytes']) / (1 << 30):.2g}GiB{whose}, not ours"

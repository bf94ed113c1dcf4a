"""Machines of a simulation, from a CSV file: our own columns, or those of the openb trace. Called by `main`.

    name,count,cpu,memory_gib,gpus,model,gpu_memory_gib,labels

`count` machines alike become NAME-0, NAME-1, …; `labels` are `key=value;key=value`. The openb format
(cluster-trace-gpu-v2023) is known by its header: sn,cpu_milli,memory_mib,gpu,model.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from moorage.decide.scheduling.fleet import GPUS_MAX
from moorage.domain.nouns import Machine
from moorage.domain.states import MachineState
from moorage.sim.sheets import Row, read

NEEDED = ("name", "cpu", "memory_gib", "gpus")
OPTIONAL = ("count", "model", "gpu_memory_gib", "labels")
OPENB = ("sn", "cpu_milli", "memory_mib", "gpu", "model")

COUNT_MAX = 100_000


def load(path: Path) -> list[Machine]:
    """Every machine of a file, ready.

    Raises:
        NotFound: there is no such file.
        InvalidSpec: something in it is wrong.
    """
    sheet = read(path)
    openb = sheet.has(*OPENB)
    if not openb:
        sheet.check(NEEDED, OPTIONAL)
    found: dict[str, Machine] = {}
    for row in sheet.rows:
        for machine in [_openb(row)] if openb else _own(row):
            if machine.name in found:
                column = "sn" if openb else "name"
                raise row.wrong(column, f"there are two machines {machine.name!r}", "give each its own name")
            found[machine.name] = machine
    return list(found.values())


def _own(row: Row) -> Iterator[Machine]:
    count = row.whole("count", 1)
    if count > COUNT_MAX:
        raise row.wrong("count", f"{count} machines; at most {COUNT_MAX} are simulated")
    name = _name(row, "name")
    capacity = {
        "cpu_milli": round(row.number("cpu") * 1000),
        "memory_bytes": round(row.number("memory_gib") * (1 << 30)),
        "gpus": _gpus(row, "gpus", row.text("model", "GPU"), round(row.number("gpu_memory_gib", 0.0) * (1 << 30))),
    }
    labels = row.pairs("labels")
    for n in range(count):
        yield _machine(name if "count" not in row.cells else f"{name}-{n}", capacity, labels)


def _openb(row: Row) -> Machine:
    capacity = {
        "cpu_milli": row.whole("cpu_milli"),
        "memory_bytes": row.whole("memory_mib") << 20,
        "gpus": _gpus(row, "gpu", row.text("model", "GPU"), 0),
    }
    return _machine(_name(row, "sn"), capacity, {})


def _name(row: Row, column: str) -> str:
    name = row.text(column)
    if not name:
        raise row.wrong(column, "is empty", "name the machine")
    return name


def _gpus(row: Row, column: str, model: str, memory_bytes: int) -> tuple[dict[str, Any], ...]:
    count = row.whole(column)
    if count > GPUS_MAX:
        raise row.wrong(column, f"{count} GPUs on one machine; at most {GPUS_MAX} are seen")
    gpu = {"vendor": "nvidia", "model": model, "memory_bytes": memory_bytes, "health": "ok"}
    return tuple({"index": n, **gpu} for n in range(count))


def _machine(name: str, capacity: Mapping[str, Any], labels: Mapping[str, str]) -> Machine:
    return Machine(uid=name, name=name, state=MachineState.READY, capacity=capacity, labels=labels)

"""Holdings: whole GPUs and shares of CPU and memory of a machine, held by a worker's epoch.

Checked against what the group's transaction loaded under lock and what its earlier changes took, so that two decisions
can never both win the same GPU, the last free memory or the last of a quota. Called by `batch.py`; pure.
"""

from moorage.domain.changes import Hold, Release
from moorage.domain.errors import StaleVersion
from moorage.store import quotas
from moorage.store.group import Group, HoldingKey, Taken

Drafted = dict[HoldingKey, Hold | None]
"""What a change in the making takes (a hold) and gives up (None)."""

_NOTHING = Taken()


def hold(group: Group, drafted: Drafted, write: Hold) -> None:
    """Take what `write` asks for.

    Raises:
        StaleVersion: a GPU of it is held, or the machine's limit or the namespace's quota would be exceeded.
    """
    key = (write.worker, write.epoch)
    if drafted.get(key) is not None or (key not in drafted and key in group.held):
        raise StaleVersion(f"worker {write.worker} holds a place for epoch {write.epoch} already")
    gpus, cpu, memory = _taken_on(group, drafted, write.machine)
    if not gpus.isdisjoint(write.gpus):
        raise StaleVersion(
            f"GPU {', '.join(map(str, sorted(gpus & set(write.gpus))))} of machine {write.machine} is held already",
            remedy="load again and decide anew",
        )
    _within("cpu_milli", write.limit_cpu_milli, cpu, write.cpu_milli, write.machine)
    _within("memory_bytes", write.limit_memory_bytes, memory, write.memory_bytes, write.machine)
    if write.within_quota and write.namespace:
        quotas.check_hold(group, drafted, write)
    drafted[key] = write


def _taken_on(group: Group, drafted: Drafted, machine: str) -> tuple[set[int], int, int]:
    """GPUs, CPU and memory of a machine that are held, as the change in the making sees it."""
    here = group.held_on.get(machine, _NOTHING)
    if not drafted:
        return here.gpus, here.cpu_milli, here.memory_bytes
    seen = Taken(set(here.gpus), here.cpu_milli, here.memory_bytes)
    for key in drafted:
        before = group.held.get(key)
        if before is not None and before.machine == machine:
            seen.give(before)
    for taken in drafted.values():
        if taken is not None and taken.machine == machine:
            seen.take(taken)
    return seen.gpus, seen.cpu_milli, seen.memory_bytes


def _within(what: str, limit: int | None, used: int, wanted: int, machine: str) -> None:
    if limit is not None and used + wanted > limit:
        raise StaleVersion(
            f"machine {machine} has {max(0, limit - used)} {what} free and {wanted} were asked for",
            remedy="load again and decide anew",
        )


def release(group: Group, drafted: Drafted, write: Release) -> None:
    """Give up everything a worker holds, or holds for one epoch."""
    for key in (*group.held_by.get(write.worker, ()), *drafted):
        if key[0] == write.worker and write.epoch in (None, key[1]):
            drafted[key] = None

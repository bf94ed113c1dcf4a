"""Holdings: whole GPUs and shares of CPU and memory of a machine, held by a worker's epoch.

Checked against what the group's transaction loaded under lock and what its earlier changes took, so that two decisions
can never both win the same GPU, the last free memory or the last of a quota. Called by `batch.py`; pure.
"""

from moorage.domain.changes import Hold, Release
from moorage.domain.errors import StaleVersion
from moorage.store import quotas
from moorage.store.group import Group, HoldingKey

Drafted = dict[HoldingKey, Hold | None]
"""What a change in the making takes (a hold) and gives up (None)."""


def hold(group: Group, drafted: Drafted, write: Hold) -> None:
    """Take what `write` asks for.

    Raises:
        StaleVersion: a GPU of it is held, or the machine's limit or the namespace's quota would be exceeded.
    """
    key = (write.worker, write.epoch)
    if drafted.get(key) is not None or (key not in drafted and key in group.held):
        raise StaleVersion(f"worker {write.worker} holds a place for epoch {write.epoch} already")
    here = [group.held[k] for k in group.held_on.get(write.machine, ()) if k not in drafted]
    here += [h for h in drafted.values() if h is not None and h.machine == write.machine]
    taken = {gpu for h in here for gpu in h.gpus} & set(write.gpus)
    if taken:
        raise StaleVersion(
            f"GPU {', '.join(map(str, sorted(taken)))} of machine {write.machine} is held already",
            remedy="load again and decide anew",
        )
    cpu, memory = sum(h.cpu_milli for h in here), sum(h.memory_bytes for h in here)
    _within("cpu_milli", write.limit_cpu_milli, cpu, write.cpu_milli, write.machine)
    _within("memory_bytes", write.limit_memory_bytes, memory, write.memory_bytes, write.machine)
    if write.within_quota and write.namespace:
        quotas.check_hold(group, drafted, write)
    drafted[key] = write


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

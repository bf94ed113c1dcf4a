"""GPUs of a machine as the API shows them. Pure: lines of the ledger in, JSON values out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from moorage.control.views import JsonObject, iso, plain
from moorage.decide.scheduling.accounts import Line
from moorage.domain.catalogue import ANOTHER_NAMESPACE
from moorage.domain.nouns import Deployment, Machine, Worker
from moorage.domain.states import MachineState

Sees = Callable[[str], bool]
"""Whether who asks has rights in a namespace."""


def everything(namespace: str) -> bool:
    """An administrator's rights."""
    del namespace
    return True


@dataclass(frozen=True, slots=True)
class Named:
    """Who holds GPUs or has them reserved.

    Args:
        owners: rows of workers and deployments, by uid.
        sees: what who asks may know of.
    """

    owners: Mapping[str, Worker | Deployment] = field(default_factory=dict)
    sees: Sees = everything


def gpu_object(line: Line, state: MachineState, names: Named) -> JsonObject:
    """One GPU. Of work that who asks may not know of, only that there is some."""
    gpu, owner = line.gpu, line.kept.owner if line.kept is not None else line.worker
    hidden = owner is not None and not _seen(owner, names)
    named = names.owners.get(owner or "")
    return {
        "index": line.index,
        "uuid": gpu.get("uuid") or None,
        "vendor": gpu.get("vendor"),
        "model": gpu.get("model"),
        "name": gpu.get("name") or None,
        "memory": gpu.get("memory_bytes"),
        "health": "unknown" if state is MachineState.DOWN else gpu.get("health", "ok"),
        "fault": gpu.get("fault"),
        "foreign_bytes": int(gpu.get("foreign_bytes") or 0),
        "foreign_pids": list(gpu.get("foreign_pids") or ()),
        "holder": str(line.holder),
        "worker": None if hidden else line.worker,
        "work": ANOTHER_NAMESPACE if hidden else named.name if named is not None else owner,
        "namespace": None if hidden or named is None else named.namespace,
        "reserved_for": None if hidden or line.kept is None else line.kept.owner,
        "reserved_why": line.kept.why if line.kept is not None else None,
        "process": None if hidden or line.row is None else plain(line.row.process),
        "since": iso(line.since),
        "until": iso(line.until),
    }


def _seen(owner: str, names: Named) -> bool:
    """What has no row any more is nobody's to know but an administrator's: it was in some namespace."""
    named = names.owners.get(owner)
    return names.sees(named.namespace if named is not None else "")


def gpu_objects(row: Machine, found: tuple[Line, ...], names: Named) -> list[JsonObject]:
    """Every GPU of a machine, by index."""
    return [gpu_object(line, row.state, names) for line in found]

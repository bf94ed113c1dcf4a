"""What the scheduler sees: waiting workers, machines with what is held on them, and `now`. Plain values.

`Ask` is what makes two waiting workers alike: they share one look at the fleet, which is what keeps a cycle over
10,000 of them cheap.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.decide.scheduling.means import NONE, Means, port_owner
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.quotas import Amounts


@dataclass(frozen=True, slots=True)
class Request:
    """What one worker asks of a machine.

    Args:
        cpu_milli: thousandths of a core; 0 asks for none in particular.
        memory_bytes: bytes; 0 likewise.
        gpus: whole GPUs.
        vendor, models, gpu_memory_bytes: what each of them must be.
        healthy_only: refuse GPUs that report a risk.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    vendor: str | None = None
    models: tuple[str, ...] = ()
    gpu_memory_bytes: int = 0
    healthy_only: bool = False

    @staticmethod
    def of(worker: Worker) -> "Request":
        """The request kept on the worker's row."""
        asked: Mapping[str, Any] = worker.request
        gpus: Mapping[str, Any] = asked.get("gpus") or {}
        return Request(
            cpu_milli=int(asked.get("cpu_milli") or 0),
            memory_bytes=int(asked.get("memory_bytes") or 0),
            gpus=int(gpus.get("count") or 0),
            vendor=gpus.get("vendor"),
            models=tuple(gpus.get("models") or ()),
            gpu_memory_bytes=int(gpus.get("memory_bytes") or 0),
            healthy_only=bool(gpus.get("healthy_only")),
        )


def owner_of(worker: Worker) -> str:
    """What `spread: machine` spreads: the replicas of a deployment, else the workers of a run."""
    return worker.deployment or worker.run


def owners_of(worker: Worker, run: Run) -> tuple[str, ...]:
    """Everything under which a worker counts on its machine: its owner, and the ports that it alone listens on."""
    means = Means.of(run.spec, group_of(run, worker.group))
    return (owner_of(worker), *(port_owner(port) for port in means.ports))


@dataclass(frozen=True, slots=True)
class Topology:
    """How the machines of one run must lie to each other.

    Args:
        keep: `machine` or `rack`: all of them in one.
        max_machines: at most so many.
        one_per_rack: no two workers in one rack.
        fabric: wanted between them, at least `min_gbps`; other machines are taken `patience_s` seconds after the run
            was queued, never when `required`.
    """

    keep: str | None = None
    max_machines: int | None = None
    one_per_rack: bool = False
    fabric: str | None = None
    min_gbps: float = 0.0
    patience_s: float = 600.0
    required: bool = False

    @staticmethod
    def of(asked: Mapping[str, Any]) -> "Topology | None":
        """`placement.topology` of a spec; None when it asks for nothing."""
        found = Topology(
            keep=asked.get("keep"),
            max_machines=asked.get("max_machines"),
            one_per_rack=asked.get("spread") == "rack",
            fabric=asked.get("fabric"),
            min_gbps=float(asked.get("min_gbps") or 0),
            patience_s=float(asked.get("patience", 600.0)),
            required=bool(asked.get("required")),
        )
        plain = not (found.keep or found.max_machines or found.one_per_rack or found.fabric)
        return None if plain else found


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the workers of a group may go (`placement:` of the spec, and the engine that the group needs)."""

    machines: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    spread: str | None = None
    runner: str = "process"
    topology: Topology | None = None

    @staticmethod
    def of(run: Run, group: str | None = None) -> "Placement":
        """The placement of the run's spec with the engine of `group` (None, or unknown: of the first group)."""
        asked: Mapping[str, Any] = run.spec.get("placement") or {}
        found = group_of(run, group)
        return Placement(
            machines=tuple(asked.get("machines") or ()),
            labels=dict(asked.get("labels") or {}),
            spread=asked.get("spread"),
            runner=str((found.get("runtime") or {}).get("runner") or "process"),
            topology=Topology.of(asked.get("topology") or {}),
        )


def group_of(run: Run, name: str | None) -> Mapping[str, Any]:
    """The group of that name in a run's spec, else the first one."""
    groups: Sequence[Mapping[str, Any]] = run.spec.get("groups") or ({},)
    return next((g for g in groups if g.get("name") == name), groups[0])


Labels = tuple[tuple[str, str], ...]
"""Labels in order of their keys."""


def labels_of(asked: Mapping[str, Any]) -> Labels:
    """Labels of a spec."""
    return tuple(sorted((key, str(value)) for key, value in asked.items()))


@dataclass(frozen=True, slots=True)
class Ask:
    """Everything about one worker that decides which machines fit it, apart from who is there already."""

    request: Request
    machines: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    runner: str = "process"
    means: Means = NONE
    pool: Labels = ()
    """what its namespace may use"""

    @staticmethod
    def of(request: Request, placement: Placement, means: Means = NONE, pool: Labels = ()) -> "Ask":
        """The ask of a worker with this request in a run with this placement."""
        labels = labels_of(placement.labels)
        return Ask(request, tuple(sorted(placement.machines)), labels, placement.runner, means, pool)


@dataclass(frozen=True, slots=True)
class Room:
    """One machine and what is taken on it, this cycle's own placements included."""

    machine: Machine
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: frozenset[int] = frozenset()
    owners: frozenset[str] = frozenset()
    """deployments, and runs of their own, that have a worker here (for `spread: machine`), and their ports"""

    @property
    def free_cpu_milli(self) -> int:
        """CPU neither reserved for the system nor held."""
        return self.limit_cpu_milli - self.cpu_milli

    @property
    def free_memory_bytes(self) -> int:
        """Memory neither reserved for the system nor held."""
        return self.limit_memory_bytes - self.memory_bytes

    @property
    def limit_cpu_milli(self) -> int:
        """CPU that work may hold in all."""
        return int(self.machine.capacity.get("cpu_milli", 0)) - int(self.machine.reserve.get("cpu_milli", 0))

    @property
    def limit_memory_bytes(self) -> int:
        """Memory that work may hold in all."""
        return int(self.machine.capacity.get("memory_bytes", 0)) - int(self.machine.reserve.get("memory_bytes", 0))


@dataclass(frozen=True, slots=True)
class SchedulingSnapshot:
    """Input of one cycle.

    Args:
        now: seconds since the epoch.
        pending: workers in state Pending that have no machine.
        runs: runs by uid, of all these workers.
        rooms: machines with all that is held there.
        standing: workers that hold room of these machines.
        held: by uid of a machine, its holdings as the store gives them; needed where there are quotas.
        limits: by namespace, its quota.
        pools: by namespace, the labels of the machines that it may use.
    """

    now: float
    pending: tuple[Worker, ...]
    runs: Mapping[str, Run]
    rooms: tuple[Room, ...]
    standing: tuple[Worker, ...] = ()
    held: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    limits: Mapping[str, Amounts] = field(default_factory=dict)
    pools: Mapping[str, Labels] = field(default_factory=dict)

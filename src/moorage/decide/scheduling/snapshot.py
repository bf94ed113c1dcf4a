"""What the scheduler sees: waiting workers, machines with what is held on them, and `now`. Plain values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.domain.nouns import Machine, Run, Worker


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


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a run's workers may go (`placement:` of the spec)."""

    machines: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    spread: str | None = None
    runner: str = "process"

    @staticmethod
    def of(run: Run) -> "Placement":
        """The placement of the run's spec and the engine its first group needs."""
        asked: Mapping[str, Any] = run.spec.get("placement") or {}
        groups: Sequence[Mapping[str, Any]] = run.spec.get("groups") or ({},)
        return Placement(
            machines=tuple(asked.get("machines") or ()),
            labels=dict(asked.get("labels") or {}),
            spread=asked.get("spread"),
            runner=str((groups[0].get("runtime") or {}).get("runner") or "process"),
        )


@dataclass(frozen=True, slots=True)
class Room:
    """One machine and what is taken on it, this cycle's own placements included."""

    machine: Machine
    cpu_milli: int = 0
    memory_bytes: int = 0
    gpus: frozenset[int] = frozenset()
    owners: frozenset[str] = frozenset()
    """deployments, and runs of their own, that have a worker here (for `spread: machine`)"""

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
    """Input of one cycle."""

    now: float
    pending: tuple[Worker, ...]
    """workers in state Pending that have no machine"""
    runs: Mapping[str, Run]
    rooms: tuple[Room, ...]

"""The port: one look at every GPU of this machine. Implementations pass `tests/contract/devices`."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from moorage.domain.errors import Unavailable


class Health(StrEnum):
    """How a GPU is: usable; usable and likely to fail; of no use."""

    OK = "ok"
    AT_RISK = "at_risk"
    FAULTY = "faulty"


SEVERITY = (Health.OK, Health.AT_RISK, Health.FAULTY)


class DevicesUnavailable(Unavailable):
    """The driver is there and does not answer as it should."""

    code = "gpu_driver"


class NoDriver(DevicesUnavailable):
    """There is no such driver, or no library for it, on this machine."""

    code = "no_gpu_driver"
    retryable = False


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU.

    Args:
        index: as the vendor's own tools and libraries count (`CUDA_VISIBLE_DEVICES` in PCI order).
        uuid: names it for ever; empty where nothing does.
        vendor: `nvidia`, `amd`, …
        model: short, as a spec asks for it (`H100`).
        name: of the product, in full.
        memory_bytes: in all.
    """

    index: int
    uuid: str
    vendor: str
    model: str
    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Use:
    """Memory that a process has on a GPU.

    Args:
        number: of the process, as /proc of this machine shows it.
        bytes: None where the driver does not say.
    """

    number: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU, now.

    Args:
        device: which.
        health: how it is.
        fault: why it is not ok, in words; None where it is.
        used_bytes: memory taken by anybody, the driver's own share left out; None where that is not known.
        uses: by process; None where that is not known.
    """

    device: Device
    health: Health = Health.OK
    fault: str | None = None
    used_bytes: int | None = None
    uses: tuple[Use, ...] | None = None


class Devices(Protocol):
    """The GPUs of a machine, through one driver."""

    def read(self) -> tuple[Reading, ...]:
        """Look at all of them; by index, each index once. Blocks for as long as the driver does.

        A GPU that fails is in the answer as faulty: it is not left out, and the others are told of all the same.

        Raises:
            NoDriver: there is none; asking again later may find one.
            DevicesUnavailable: it answers nothing about any of them.
        """
        ...

    def close(self) -> None:
        """Let go of the driver; a later `read` opens it again."""
        ...


def worst(findings: list[tuple[Health, str]]) -> tuple[Health, str | None]:
    """The health that several findings make, and all that is wrong, the worst first."""
    ordered = sorted(findings, key=lambda found: -SEVERITY.index(found[0]))
    if not ordered:
        return Health.OK, None
    return ordered[0][0], "; ".join(dict.fromkeys(text for _, text in ordered))

"""Each implementation of the port, and NVIDIA's own driver where this machine has one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from amd_tree import plant
from scripted_nvml import ScriptedNvml

from moorage.devices.amd import AmdDevices
from moorage.devices.declared import DeclaredDevices
from moorage.devices.finding import FoundDevices
from moorage.devices.nvidia import NvidiaDevices
from moorage.devices.port import Device, Devices, NoDriver, Reading
from moorage.devices.recording import RecordingDevices

HOPPER = "NVIDIA H100 80GB HBM3"


def some(count: int) -> list[Device]:
    return [Device(n, f"u{n}", "nvidia", "H100", HOPPER, 80 << 30) for n in range(count)]


@pytest.fixture(params=["recording", "declared", "nvidia scripted", "amd files", "found", "nvidia driver"])
def devices(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Devices]:
    """A machine with at least one GPU."""
    made: dict[str, Devices] = {
        "recording": RecordingDevices(Reading(device) for device in some(2)),
        "declared": DeclaredDevices(some(2)),
        "nvidia scripted": NvidiaDevices(lambda: ScriptedNvml(HOPPER, HOPPER)),
        "amd files": AmdDevices(plant(tmp_path, 2)),
        "found": FoundDevices([NvidiaDevices(lambda: ScriptedNvml(absent=True)), DeclaredDevices(some(2))], print),
        "nvidia driver": NvidiaDevices(),
    }
    it = made[request.param]
    if request.param == "nvidia driver":
        try:
            if not it.read():
                pytest.skip("NVIDIA's driver shows no GPU here")
        except NoDriver as cause:
            pytest.skip(f"there is no NVIDIA driver here: {cause.message}")
    yield it
    it.close()

"""AMD's files, and finding out which driver there is."""

from pathlib import Path

import pytest
from amd_tree import USED, plant, use, write

from moorage.devices.amd import AmdDevices
from moorage.devices.finding import FoundDevices
from moorage.devices.port import Device, Health, NoDriver, Reading, Use
from moorage.devices.recording import RecordingDevices


def test_amds_files_tell_model_memory_and_who_uses_it(tmp_path: Path) -> None:
    devices = AmdDevices(plant(tmp_path, 2))
    use(tmp_path, 1, 4711, 5 << 30)
    first, second = devices.read()
    assert (second.device.model, second.device.vendor, second.device.memory_bytes) == ("MI300X", "amd", 192 << 30)
    assert (first.uses, second.uses) == ((), (Use(4711, 5 << 30),))
    assert first.used_bytes == USED


def test_uncorrected_errors_put_an_amd_gpu_at_risk_and_corrected_ones_do_not(tmp_path: Path) -> None:
    devices = AmdDevices(plant(tmp_path, 2))
    write(tmp_path / "devices/pci0000:00/0000:c2:00.0/ras/umc_err_count", "ue: 2\nce: 4")
    assert [r.health for r in devices.read()] == [Health.OK, Health.AT_RISK]


def test_a_machine_without_amds_driver_has_none(tmp_path: Path) -> None:
    with pytest.raises(NoDriver):
        AmdDevices(tmp_path).read()


def test_a_driver_that_comes_later_is_found_and_its_absence_said_once() -> None:
    said: list[str] = []
    driver = RecordingDevices([Reading(Device(0, "u", "nvidia", "T4", "Tesla T4", 16 << 30))])
    driver.fail(NoDriver("not loaded"))
    devices = FoundDevices([driver], said.append)
    assert (devices.read(), devices.read()) == ((), ())
    assert said == ["not loaded"]
    driver.fail(None)
    assert len(devices.read()) == 1

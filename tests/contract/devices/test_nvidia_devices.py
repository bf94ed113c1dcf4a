"""What NVIDIA's library says, and what is made of it. The driver is scripted."""

import pynvml
import pytest
from scripted_nvml import ScriptedNvml

from moorage.devices.nvidia import NvidiaDevices
from moorage.devices.port import DevicesUnavailable, Health, NoDriver, Use

HOPPER = "NVIDIA H100 80GB HBM3"


def opened(*names: str) -> tuple[ScriptedNvml, NvidiaDevices]:
    nvml = ScriptedNvml(*names)
    return nvml, NvidiaDevices(lambda: nvml)


def test_a_gpu_has_the_short_name_that_specs_ask_for_and_its_own_in_full() -> None:
    _, devices = opened(HOPPER)
    device = devices.read()[0].device
    assert (device.model, device.name, device.uuid) == ("H100", HOPPER, "GPU-0")


def test_without_the_library_or_the_driver_there_is_no_driver() -> None:
    with pytest.raises(NoDriver):
        NvidiaDevices(lambda: ScriptedNvml(absent=True)).read()


@pytest.mark.parametrize(
    ("fields", "health", "word"),
    [
        ({"rows": (0, 0, 1, 0)}, Health.AT_RISK, "next reset"),
        ({"rows": (0, 0, 1, 1)}, Health.FAULTY, "could not be remapped"),
        ({"ecc": 3}, Health.AT_RISK, "3 uncorrected"),
        ({"mig": 1}, Health.FAULTY, "MIG"),
        ({"fails": pynvml.NVML_ERROR_GPU_IS_LOST}, Health.FAULTY, "lost"),
        ({"fails": pynvml.NVML_ERROR_RESET_REQUIRED}, Health.FAULTY, "restart"),
    ],
)
def test_what_the_driver_counts_makes_a_gpu_at_risk_or_faulty(fields, health, word) -> None:
    nvml, devices = opened(HOPPER, HOPPER)
    devices.read()
    for name, value in fields.items():
        setattr(nvml.gpus[0], name, value)
    first, second = devices.read()
    assert first.health is health
    assert word in (first.fault or "").lower() or word in (first.fault or "")
    assert (first.device.index, first.device.model) == (0, "H100")
    assert second.health is Health.OK


def test_a_fatal_xid_is_remembered_though_it_is_told_once() -> None:
    nvml, devices = opened(HOPPER, HOPPER)
    nvml.events = [(1, 79), (0, 13)]
    assert [r.health for r in devices.read()] == [Health.OK, Health.FAULTY]
    assert "Xid 79" in (devices.read()[1].fault or "")


def test_an_error_of_a_program_says_nothing_about_its_gpu() -> None:
    nvml, devices = opened(HOPPER)
    nvml.events = [(0, 13), (0, 31), (0, 43)]
    assert devices.read()[0].health is Health.OK


def test_who_uses_a_gpu_is_told_by_process() -> None:
    nvml, devices = opened(HOPPER)
    nvml.gpus[0].uses, nvml.gpus[0].used = [(4711, 2 << 30), (4712, None)], 2 << 30
    reading = devices.read()[0]
    assert reading.uses == (Use(4711, 2 << 30), Use(4712, None))
    assert reading.used_bytes == 2 << 30


def test_what_a_board_cannot_tell_is_not_known_and_no_fault() -> None:
    nvml, devices = opened(HOPPER)
    nvml.unsupported = {"rows", "pages", "ecc", "mig", "processes", "memory_v2", "events"}
    reading = devices.read()[0]
    assert (reading.health, reading.uses, reading.used_bytes) == (Health.OK, None, None)


def test_a_driver_that_breaks_is_said_to_and_opened_again_later() -> None:
    nvml, devices = opened(HOPPER)
    devices.read()
    nvml.broken = pynvml.NVML_ERROR_UNKNOWN
    with pytest.raises(DevicesUnavailable, match="does not answer"):
        devices.read()
    nvml.broken = None
    assert devices.read()[0].health is Health.OK
    assert nvml.inits == 2

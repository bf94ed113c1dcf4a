"""What every implementation of the port keeps to, the real driver included where there is one."""

from moorage.devices.port import Devices, Health


def test_each_gpu_is_told_once_in_order_and_named(devices: Devices) -> None:
    seen = [reading.device for reading in devices.read()]
    assert [d.index for d in seen] == list(range(len(seen)))
    assert len({d.uuid for d in seen}) == len(seen)
    assert all(d.vendor and d.model and d.name and d.memory_bytes > 1 << 30 for d in seen)


def test_a_gpu_stays_itself_from_look_to_look(devices: Devices) -> None:
    first, second = devices.read(), devices.read()
    assert [r.device for r in first] == [r.device for r in second]


def test_a_fault_is_told_in_words_exactly_where_a_gpu_is_not_well(devices: Devices) -> None:
    for reading in devices.read():
        assert isinstance(reading.health, Health)
        assert (reading.fault is None) == (reading.health is Health.OK)


def test_memory_in_use_is_part_of_what_there_is(devices: Devices) -> None:
    for reading in devices.read():
        assert reading.used_bytes is None or 0 <= reading.used_bytes <= reading.device.memory_bytes
        for use in reading.uses or ():
            assert use.number > 0
            assert use.bytes is None or use.bytes <= reading.device.memory_bytes


def test_after_it_was_closed_it_can_be_asked_again(devices: Devices) -> None:
    before = [reading.device for reading in devices.read()]
    devices.close()
    devices.close()
    assert [reading.device for reading in devices.read()] == before

"""GPUs that somebody declared (`MOORAGE_AGENT_GPUS`), for machines without a driver."""

from collections.abc import Iterable

from moorage.devices.port import Device, Reading


class DeclaredDevices:
    """What was declared, always well.

    Args:
        devices: what there is said to be.
    """

    def __init__(self, devices: Iterable[Device]) -> None:
        self._readings = tuple(Reading(device) for device in devices)

    def read(self) -> tuple[Reading, ...]:
        """All of them."""
        return self._readings

    def close(self) -> None:
        """Nothing is open."""

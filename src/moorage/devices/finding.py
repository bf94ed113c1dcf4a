"""Which driver this machine has: the first of those known that shows a GPU, looked for until one does."""

from collections.abc import Callable, Sequence

from moorage.devices.amd import AmdDevices
from moorage.devices.nvidia import NvidiaDevices
from moorage.devices.port import Devices, NoDriver, Reading


class FoundDevices:
    """The GPUs of whichever driver there is; none where there is none.

    A driver that is loaded later is found at the next look; one that was found is the only one asked from then on.

    Args:
        drivers: in the order in which they are tried.
        tell: called once, with why there is none.
    """

    def __init__(self, drivers: Sequence[Devices], tell: Callable[[str], None]) -> None:
        self._drivers = drivers
        self._tell: Callable[[str], None] | None = tell
        self._found: Devices | None = None

    def read(self) -> tuple[Reading, ...]:
        """GPUs of the driver that was found."""
        if self._found is not None:
            return self._found.read()
        reasons: list[str] = []
        for driver in self._drivers:
            try:
                seen = driver.read()
            except NoDriver as cause:
                reasons.append(cause.message)
                continue
            if seen:
                self._found = driver
                return seen
            driver.close()
        self._say("; ".join(reasons) or "no driver shows a GPU")
        return ()

    def close(self) -> None:
        """Let go of all of them."""
        for driver in self._drivers:
            driver.close()

    def _say(self, why: str) -> None:
        tell, self._tell = self._tell, None
        if tell is not None:
            tell(why)


def this_machines(tell: Callable[[str], None]) -> FoundDevices:
    """NVIDIA's GPUs, or else AMD's.

    Args:
        tell: called once, from another thread, with why there is none.
    """
    return FoundDevices((NvidiaDevices(), AmdDevices()), tell)

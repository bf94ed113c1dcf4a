"""A fake driver that shows what it is told to show, fails and hangs when told to, and counts who asked.

For tests of whatever looks at GPUs; passes the same contract suite as the real ones.
"""

import threading
from collections.abc import Iterable
from dataclasses import replace

from moorage.devices.port import Reading


class RecordingDevices:
    """GPUs in memory; may be changed from any thread.

    Args:
        readings: what it shows at first.
    """

    def __init__(self, readings: Iterable[Reading] = ()) -> None:
        self._readings = {r.device.index: r for r in readings}
        self._failure: Exception | None = None
        self._free = threading.Event()
        self._free.set()
        self.reads = 0
        self.closes = 0

    def read(self) -> tuple[Reading, ...]:
        """What it was told to show."""
        self.reads += 1
        self._free.wait()
        if self._failure is not None:
            raise self._failure
        return tuple(self._readings[index] for index in sorted(self._readings))

    def close(self) -> None:
        """Counted."""
        self.closes += 1

    def show(self, reading: Reading) -> None:
        """From now on this GPU is so."""
        self._readings = {**self._readings, reading.device.index: reading}

    def change(self, index: int, **fields: object) -> None:
        """From now on these fields of a GPU's reading are so."""
        self.show(replace(self._readings[index], **fields))  # type: ignore[arg-type]  # a test's own fields

    def lose(self, index: int) -> None:
        """From now on this GPU is not shown."""
        self._readings = {i: r for i, r in self._readings.items() if i != index}

    def fail(self, failure: Exception | None) -> None:
        """From now on every look fails so; None: it answers again."""
        self._failure = failure

    def hang(self) -> None:
        """From now on no look returns."""
        self._free.clear()

    def go_on(self) -> None:
        """Looks return again, those that hang included."""
        self._free.set()

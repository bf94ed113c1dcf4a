"""The system's clock, built once by the composition root. Tests inject their own."""

import asyncio
import time


class SystemClock:
    """Wall time, a monotonic clock and sleep, as the `Clock` port asks."""

    def now(self) -> float:
        """Seconds since the epoch (UTC)."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never step."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait that long."""
        await asyncio.sleep(seconds)

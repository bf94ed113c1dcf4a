"""A clock of a test's own: sleeps end only when the test moves the time on."""

import asyncio


class SteppedClock:
    def __init__(self, now: float = 1_000_000.0, monotonic: float = 50.0) -> None:
        self._now, self._monotonic = now, monotonic
        self._sleeping: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeping.append((self._monotonic + seconds, woken))
        await woken

    async def forward(self, seconds: float, *, step_of_wall_s: float = 0.0) -> None:
        """Move both clocks on, the wall clock by a step besides, and let whoever is due act."""
        await settle()
        self._monotonic += seconds
        self._now += seconds + step_of_wall_s
        due = [f for at, f in self._sleeping if at <= self._monotonic]
        self._sleeping = [(at, f) for at, f in self._sleeping if at > self._monotonic]
        for woken in due:
            if not woken.done():
                woken.set_result(None)
        await settle()


async def settle() -> None:
    """Let everything that can run now run."""
    for _ in range(20):
        await asyncio.sleep(0)

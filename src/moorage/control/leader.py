"""Leadership: one control plane decides at a time, under a lease whose generation fences every commit of its loops.

A control plane that is restarted under the same `owner` (its home's identity, guarded by a file lock) takes its own
lease over at once with a higher generation; another one waits until the lease is over.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from moorage.domain.changes import Fence
from moorage.domain.errors import Fenced
from moorage.ports import Clock, Lease, Store

LEASE = "control"
TTL_S = 30.0
RENEW_S = 10.0
RETRY_S = 1.0

log = structlog.get_logger("moorage.control")


class Leadership:
    """Holds the control lease while `lead` runs.

    Args:
        store: where the lease is.
        clock: times.
        owner: identity of this control plane, the same after its restart.
    """

    def __init__(self, store: Store, clock: Clock, owner: str) -> None:
        self._store = store
        self._clock = clock
        self._owner = owner
        self.fence: Fence | None = None
        self.lease: Lease | None = None
        """as last renewed"""
        self.since: float = 0.0
        self._good_until = float("-inf")

    @property
    def certain(self) -> bool:
        """Whether nobody else can lead now: the lease is held, and by this process's own clock it is not over."""
        return self.fence is not None and self._clock.monotonic() < self._good_until

    async def lead(self, while_leading: Callable[[Fence], Awaitable[None]]) -> None:
        """Take the lease, run `while_leading` under it, and start over when it is lost. Runs until cancelled."""
        while True:
            lease = await self._take()
            if lease is None:
                continue
            self.fence, self.lease = Fence(LEASE, lease.generation), lease
            self.since = self._clock.now()
            log.info("leading", generation=lease.generation)
            try:
                await self._hold(lease, while_leading)
            except Fenced:
                log.warning("leadership passed on", generation=lease.generation)
            finally:
                self.fence = self.lease = None

    async def _take(self) -> Lease | None:
        """The lease, under a generation that no earlier process of ours ever wrote under; None: try again."""
        self._good_until = self._clock.monotonic() + TTL_S
        lease = await self._store.acquire(LEASE, self._owner, TTL_S)
        if lease is None:
            log.info("waiting for the control lease of another control plane")
            await self._clock.sleep(RENEW_S / 5)
            return None
        await self._store.release(lease)
        return await self._store.acquire(LEASE, self._owner, TTL_S)

    async def _hold(self, lease: Lease, while_leading: Callable[[Fence], Awaitable[None]]) -> None:
        work = asyncio.ensure_future(while_leading(Fence(LEASE, lease.generation)))
        renew = asyncio.create_task(self._renew(lease))
        try:
            done, _ = await asyncio.wait((work, renew), return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (work, renew):
                task.cancel()
            await asyncio.gather(work, renew, return_exceptions=True)

    async def _renew(self, lease: Lease) -> None:
        """Renew until it is lost. A store that cannot be reached is asked again for as long as the lease holds."""
        wait_s = RENEW_S
        while True:
            await self._clock.sleep(wait_s)
            asked_at = self._clock.monotonic()
            try:
                renewed = await self._store.acquire(LEASE, self._owner, TTL_S)
            except Exception:
                if asked_at >= self._good_until:
                    raise
                log.exception("cannot renew the control lease", left_s=round(self._good_until - asked_at, 1))
                wait_s = RETRY_S
                continue
            if renewed is None or renewed.generation != lease.generation:
                raise Fenced("the control lease passed to another control plane")
            self.lease = renewed
            self._good_until, wait_s = asked_at + TTL_S, RENEW_S

    async def step_down(self) -> None:
        """Give the lease up at a clean stop, so that a successor need not wait."""
        lease = await self._store.acquire(LEASE, self._owner, TTL_S) if self.fence else None
        if lease is not None:
            self._good_until = float("-inf")
            await self._store.release(lease)

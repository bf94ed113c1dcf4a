"""Notices what other processes commit to the same database, and wakes the followers of this one.

PostgreSQL tells (LISTEN); SQLite has to be asked, so it is asked rarely: it is the engine of one control plane, whose
own commits wake at once, and others (a migration, a second command) can wait a second. Started by the first follower.
"""

import asyncio
from collections.abc import Awaitable, Callable

import sqlalchemy as sa
from sqlalchemy.engine import URL

from moorage.ports import Clock
from moorage.store import engines
from moorage.store.feed import Wakes
from moorage.store.flush import NOTIFY_CHANNEL

LOOK_INTERVAL_S = 1.0
"""Between two looks at an SQLite file: one read of a shared-memory page each."""

RECONNECT_DELAY_S = 1.0


class Watch:
    """Wakes followers after commits of others.

    Args:
        url: the database.
        readers: engine for the SQLite connection that looks.
        clock: what the slow timer runs on.
    """

    def __init__(self, url: URL, readers: sa.Engine, clock: Clock) -> None:
        self._url = url
        self._readers = readers
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self, wakes: Wakes) -> None:
        """Begin, once."""
        if self._task is None:
            watch: Callable[[Wakes], Awaitable[None]] = (
                self._listen_for_ever if engines.is_postgres(self._url) else self._look_for_ever
            )
            self._task = asyncio.ensure_future(watch(wakes))

    async def stop(self) -> None:
        """End and wait for the end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _look_for_ever(self, wakes: Wakes) -> None:
        connection = self._readers.connect()
        looking: asyncio.Future[int] | None = None
        try:
            seen: int | None = None
            while True:
                looking = asyncio.get_running_loop().run_in_executor(None, _data_version, connection)
                version = await asyncio.shield(looking)
                if seen is not None and version != seen:
                    wakes.wake()
                seen = version
                await self._clock.sleep(LOOK_INTERVAL_S)
        finally:
            # A connection must never be closed under the thread that uses it.
            if looking is not None:
                await asyncio.wait({looking})
            connection.close()

    async def _listen_for_ever(self, wakes: Wakes) -> None:
        import psycopg  # an SQLite installation does without

        while True:
            try:
                await self._listen(wakes)
            except psycopg.OperationalError:
                # The connection is gone (a restart of the server): what came meanwhile is read after reconnecting.
                await self._clock.sleep(RECONNECT_DELAY_S)

    async def _listen(self, wakes: Wakes) -> None:
        import psycopg

        address = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            await connection.execute(f"LISTEN {NOTIFY_CHANNEL}")
            wakes.wake()
            async for _ in connection.notifies():
                wakes.wake()


def _data_version(connection: sa.Connection) -> int:
    return int(connection.exec_driver_sql("PRAGMA data_version").scalar_one())

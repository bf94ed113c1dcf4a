"""External ports: connections to a port of the machine's pool, passed on to the port of one worker.

Bytes go both ways as they come, with the pace of the slower side, and each side's end is passed on as such, so that
whoever has said everything may still read the answer. Which port of the pool a worker has is written in its folder:
after a restart of the agent it is the same one. Called by `providing`, and by `held` at the worker's end.
"""

import asyncio
import errno
import json
from pathlib import Path

import structlog

from moorage.domain.errors import PortUnavailable
from moorage.runners.ports import PortPool

CHUNK_BYTES = 1 << 16
RECORD = "relays"


class Relays:
    """All relays of one machine.

    Args:
        host: address of this machine: where they listen, and where workers do.
        pool: its ports.
        log: of the agent.
    """

    def __init__(self, host: str, pool: PortPool, log: structlog.stdlib.BoundLogger) -> None:
        self._host = host
        self._pool = pool
        self._log = log
        self._servers: dict[str, dict[int, asyncio.Server]] = {}
        self._passing: dict[str, set[asyncio.Task[None]]] = {}

    async def open(self, worker: str, folder: Path, port: int) -> int:
        """Relay to a worker's port; the port of the pool under which it is reached from outside.

        Raises:
            PortUnavailable: no port of the pool is free.
        """
        known = _load(folder)
        outside = known.get(port)
        if outside is None or not self._holds(worker, port, outside):
            outside = self._pool.lease(_holder(worker, port))
        if port not in self._servers.get(worker, {}):
            try:
                await self._listen(worker, port, outside)
            except PortUnavailable:
                self._pool.give_back(_holder(worker, port))  # the next try takes another one
                raise
        if known.get(port) != outside:
            await asyncio.to_thread(_save, folder, {**known, port: outside})
        return outside

    async def resume(self, worker: str, folder: Path) -> None:
        """Relay again what an earlier agent relayed for this worker, on the same ports."""
        for port, outside in _load(folder).items():
            self._pool.hold(outside, _holder(worker, port))
            try:
                await self._listen(worker, port, outside)
            except PortUnavailable as cause:
                self._log.error("an external port is not relayed any more", worker=worker, port=port, why=cause.message)

    def close(self, worker: str) -> None:
        """The worker is gone: nothing more is passed on, and its ports of the pool are free."""
        for server in self._servers.pop(worker, {}).values():
            server.close()
        for task in self._passing.pop(worker, set()):
            task.cancel()

    async def aclose(self) -> None:
        """End all of them; the workers go on."""
        tasks = [task for passing in self._passing.values() for task in passing]
        for worker in list(self._servers):
            self.close(worker)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _holds(self, worker: str, port: int, outside: int) -> bool:
        return self._pool.held.get(outside) == _holder(worker, port)

    async def _listen(self, worker: str, port: int, outside: int) -> None:
        def arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            passing = self._passing.setdefault(worker, set())
            task = asyncio.ensure_future(self._pass(reader, writer, port))
            passing.add(task)
            task.add_done_callback(passing.discard)

        try:
            try:
                server = await asyncio.start_server(arrived, self._host, outside, limit=CHUNK_BYTES)
            except OSError as cause:
                if cause.errno == errno.EADDRINUSE:
                    raise
                # The address under which others reach this machine may be that of a router before it.
                server = await asyncio.start_server(arrived, None, outside, limit=CHUNK_BYTES)
        except OSError as cause:
            raise PortUnavailable(f"port {outside} of the pool cannot be listened on: {cause}") from cause
        self._servers.setdefault(worker, {})[port] = server

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        try:
            inner_reader, inner_writer = await self._connect(port)
        except OSError:
            writer.transport.abort()  # as if nobody listened: the worker does not (yet)
            return
        sides = (writer, inner_writer)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(reader, inner_writer))
                both.create_task(_pump(inner_reader, writer))
        except* OSError:
            for side in sides:  # one side broke off, which the other is to see as such and not as an end
                side.transport.abort()
        finally:
            for side in sides:
                side.close()

    async def _connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To the worker, which listens on the machine's address or only on the loopback one."""
        try:
            return await asyncio.open_connection(self._host, port, limit=CHUNK_BYTES)
        except OSError:
            return await asyncio.open_connection("127.0.0.1", port, limit=CHUNK_BYTES)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass bytes on until the end, and then the end; never faster than they are taken."""
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _holder(worker: str, port: int) -> str:
    return f"{worker}/external/{port}"


def _load(folder: Path) -> dict[int, int]:
    """Port of the worker → port of the pool, as written down; none where nothing was, or not whole."""
    try:
        return {int(port): int(outside) for port, outside in json.loads((folder / RECORD).read_text()).items()}
    except (OSError, ValueError):
        return {}


def _save(folder: Path, ports: dict[int, int]) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = folder / f".{RECORD}"
    new.write_text(json.dumps(ports))
    new.replace(folder / RECORD)

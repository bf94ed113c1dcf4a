"""Passes bytes between each client and an upstream of its own, unread: the floor of a gateway in Python with uvloop.

    python byte_relay.py PORT UPSTREAM STREAMS STREAM_PATH

What a client's first bytes ask for decides between the two upstreams; after that nothing is looked at.
"""

import asyncio
import gc
import sys
from typing import cast

import uvloop


class Upstream(asyncio.Protocol):
    """The side that answers."""

    def __init__(self, client: "Client") -> None:
        self.client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.client.reached(self.transport)

    def data_received(self, data: bytes) -> None:
        self.client.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.client.transport.close()


class Client(asyncio.Protocol):
    """The side that asks."""

    def __init__(self, plain: int, streams: int, stream_path: bytes) -> None:
        self.ports = (plain, streams)
        self.stream_path = stream_path
        self.upstream: asyncio.Transport | None = None
        self.first = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.upstream is not None:
            self.upstream.write(data)
            return
        if not self.first:
            port = self.ports[self.stream_path in data]
            loop = asyncio.get_running_loop()
            self.dialling = loop.create_task(loop.create_connection(lambda: Upstream(self), "127.0.0.1", port))
        self.first += data

    def reached(self, upstream: asyncio.Transport) -> None:
        self.upstream = upstream
        upstream.write(self.first)
        if self.transport.is_closing():
            upstream.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.upstream is not None:
            self.upstream.close()


async def main(port: int, plain: int, streams: int, stream_path: bytes) -> None:
    server = await asyncio.get_running_loop().create_server(
        lambda: Client(plain, streams, stream_path), "127.0.0.1", port, backlog=1024
    )
    gc.freeze()
    await server.serve_forever()


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:4]]
    uvloop.run(main(*numbers, sys.argv[4].encode()))

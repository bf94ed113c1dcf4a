"""A worker process of a gateway: does the serving, at sockets that its master opened.

Here: the process, its order, and what it and its master say to each other. Not here: the serving itself (`serving`,
which is imported only once it is chosen in which form its hot path is used), when workers are started and replaced
(`master`). Started by `crew` as `python -m moorage.gateway.worker`.
"""

import argparse
import asyncio
import contextlib
import json
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog
import uvloop

from moorage.domain.errors import MoorageError
from moorage.gateway import accelerators, orders
from moorage.gateway.config import GatewayConfig
from moorage.gateway.orders import Lines, Order

if TYPE_CHECKING:
    from moorage.gateway.hub import Log
    from moorage.gateway.serving import Gateway

_LOOK_S = 0.25


def make_log() -> "Log":
    """JSON lines on stderr."""
    log: Log = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.BoundLogger,
        part="gateway",
    )
    return log


def raise_file_limit() -> int:
    """Let the process hold as many connections as it may: the soft limit of open files becomes the hard one.

    A login's usual 1024 would be spent by some 500 requests in flight, each of which has two connections.

    Returns:
        The limit that holds now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Duty:
    """A worker's life: what its master says, and what it tells.

    Args:
        channel: to the master.
        sockets: where to accept.
    """

    def __init__(self, channel: socket.socket, sockets: Sequence[socket.socket]) -> None:
        self._channel = channel
        self._sockets = sockets
        self._retiring = asyncio.Event()
        self._ending = asyncio.Event()
        self._lines = Lines()

    async def serve(self, order: Order) -> None:
        """Serve until told to end or to retire, or until the master is gone.

        Raises:
            InvalidSpec, OSError: it cannot start.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ending.set)
        self._channel.setblocking(False)
        loop.add_reader(self._channel, self._hear)
        config = replace(GatewayConfig.from_mapping(order.settings), gateway_id=order.gateway_id)
        log = make_log()
        chosen = accelerators.install(config.accelerators)
        if chosen.fault:
            log.warning("accelerators.unused", used=list(chosen.parts), why=chosen.fault, remedy=accelerators.REMEDY)
        from moorage.gateway.serving import Gateway, calm_collector

        gateway = Gateway(config, log, self._sockets, order, chosen)
        await gateway.start()
        calm_collector()
        self._say(said=orders.SERVING, accelerators=list(chosen.parts))
        await _either(self._ending, self._retiring)
        telling = asyncio.create_task(self._tell_left(gateway))
        await (gateway.stop() if self._ending.is_set() else self._retire(gateway))
        telling.cancel()

    async def _retire(self, gateway: "Gateway") -> None:
        """Retire; told to end meanwhile, do not wait for clients at rest."""
        retiring = asyncio.ensure_future(gateway.retire())
        ending = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait((retiring, ending), return_when=asyncio.FIRST_COMPLETED)
        if not retiring.done():
            gateway.hasten()
        ending.cancel()
        await retiring

    def _hear(self) -> None:
        try:
            data = self._channel.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the master is gone, and nobody else would end this process
            asyncio.get_running_loop().remove_reader(self._channel)
            self._ending.set()
        for said in self._lines.feed(data):
            if said.get("do") == orders.RETIRE:
                self._retiring.set()

    async def _tell_left(self, gateway: "Gateway") -> None:
        told = -1
        while True:
            count = len(gateway.hub.clients)
            if count != told:
                told = count
                self._say(said=orders.LEFT, count=count)
            await asyncio.sleep(_LOOK_S)

    def _say(self, **said: object) -> None:
        tell(self._channel, **said)


def tell(channel: socket.socket, **said: object) -> None:
    """Say something to the master, which may be gone."""
    with contextlib.suppress(OSError):
        channel.send(orders.line(**said))


async def _either(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()


def _read_order(channel: socket.socket) -> Order:
    """The order that the master wrote before this process was there to read it.

    Raises:
        ValueError: it is none of this release.
    """
    said = b""
    while not said.endswith(b"\n"):
        part = channel.recv(1)  # no byte more: what follows is for the event loop
        if not part:
            raise ValueError("the gateway's master is gone")
        said += part
    return Order.read(json.loads(said))


def main(arguments: list[str] | None = None) -> int:
    """The process. Exit code 0 after a graceful end, 1 when it could not start, 2 for bad settings."""
    parser = argparse.ArgumentParser(prog="moorage.gateway.worker", description="A worker of a Moorage gateway.")
    parser.add_argument("--channel", required=True, type=int)
    parser.add_argument("--sockets", required=True)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    channel = socket.socket(fileno=options.channel)
    sockets = [socket.socket(fileno=int(number)) for number in options.sockets.split(",")]
    try:
        order = _read_order(channel)
        raise_file_limit()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Duty(channel, sockets).serve(order))
    except MoorageError as error:
        tell(channel, said=orders.FAILED, code=2, message=f"{error.message}; {error.remedy}")
        return 2
    except (OSError, ValueError) as error:
        tell(channel, said=orders.FAILED, code=1, message=f"gateway: a worker process cannot start: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

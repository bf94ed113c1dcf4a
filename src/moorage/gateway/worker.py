"""A worker process of a gateway: does the serving, at sockets that its master opened.

Here: building the process from its order, accepting, and the graceful end. Not here: anything about requests, when
workers are started and replaced (`master`). Started by `crew` as `python -m moorage.gateway.worker`.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import resource
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import cast
from urllib.parse import urlsplit

import structlog
import uvloop

from moorage.domain.errors import MoorageError
from moorage.gateway import orders, tls
from moorage.gateway.config import GatewayConfig
from moorage.gateway.control import ControlLink
from moorage.gateway.frontend import ClientConnection
from moorage.gateway.hub import Hub, Log
from moorage.gateway.listeners import BACKLOG, Listeners
from moorage.gateway.master import SOCKETS
from moorage.gateway.orders import Lines, Order
from moorage.gateway.siblings import Siblings

REST_S = 5.0
"""A retiring worker closes a connection that has been at rest for so long: sooner, its client may just be about to use
it, and would meet the close."""
_LOOK_S = 0.25
_TLS_GOODBYE_S = 2.0


def make_log() -> Log:
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


class Gateway:
    """The serving of one process. `start`, then `stop` or `retire`.

    Args:
        sockets: where to accept; none: at the address of the settings.
        order: of the master; None: there is none, and no other process.
    """

    def __init__(
        self, config: GatewayConfig, log: Log, sockets: Sequence[socket.socket] = (), order: Order | None = None
    ) -> None:
        self.config = config
        self.address = order.address if order is not None else ""
        self._log = log
        self._sockets = sockets
        self._order = order
        self.hub: Hub
        self._servers: list[asyncio.Server] = []
        self._private: asyncio.Server | None = None
        self._siblings: Siblings | None = None
        self._control: ControlLink
        self._link: asyncio.Task[None] | None = None
        self._rest_s = REST_S

    async def start(self) -> None:
        """Load the kept table, accept, begin to talk to the control plane (whose absence delays nothing).

        Raises:
            OSError: the address cannot be listened on.
            InvalidSpec: the certificate or its key cannot be used.
        """
        config = self.config
        loop = asyncio.get_running_loop()
        hub = self.hub = Hub(
            config, loop, seed=secrets.randbits(64), id_prefix=f"req-{secrets.token_hex(4)}", log=self._log
        )
        await self._listen(loop)
        link = self._control = ControlLink(
            hub, config, incarnation=secrets.token_hex(8), address=await self._reported_address(loop)
        )
        link.load()
        hub.start()
        if self._order is not None:
            self._siblings = Siblings(config.state_dir / SOCKETS, self._order.master, hub.own.told)
            hub.own.siblings = self._siblings
            hub.own.process = config.gateway_id
            await self._siblings.start()
        self._link = asyncio.create_task(link.run())
        self._link.add_done_callback(self._link_ended)
        if self._order is not None and self._order.patience_s:
            await self._first_table(self._order.patience_s)
        for server in self._servers:
            await server.start_serving()
        self._log.info("gateway.listening", address=self.address, gateway=config.gateway_id)

    async def stop(self) -> None:
        """Accept no more, finish what runs for at most `drain_s`, then drop the rest.

        The link stays up meanwhile: the control plane sees the last requests end.
        """
        self._rest_s = 0.0
        self._accept_no_more()
        self.hub.drain()
        await self._drain()
        await self._end()

    async def retire(self) -> None:
        """As `stop`, while others serve: connections end with their next answer, and after `REST_S` at rest."""
        self._accept_no_more()
        self.hub.draining = True
        await self._drain()
        await self._end()

    def hasten(self) -> None:
        """While it retires: the others end too, so that clients at rest are not waited for."""
        self._rest_s = 0.0
        self.hub.drain()

    # --- starting ------------------------------------------------------------------------------------------------

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        config, hub = self.config, self.hub
        context = None
        if config.tls_certificate is not None and config.tls_key is not None:
            context = tls.server_context(config.tls_certificate, config.tls_key)
        if not self._sockets:
            own = Listeners(config.host, config.port, 1)
            self._sockets, self.address = own.of(0, 1), own.address
        for each in self._sockets:
            server = await loop.create_server(
                lambda: _protocol(hub),
                sock=each,
                backlog=BACKLOG,
                ssl=context,
                ssl_handshake_timeout=config.tls_handshake_timeout_s if context is not None else None,
                ssl_shutdown_timeout=_TLS_GOODBYE_S if context is not None else None,
                start_serving=False,
            )
            self._servers.append(server)

    async def _reported_address(self, loop: asyncio.AbstractEventLoop) -> str:
        """Where the control plane asks for `/moorage/…`; any of our processes answers for all of them.

        A control plane on this machine is given an address of this machine: what is advertised is for the gateway's
        clients, and may lead elsewhere first. With TLS that is a port without it, as the certificate is for the
        clients' names, none of which the control plane uses.
        """
        config, hub = self.config, self.hub
        if urlsplit(config.server_url).hostname not in ("127.0.0.1", "::1", "localhost"):
            return config.advertise or f"{config.scheme}://{self.address}"
        if config.tls_certificate is None:
            return self.address.replace("0.0.0.0:", "127.0.0.1:").replace("[::]:", "[::1]:")
        server = self._private = await loop.create_server(lambda: _protocol(hub), "127.0.0.1", 0)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _first_table(self, patience_s: float) -> None:
        """Another process serves meanwhile: take its place with a table, where one is to be had in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._control.taken.wait()

    # --- ending --------------------------------------------------------------------------------------------------

    def _accept_no_more(self) -> None:
        for server in self._servers:
            server.close()
        if self._private is not None:
            self._private.close()

    async def _drain(self) -> None:
        if not self.hub.clients:
            self.hub.drained.set()
        closing = asyncio.create_task(self._close_rested())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.drain_s):
                await self.hub.drained.wait()
        closing.cancel()
        if self.hub.clients:
            self._log.warning("gateway.drain_over", dropped=len(self.hub.clients))

    async def _close_rested(self) -> None:
        """An answer that began before the end began did not say that its connection closes."""
        while True:
            self.hub.close_rested(self._rest_s)
            await asyncio.sleep(_LOOK_S)

    async def _end(self) -> None:
        self.hub.stop()
        if self._siblings is not None:
            await self._leave_counts(self._siblings)
        if self._link is not None:
            self._link.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._link
            await self._control.goodbye()
        if self.hub.counts.access is not None:
            await asyncio.to_thread(self.hub.counts.access.close)
        self._log.info("gateway.stopped", gateway=self.config.gateway_id)

    async def _leave_counts(self, siblings: Siblings) -> None:
        text = self.hub.own.text()
        siblings.stop()
        try:
            await asyncio.to_thread(siblings.leave, text)
        except OSError as error:
            self._log.warning("gateway.counts_not_left", error=str(error))

    def _link_ended(self, task: asyncio.Task[None]) -> None:
        """The link never ends by itself; if it does, that is a defect to be seen. Serving goes on."""
        if not task.cancelled() and task.exception() is not None:
            self._log.warning("control.link_died", error=repr(task.exception()))


def calm_collector() -> None:
    """Requests make no reference cycles: what lives at the start is left out of collections, which come seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


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
        gateway = Gateway(config, make_log(), self._sockets, order)
        await gateway.start()
        calm_collector()
        self._say(said=orders.SERVING)
        await _either(self._ending, self._retiring)
        telling = asyncio.create_task(self._tell_left(gateway))
        await (gateway.stop() if self._ending.is_set() else self._retire(gateway))
        telling.cancel()

    async def _retire(self, gateway: Gateway) -> None:
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

    async def _tell_left(self, gateway: Gateway) -> None:
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


def _protocol(hub: Hub) -> asyncio.Protocol:
    """What a client's connection is served by."""
    return cast(asyncio.Protocol, ClientConnection(hub))


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

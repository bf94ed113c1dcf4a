"""The serving of one gateway process: accepting at its sockets, its parts, and the graceful end.

Here: building the parts out of the settings, and their order at start and end. Not here: the process and its master
(`worker`), anything about requests. Called by `worker`, after it chose in which form the hot path is used
(`accelerators`), and by tests.
"""

import asyncio
import contextlib
import gc
import ipaddress
import secrets
import socket
import ssl
import time
from collections.abc import Sequence
from typing import cast
from urllib.parse import urlsplit

from moorage.domain import incarnations
from moorage.gateway import tls
from moorage.gateway.accelerators import PURE, Installed
from moorage.gateway.config import GatewayConfig
from moorage.gateway.control import ControlLink
from moorage.gateway.frontend import ClientConnection
from moorage.gateway.greeting import Greetings
from moorage.gateway.handover import SOCKETS
from moorage.gateway.hub import Hub, Log
from moorage.gateway.listeners import BACKLOG, Listeners
from moorage.gateway.mistaken import Mistaken
from moorage.gateway.orders import Order
from moorage.gateway.siblings import Siblings

REST_S = 5.0
"""A retiring worker closes a connection that has been at rest for so long: sooner, its client may just be about to use
it, and would meet the close."""
_LOOK_S = 0.25
_TLS_GOODBYE_S = 2.0


class Gateway:
    """The serving of one process. `start`, then `stop` or `retire`.

    Args:
        sockets: where to accept; none: at the address of the settings.
        order: of the master; None: there is none, and no other process.
        accelerated: what of the hot path is used in a compiled form.
    """

    def __init__(
        self,
        config: GatewayConfig,
        log: Log,
        sockets: Sequence[socket.socket] = (),
        order: Order | None = None,
        accelerated: Installed = PURE,
    ) -> None:
        self.config = config
        self.address = order.address if order is not None else ""
        self._log = log
        self._sockets = sockets
        self._order = order
        self._accelerated = accelerated
        self.hub: Hub
        self._processes: tuple[str, ...] = ()
        self._servers: list[asyncio.Server] = []
        self._covers: dict[int, asyncio.Server] = {}
        """by the number of the socket, which is another process's"""
        self._private: asyncio.Server | None = None
        self._siblings: Siblings | None = None
        self._control: ControlLink
        self._link: asyncio.Task[None] | None = None
        self._rest_s = REST_S
        self._greetings: Greetings
        self._context: ssl.SSLContext | None = None

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
        hub.together(self._processes)
        hub.own.accelerated = self._accelerated.parts
        await self._listen(loop)
        link = self._control = ControlLink(
            hub,
            config,
            incarnation=incarnations.named(time.time_ns(), secrets.token_hex(4)),
            address=await self._reported_address(loop),
            slot=self._order.slot if self._order is not None else 0,
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
        self._log.info(
            "gateway.listening",
            address=self.address,
            gateway=config.gateway_id,
            accelerators=list(self._accelerated.parts),
        )

    def together(self, processes: tuple[str, ...]) -> None:
        """These processes of this gateway run, and no others; none: nobody knows."""
        self._processes = processes
        if hasattr(self, "hub"):
            self.hub.together(processes)

    async def cover(self, sockets: Sequence[socket.socket]) -> None:
        """Accept at these sockets of other processes too, and at no other than one's own.

        Raises:
            OSError: that cannot be.
        """
        wanted = {each.fileno(): each for each in sockets}
        for number in set(self._covers) - set(wanted):
            self._covers.pop(number).close()
        for number in set(wanted) - set(self._covers):
            server = self._covers[number] = await self._server(asyncio.get_running_loop(), wanted[number].dup())
            await server.start_serving()

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
        if config.tls_certificate is not None and config.tls_key is not None:
            self._context = tls.server_context(config.tls_certificate, config.tls_key)
            Mistaken(self._log, loop.time).watch(self._context)
        self._greetings = Greetings(lambda: _protocol(hub), config.tls_handshake_timeout_s)
        if not self._sockets:
            own = Listeners(config.host, config.port, 1)
            self._sockets, self.address = own.of(0, 1), own.address
        self._servers = [await self._server(loop, each) for each in self._sockets]

    async def _server(self, loop: asyncio.AbstractEventLoop, place: socket.socket) -> asyncio.Server:
        hub, secured = self.hub, self._context is not None
        return await loop.create_server(
            self._greetings.accepted if secured else lambda: _protocol(hub),
            sock=place,
            backlog=BACKLOG,
            ssl=self._context,
            ssl_handshake_timeout=self.config.tls_handshake_timeout_s if secured else None,
            ssl_shutdown_timeout=_TLS_GOODBYE_S if secured else None,
            start_serving=False,
        )

    async def _reported_address(self, loop: asyncio.AbstractEventLoop) -> str:
        """Where the control plane asks for `/moorage/…`; any of our processes answers for all of them.

        A control plane on this machine is given an address of this machine: what is advertised is for the gateway's
        clients, and may lead elsewhere first. With TLS that is a port without it, as the certificate is for the
        clients' names, none of which the control plane uses.
        """
        config, hub = self.config, self.hub
        if not _is_here(urlsplit(config.server_url).hostname or ""):
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
        for server in (*self._servers, *self._covers.values()):
            server.close()
        if self._private is not None:
            self._private.close()

    async def _drain(self) -> None:
        closing = asyncio.create_task(self._close_rested())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.drain_s):
                await self._greetings.over()
                await asyncio.sleep(0)  # what was accepted in this turn of the loop is a client in the next one
                while self.hub.clients:
                    self.hub.drained.clear()
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
        self.hub.counts.settle()
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


def _is_here(host: str) -> bool:
    """Whether a host is this machine: only its own addresses can be listened at."""
    if host in ("127.0.0.1", "::1", "localhost"):
        return True
    with contextlib.suppress(OSError, ValueError):
        address = ipaddress.ip_address(host)
        with socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET) as probe:
            probe.bind((host, 0))
            return True
    return False


def calm_collector() -> None:
    """Requests make no reference cycles: what lives at the start is left out of collections, which come seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def _protocol(hub: Hub) -> asyncio.Protocol:
    """What a client's connection is served by."""
    return cast(asyncio.Protocol, ClientConnection(hub))

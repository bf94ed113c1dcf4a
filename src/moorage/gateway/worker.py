"""A worker process of a gateway: does the serving, at sockets that its master opened.

Here: the process, its order, and what it and its master say to each other. Not here: the serving itself (`serving`,
which is imported only once it is chosen in which form its hot path is used), when workers are started and replaced
(`master`). Started by `crew` as `python -m moorage.gateway.worker`.
"""

import argparse
import asyncio
import contextlib
import faulthandler
import json
import os
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
from moorage.gateway.handover import SOCKETS, Offer
from moorage.gateway.orders import Lines, Order

if TYPE_CHECKING:
    from moorage.gateway.hub import Log
    from moorage.gateway.serving import Gateway

ALONE_S = 30.0
"""How long a worker goes on without a master: its supervisor starts another one within seconds, or there is none."""
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
        spare: where others do; while one of them is gone, the master says to accept there too.
    """

    def __init__(
        self, channel: socket.socket, sockets: Sequence[socket.socket], spare: Sequence[socket.socket] = ()
    ) -> None:
        self._channel = channel
        self._sockets = sockets
        self._spare = {each.fileno(): each for each in spare}
        self._processes: tuple[str, ...] = ()
        """of this gateway that run; none while there is no master to say so"""
        self._covered: Sequence[socket.socket] = ()
        self._cover_others = asyncio.Event()
        self._retiring = asyncio.Event()
        self._ending = asyncio.Event()
        self._lines = Lines()
        self._gateway: Gateway | None = None
        self._starting: Gateway | None = None
        """the same, as soon as it is made"""
        self._order: Order
        self._log: Log
        self._offer: Offer | None = None
        self._alone: asyncio.TimerHandle | None = None

    async def serve(self, order: Order) -> None:
        """Serve until told to end or to retire, or until there has been no master for long.

        Raises:
            InvalidSpec, OSError: it cannot start.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._ending.set)
        self._channel.setblocking(False)
        loop.add_reader(self._channel, self._hear)
        config = replace(GatewayConfig.from_mapping(order.settings), gateway_id=order.gateway_id)
        self._order, self._log = order, (log := make_log())
        chosen = accelerators.install(config.accelerators, insist=not order.replaces)
        if chosen.fault:
            log.warning("accelerators.unused", used=list(chosen.parts), why=chosen.fault, remedy=accelerators.REMEDY)
        from moorage.gateway.serving import Gateway, calm_collector

        gateway = Gateway(config, log, self._sockets, order, chosen)
        self._starting = gateway
        gateway.together(self._processes)
        await gateway.start()
        calm_collector()
        self._gateway = gateway
        self._say(said=orders.SERVING, accelerators=list(chosen.parts), unused=chosen.fault)
        covering = asyncio.create_task(self._cover(gateway))
        await _either(self._ending, self._retiring)
        covering.cancel()
        for each in self._spare.values():
            each.close()  # where everybody else has closed it too, nobody would accept
        telling = asyncio.create_task(self._tell_left(gateway))
        await (gateway.stop() if self._ending.is_set() else self._retire(gateway))
        telling.cancel()
        self._withdraw_offer()

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
        if not data:
            self._left_alone()
        for said in self._lines.feed(data):
            what = said.get("do")
            if what == orders.RETIRE:
                self._retiring.set()
            elif what == orders.END:
                self._ending.set()
            elif what == orders.ASK:
                self._say(said=orders.LIVES)
            elif what == orders.ACCEPT:
                self._covered = [self._spare[number] for number in said["sockets"] if number in self._spare]
                self._cover_others.set()
            elif what == orders.PROCESSES:
                self._know(tuple(said["ids"]))

    def _know(self, processes: tuple[str, ...]) -> None:
        self._processes = processes
        if self._starting is not None:
            self._starting.together(processes)

    async def _cover(self, gateway: "Gateway") -> None:
        """Accept where the master says that nobody else does."""
        while True:
            await self._cover_others.wait()
            self._cover_others.clear()
            try:
                await gateway.cover(self._covered)
            except OSError as error:  # it stays as it was: those who come there wait
                self._log.warning("gateway.not_covered", error=str(error))

    # --- without a master ----------------------------------------------------------------------------------------

    def _left_alone(self) -> None:
        """The master is gone: go on, for the next one to take this process over."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._channel)
        self._channel.close()
        self._lines = Lines()
        self._know(())
        if self._gateway is None or self._ending.is_set():
            self._ending.set()
            return
        serves = not self._retiring.is_set()
        said = {
            "gateway_id": self._order.gateway_id,
            "address": self._order.address,
            "master": self._order.master,
            "pid": os.getpid(),
            "asked": [self._gateway.config.host, self._gateway.config.port],
        }
        try:
            self._offer = Offer(
                self._gateway.config.state_dir / SOCKETS,
                said,
                [*self._sockets, *self._spare.values()] if serves else [],
                self._taken_over,
            )
        except OSError as error:
            self._log.warning("gateway.cannot_be_taken_over", error=str(error))
            self._ending.set()
            return
        loop.add_reader(self._offer.listener, self._offer.accept)
        if serves:
            self._log.warning("gateway.without_master", for_s=ALONE_S)
            self._alone = loop.call_later(ALONE_S, self._ending.set)

    def _taken_over(self, channel: socket.socket) -> None:
        self._withdraw_offer()
        self._channel = channel
        channel.setblocking(False)
        asyncio.get_running_loop().add_reader(channel, self._hear)

    def _withdraw_offer(self) -> None:
        if self._alone is not None:
            self._alone.cancel()
        if self._offer is not None:
            asyncio.get_running_loop().remove_reader(self._offer.listener)
            self._offer.close()
        self._alone = self._offer = None

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


def _sockets(numbers: str) -> list[socket.socket]:
    return [socket.socket(fileno=int(number)) for number in numbers.split(",") if number]


def main(arguments: list[str] | None = None) -> int:
    """The process. Exit code 0 after a graceful end, 1 when it could not start, 2 for bad settings."""
    parser = argparse.ArgumentParser(prog="moorage.gateway.worker", description="A worker of a Moorage gateway.")
    parser.add_argument("--channel", required=True, type=int)
    parser.add_argument("--sockets", required=True, type=_sockets)
    parser.add_argument("--spare", default=[], type=_sockets)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    channel = socket.socket(fileno=options.channel)
    try:
        order = _read_order(channel)
        raise_file_limit()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(Duty(channel, options.sockets, options.spare).serve(order))
    except MoorageError as error:
        tell(channel, said=orders.FAILED, code=2, message=f"{error.message}; {error.remedy}")
        return 2
    except (OSError, ValueError) as error:
        tell(channel, said=orders.FAILED, code=1, message=f"gateway: a worker process cannot start: {error}")
        return 1
    return 0


if __name__ == "__main__":
    faulthandler.enable()  # ended since it hung, it writes the stacks of its threads
    sys.exit(main())

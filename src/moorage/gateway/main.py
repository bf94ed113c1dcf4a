"""The gateway's process: `python -m moorage.gateway.main --config FILE.json`.

Here: building the process from its settings, listening, and the graceful end. Not here: anything about requests.
"""

import argparse
import asyncio
import contextlib
import gc
import resource
import secrets
import signal
import sys
from pathlib import Path

import structlog
import uvloop

from moorage.domain.errors import MoorageError
from moorage.gateway.config import GatewayConfig
from moorage.gateway.control import ControlLink
from moorage.gateway.frontend import ClientConnection
from moorage.gateway.hub import Hub, Log

_BACKLOG = 4096
"""A burst of a thousand connections at a cold endpoint must not meet a full accept queue."""


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
    """A running gateway. `start`, then `stop`."""

    def __init__(self, config: GatewayConfig, log: Log) -> None:
        self.config = config
        self.address = ""
        self._log = log
        self.hub: Hub
        self._server: asyncio.Server
        self._control: ControlLink
        self._link: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the kept table, listen, begin to talk to the control plane (whose absence delays nothing).

        Raises:
            OSError: the address cannot be listened on.
        """
        config = self.config
        loop = asyncio.get_running_loop()
        hub = self.hub = Hub(
            config, loop, seed=secrets.randbits(64), id_prefix=f"req-{secrets.token_hex(4)}", log=self._log
        )
        self._server = await loop.create_server(
            lambda: ClientConnection(hub),
            config.host,
            config.port,
            backlog=_BACKLOG,
            start_serving=False,
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        link = self._control = ControlLink(hub, config, incarnation=secrets.token_hex(8), address=self.address)
        link.load()
        hub.start()
        await self._server.start_serving()
        self._link = asyncio.create_task(link.run())
        self._link.add_done_callback(self._link_ended)
        self._log.info("gateway.listening", address=self.address, gateway=config.gateway_id)

    async def stop(self) -> None:
        """Accept no more, finish what runs for at most `drain_s`, then drop the rest.

        The link stays up meanwhile: the control plane sees the last requests end.
        """
        self._server.close()
        self.hub.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.drain_s):
                await self.hub.drained.wait()
        if self.hub.clients:
            self._log.warning("gateway.drain_over", dropped=len(self.hub.clients))
        self.hub.stop()
        if self._link is not None:
            self._link.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._link
            await self._control.goodbye()
        if self.hub.counts.access is not None:
            await asyncio.to_thread(self.hub.counts.access.close)
        self._log.info("gateway.stopped")

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


async def serve(config: GatewayConfig) -> None:
    """Serve until SIGTERM or SIGINT, then end gracefully.

    Raises:
        OSError: the address cannot be listened on.
    """
    gateway = Gateway(config, make_log())
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    await gateway.start()
    calm_collector()
    await ending.wait()
    await gateway.stop()


def main(arguments: list[str] | None = None) -> int:
    """The command. Exit code 0 after a graceful end, 1 when it could not start, 2 for bad settings."""
    parser = argparse.ArgumentParser(prog="moorage.gateway.main", description="Run one Moorage gateway.")
    parser.add_argument("--config", required=True, type=Path, help="JSON file of settings (GatewayConfig)")
    options = parser.parse_args(arguments)
    try:
        config = GatewayConfig.from_file(options.config)
    except MoorageError as error:
        print(f"{error.message}; {error.remedy}", file=sys.stderr)
        return 2
    raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(config))
    except OSError as error:
        print(f"gateway: cannot listen on {config.host}:{config.port}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

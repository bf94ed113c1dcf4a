"""The control plane's process: the real object graph, built once, and its HTTP server.

Started as `python -m moorage.app.server --config FILE.json` by the supervisor or `moor server`. Reads its configuration
file and nothing of the environment. One file lock per home keeps a second one out.
"""

import argparse
import asyncio
import faulthandler
import fcntl
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import structlog
import uvicorn
from uvicorn.server import ServerState

from moorage.api.app import create_app
from moorage.api.auth import Auth, StaticTokens
from moorage.api.deps import ApiDeps, ApiSettings
from moorage.app.leading import Parts, loops_of
from moorage.clock import SystemClock
from moorage.control.accounts import GpuAccounts
from moorage.control.admit import Admission
from moorage.control.authority import Authority
from moorage.control.caches import CacheAsking
from moorage.control.claims import ClaimAsking
from moorage.control.credentials import Credentials
from moorage.control.driverelay import DriveRelay
from moorage.control.drives import Drives
from moorage.control.execrelay import ExecRelay
from moorage.control.explain import Explanation
from moorage.control.gateways import Gateways
from moorage.control.inventory import StockAsking
from moorage.control.leader import Leadership
from moorage.control.logrelay import LogRelay
from moorage.control.loops import Loops
from moorage.control.observe import Observation
from moorage.control.pinning import Pins
from moorage.control.provisions import Provisions
from moorage.control.routing import Publisher
from moorage.control.scheduling import SchedulingStep
from moorage.control.sealing import Sealer
from moorage.control.slices import Slices
from moorage.control.usage import UsageIntake
from moorage.control.vault import Vault
from moorage.control.work import WorkBoard
from moorage.decide.running.liveness import LeaseTimes
from moorage.domain.errors import Conflict, InvalidSpec, MoorageError
from moorage.domain.ids import UID_RANDOM_BYTES, new_uid, uid_bytes
from moorage.sources.hub import Hub
from moorage.sources.pins import HubPins
from moorage.store import open_store
from moorage.store.store import SqlStore
from moorage.wire.alive import Answering
from moorage.wire.trust import trusted

log = structlog.get_logger("moorage.server")

SECRETS_KEY = "secrets.key"
"""File of the home with the key under which secrets are kept; every control plane of a database needs the same."""

DIRECT = httpx.Limits(max_connections=512, max_keepalive_connections=0)
"""Of requests to replicas: two at a time for each deployment whose revisions are compared. None of them on a connection
kept from before, which a server may just be closing: that would count as its failure."""

LATE_SHARE = 2.0 / 3.0
"""A heartbeat is late after this share of the machine's time to live (20 s of 30 s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """What the server needs to know.

    Args:
        database_url: `sqlite:///PATH` or `postgresql://…`.
        host, port: where the API listens.
        home: folder of this installation's state; its lock keeps a second server out.
        tokens: admin, agent_join, gateway.
        machine_ttl_s, heartbeat_s: lease of a machine and how often it is renewed, seconds.
        gateway_url: where clients reach the gateway, until it says itself.
        gateway_id: of the gateway that belongs to this home.
        log: level word.
    """

    database_url: str
    host: str = "127.0.0.1"
    port: int = 7420
    home: Path
    tokens: dict[str, str] = field(default_factory=dict, repr=False)
    machine_ttl_s: float = 30.0
    heartbeat_s: float = 10.0
    gateway_url: str = "http://127.0.0.1:7421"
    gateway_id: str = ""
    log: str = "info"

    @staticmethod
    def read(path: Path) -> "ServerConfig":
        """The configuration in a JSON file.

        Raises:
            InvalidSpec: it cannot be read or lacks something.
        """
        try:
            raw: dict[str, Any] = json.loads(path.read_text())
            api = raw.pop("api", {})
            return ServerConfig(**{**raw, "home": Path(raw["home"]), **api})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InvalidSpec(f"cannot read the server's configuration {path}: {error}") from error


class RandomIds:
    """Uids from the time and the operating system's randomness."""

    def new(self, kind: str) -> str:
        """A uid never given out before."""
        return new_uid(kind, uid_bytes(time.time(), os.urandom(UID_RANDOM_BYTES)))


@dataclass(slots=True)
class Graph:
    """Everything that one control plane is made of."""

    store: SqlStore
    publisher: Publisher
    leadership: Leadership
    loops: Loops
    deps: ApiDeps
    direct: httpx.AsyncClient
    """to replicas, by their own addresses"""


async def build(config: ServerConfig) -> Graph:
    """The real graph over an opened (and migrated) store."""
    clock, ids = SystemClock(), RandomIds()
    store = await open_store(config.database_url, clock)
    publisher = await _publisher(store, clock)
    leadership = Leadership(store, clock, owner=f"home:{config.home}")
    slices = publisher.slices = Slices(store, clock, leadership, publisher.limits)
    http, direct = httpx.AsyncClient(timeout=5.0, verify=trusted()), _direct()
    relay = LogRelay(clock, lambda: ids.new("Operation"))
    execs = ExecRelay(store, clock, lambda: ids.new("Operation"))
    copies = DriveRelay(clock, lambda: ids.new("Operation"))
    stock, claims, caches = StockAsking(clock), ClaimAsking(clock), CacheAsking(clock)
    board = WorkBoard(store, clock, relay, execs, copies, stock=stock, claims=claims, caches=caches)
    scheduling = SchedulingStep(store, clock)
    accounts = GpuAccounts(store, clock, scheduling.keeper)
    loops = loops_of(
        LeaseTimes(late_s=config.machine_ttl_s * LATE_SHARE, ttl_s=config.machine_ttl_s),
        Parts(store, clock, ids, publisher, board, scheduling, leadership, claims, http, direct),
        accounts.check,
    )
    observation = _observation(config, store, clock, ids=ids, board=board, loops=loops, publisher=publisher)
    credentials = Credentials(store, clock)
    sealer = Sealer(config.home / SECRETS_KEY)
    vault, authority = Vault(store, clock, sealer), Authority(store, clock, sealer)
    tokens = config.tokens
    deps = ApiDeps(
        store=store,
        usage=store,
        clock=clock,
        commands=Admission(store, clock, ids, publisher.demand, scheduling.keeper, pins=Pins(HubPins(Hub()), vault)),
        machines=observation,
        gateways=publisher,
        explain=Explanation(store, clock, scheduling.keeper, publisher.demand, publisher.aside),
        auth=Auth(StaticTokens(tokens.get("admin"), tokens.get("agent_join"), tokens.get("gateway")), credentials),
        credentials=credentials,
        logs=relay,
        execs=execs,
        vault=vault,
        provisions=Provisions(store, vault, authority, board),
        authority=authority,
        drives=Drives(store, clock, loops.look_again),
        copies=copies,
        stock=stock,
        claims=claims,
        caches=caches,
        ids=ids,
        settings=ApiSettings(gateway_url=config.gateway_url, gateway_token=tokens.get("gateway")),
        http=http,
        readiness=_readiness(leadership),
        keeper=scheduling.keeper,
        demand=publisher.demand,
        aside=publisher.aside,
        reached=lambda: publisher.url(config.gateway_id),
        spread=publisher.spread,
        load=publisher.load,
        passed=slices.used,
        gauges=lambda: {"gpu_ledger_violations": accounts.violations},
    )
    return Graph(store, publisher, leadership, loops, deps, direct)


def _direct() -> httpx.AsyncClient:
    """To replicas; that is never TLS, so no authorities are read for it."""
    return httpx.AsyncClient(trust_env=False, limits=DIRECT, verify=False)


async def _publisher(store: SqlStore, clock: SystemClock) -> Publisher:
    """It knows the gateways that there were, and takes what they say of usage."""
    gateways = Gateways(store, clock, store.incarnation)
    await gateways.load()
    publisher = Publisher(store, clock, gateways, store.incarnation)
    publisher.usage = UsageIntake(store, clock)
    return publisher


def _observation(
    config: ServerConfig,
    store: SqlStore,
    clock: SystemClock,
    *,
    ids: RandomIds,
    board: WorkBoard,
    loops: Loops,
    publisher: Publisher,
) -> Observation:
    """What agents talk to; the loops and the publisher hear at once what cannot wait for the feed."""
    return Observation(
        store,
        clock,
        ids,
        board,
        lease_s=config.machine_ttl_s,
        heartbeat_s=config.heartbeat_s,
        heard=loops.heard,
        freed=loops.freed,
        withdraw=publisher.withdraw,
        settle=publisher.settle,
    )


def _readiness(leadership: Leadership) -> Callable[[], str | None]:
    return lambda: None if leadership.fence is not None else "waiting for the control lease"


async def serve(config: ServerConfig) -> None:
    """Run until SIGTERM or SIGINT: lead, and answer the API."""
    graph = await build(config)
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(graph.deps),
            host=config.host,
            port=config.port,
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=5,
        )
    )
    if graph.store.recovered:
        log.warning("the database was damaged and was recovered", lost=graph.store.recovered)
    gc.collect()
    gc.freeze()  # what was built at the start lives as long as the process; the collector need not walk it again
    # A group of 256 transitions makes some thousand objects that live until it is on disk; by default each of them
    # would be walked several times before that.
    gc.set_threshold(20_000, 20, 100)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    leading = asyncio.create_task(graph.leadership.lead(graph.loops.run))
    ending = asyncio.Event()
    serving = asyncio.create_task(_serve_api(server, ending))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((leading, serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (leading, serving):
            if task.done():
                task.result()
    finally:
        graph.deps.closing.set()
        ending.set()
        await asyncio.gather(serving, return_exceptions=True)
        await graph.leadership.step_down()
        leading.cancel()
        stopping.cancel()
        await asyncio.gather(leading, return_exceptions=True)
        await graph.deps.http.aclose()
        await graph.direct.aclose()
        await graph.store.close()


class _DatedWhenAsked(ServerState):
    """uvicorn's state, with the Date header made when an answer needs it.

    uvicorn renews it in a loop of ten ticks a second, which is most of what an idle control plane would do.
    """

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of every answer."""
        return [(b"date", formatdate(usegmt=True).encode())]

    @default_headers.setter
    def default_headers(self, value: list[tuple[bytes, bytes]]) -> None:
        """Set by the base class when it is made; what is given is not used."""


async def _serve_api(server: uvicorn.Server, ending: asyncio.Event) -> None:
    """Until `ending` is set. Without uvicorn's own signal handlers and ticks: stopping is decided in `serve`."""
    config = server.config
    config.load()
    server.server_state = _DatedWhenAsked()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    if server.should_exit:
        raise Conflict(f"cannot listen on {config.host}:{config.port}: the address is in use", code="port_in_use")
    log.info("listening", host=config.host, port=config.port)
    await ending.wait()
    await server.shutdown()


async def _run(config: ServerConfig, path: Path) -> None:
    """Serve, and answer whoever asks beside the configuration's file whether this process lives."""
    try:
        answering = Answering(path)
    except OSError as cause:
        log.warning("nobody can ask whether this process hangs", error=cause.strerror or str(cause))
    else:
        asyncio.get_running_loop().add_reader(answering.fileno(), answering.hear)
    await serve(config)


def lock(home: Path) -> int:
    """Take the home's lock for this process's lifetime.

    Raises:
        Conflict: another server of this home runs.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(home / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise Conflict(
            f"another control plane already runs on {home}",
            code="already_running",
            remedy="stop it (moor down), or give this one another MOORAGE_HOME",
        ) from None
    return handle


def configure_log(level: str) -> None:
    """JSON lines on standard error from the given level on."""
    levels = {"debug": 10, "info": 20, "warning": 30, "error": 40}
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(levels.get(level.lower(), 20)),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
    )


def main(argv: list[str] | None = None) -> int:
    """Entry of the process; 0 after a clean stop, 1 with one clear line when it cannot start."""
    parser = argparse.ArgumentParser(prog="moorage.app.server", description="The control plane.")
    parser.add_argument("--config", type=Path, required=True, help="JSON file, see ServerConfig")
    try:
        path = parser.parse_args(argv).config
        config = ServerConfig.read(path)
        configure_log(config.log)
        held = lock(config.home)
        try:
            import uvloop

            uvloop.run(_run(config, path))
        finally:
            os.close(held)
    except MoorageError as error:
        print(f"error: {error.message}" + (f"\n{error.remedy}" if error.remedy else ""), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    faulthandler.enable()  # ended since it hung, it writes the stacks of its threads
    sys.exit(main())

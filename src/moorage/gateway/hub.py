"""Ties one gateway process together: the routing core, the connections, the pools, the counts.

Here: acting on the core's decisions (connect, release, refuse), the once-a-second sweep of deadlines. Not here: the
decisions themselves, HTTP. Built by `main`; used by connections and by the control link, all on one event loop.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Protocol, cast

from moorage.decide.serving.binding import BindingSpec
from moorage.decide.serving.routes import (
    FAILED,
    OK,
    SERVER_ERROR,
    EndpointState,
    Generation,
    Held,
    Release,
    RouteSpec,
    TargetState,
)
from moorage.decide.serving.routing import Router
from moorage.gateway import outcomes
from moorage.gateway.access_log import AccessLog
from moorage.gateway.arrivals import Arrivals
from moorage.gateway.callers import Callers
from moorage.gateway.checking import OtherModel, check
from moorage.gateway.config import GatewayConfig
from moorage.gateway.counting import Counts
from moorage.gateway.heads import RequestReader, ResponseReader
from moorage.gateway.intake import WHOLE_BODY_BYTES_MAX
from moorage.gateway.keys import Keys
from moorage.gateway.limits import Limits
from moorage.gateway.own import OwnPaths
from moorage.gateway.pools import Pool
from moorage.gateway.upstream import UpstreamConnection
from moorage.gateway.usage import UsageCounts
from moorage.gateway.ways import Ways

if TYPE_CHECKING:
    from moorage.gateway.exchange import Exchange
    from moorage.gateway.frontend import ClientConnection
    from moorage.gateway.mirror import Copy

SWEEP_S = 1.0

_BAD = (FAILED, SERVER_ERROR)


class Log(Protocol):
    """What the gateway's rooms write to."""

    def info(self, event: str, /, **fields: object) -> object:
        """What an operator may want to know."""
        ...

    def warning(self, event: str, /, **fields: object) -> object:
        """What an operator should look at."""
        ...


class Hub:
    """One gateway process.

    Args:
        seed: spreads picks among replicas; any number.
        id_prefix: begins the request ids drawn here; must differ between processes.
        log: structured log.
    """

    def __init__(
        self, config: GatewayConfig, loop: asyncio.AbstractEventLoop, *, seed: int, id_prefix: str, log: Log
    ) -> None:
        self.config = config
        self.loop = loop
        self.time: Callable[[], float] = time.monotonic
        """the loop's own clock, which tells whole milliseconds only, read anew"""
        self.tick = self.time()
        """when the deadlines were looked at last; those that begin before the next look are counted from it"""
        self.rest_until = self.tick + config.keepalive_s
        self.upstream_idle_s = config.upstream_idle_s
        self.head_bytes_max = config.head_bytes_max
        self.usual_bytes_max = min(WHOLE_BODY_BYTES_MAX, config.body_bytes_max)
        self.log = log
        self.router = Router(seed, self.tick)
        self.clients: set[ClientConnection] = set()
        self.copies: set[Copy] = set()
        self.arrivals = Arrivals(loop)
        self.counts = Counts(self.time, config.records_max)
        if config.access_log is not None:
            self.counts.access = AccessLog(
                config.access_log, bytes_max=config.access_log_bytes, keep=config.access_log_keep, log=log
            )
        self.limits = Limits(self)
        self.keys = Keys(time.time)
        self.ways = Ways(self.router, self.keys)
        self.keys.on_change = self.ways.forget
        self.usage = UsageCounts(time.time, self.time)
        self.own = OwnPaths(self, config.token)
        self.requests = RequestReader(Callers(config).judge)
        self.draining = False
        self.drained = asyncio.Event()
        self.leased_until = inf
        """until when the control plane withdraws no replica unless this gateway has confirmed that; of its clock"""
        self.on_demand: Callable[[], None] = _nobody
        self.on_tick: Callable[[], None] = _nobody
        self.processes: tuple[str, ...] = ()
        """of this gateway that run, as reports say it"""
        self._responses = ResponseReader()
        self._pools: dict[TargetState, Pool] = {}
        self._connecting: set[asyncio.Task[None]] = set()
        self.id_form = id_prefix.replace("%", "%%").encode("ascii") + b"-%x"
        self.id_numbers = count(1)
        self._sweeper: asyncio.TimerHandle | None = None

    # --- called by connections -----------------------------------------------------------------------------------

    def next_id(self) -> bytes:
        """A request id, unique over the fleet."""
        return self.id_form % next(self.id_numbers)

    def demand(self) -> None:
        """An endpoint that had nothing waiting has something now."""
        self.on_demand()

    def together(self, processes: tuple[str, ...]) -> None:
        """These processes of this gateway run, and no others; none: nobody knows."""
        self.processes = processes
        self.on_demand()

    def pool(self, target: TargetState) -> Pool:
        """The idle connections to that replica."""
        pool = self._pools.get(target)
        if pool is None:
            pool = self._pools[target] = Pool(_label(target))
        return pool

    def idle(self, target: TargetState, now: float) -> UpstreamConnection | None:
        """An idle connection to that replica, if it may be used."""
        pool = self._pools.get(target)
        return None if pool is None or target.failures else pool.take(now, self.upstream_idle_s)

    def serve(self, client: "ClientConnection", target: TargetState) -> None:
        """Send the client's request to that replica, over an idle connection or a new one."""
        endpoint = client.endpoint
        assert endpoint is not None
        connection = self.idle(target, self.time())
        if connection is not None:
            client.attach(connection, endpoint.route.limits.first_byte_timeout_s)
            return
        self.connect(client, endpoint, target)

    def connect(self, client: "ClientConnection", endpoint: EndpointState, target: TargetState) -> None:
        """Send the client's request to that replica over a new connection."""
        self.spawn(self._connect(client, endpoint, target))

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Connect in the background."""
        task = self.loop.create_task(work)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def dial(self, endpoint: EndpointState, target: TargetState) -> UpstreamConnection:
        """A new connection to that replica, which is asked first what it serves where no lease says so.

        Raises:
            OSError, TimeoutError: there is none to be had.
        """
        pool, limit_s = self.pool(target), endpoint.route.limits.connect_timeout_s
        async with asyncio.timeout(limit_s):
            _, protocol = await self.loop.create_connection(
                lambda: cast(asyncio.Protocol, UpstreamConnection(pool, self._responses)),
                target.spec.host,
                target.spec.port,
            )
        connection = cast(UpstreamConnection, protocol)
        model = endpoint.route.model
        if model is not None and self.time() >= self.leased_until:
            await self._check(target, connection, model, limit_s)
        return connection

    async def _check(self, target: TargetState, connection: UpstreamConnection, model: str, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await check(self, connection, model)
        except BaseException as error:
            connection.abandon()
            if isinstance(error, OtherModel):
                self.router.withdraw(target)
                self.log.warning("replica.withdrawn", replica=target.spec.replica, error=str(error))
            raise

    def reached(self, endpoint: EndpointState, target: TargetState) -> None:
        """A connect worked: held requests may go on."""
        self.carry_out(self.router.connected(endpoint, target, self.time()))

    def unreachable(self, endpoint: EndpointState, target: TargetState, error: Exception) -> None:
        """A connect failed for which nobody waits (any more)."""
        now = self.time()
        self.router.eject(target, now)
        self._count_unreachable(endpoint, target, error, now)

    def refused(self, client: "Exchange", outcome: str) -> None:
        """A request ended before it was known which deployment answers it: count it, as its key's too."""
        self.counts.refused(client, outcome)
        self.usage.refused(client, self.keys, outcome)

    def finished(
        self, client: "Exchange", endpoint: EndpointState, target: TargetState | None, outcome: str, now: float
    ) -> None:
        """A request ended: count it, attribute it, and let held ones go on its place."""
        self.counts.ended(client, endpoint, target, outcome, now)
        if client.tenant:
            self.usage.ended(client, endpoint, outcome)
        permit = client.permit
        if permit is not None:
            self.limits.ended(client, permit, outcome, sent=target is not None)
        if target is not None:
            if outcome == "ok" and client.status < outcomes.SERVER_ERRORS:
                releases = self.router.done(endpoint, target, now, OK, client.sent_at, client.tenant)
            else:
                releases = self._ended_badly(client, endpoint, target, outcome, now)
            if releases:
                self.carry_out(releases)
            if endpoint.leaving and not target.in_flight and target in endpoint.leaving:
                self.on_demand()  # its end is waited for

    def _ended_badly(
        self, client: "Exchange", endpoint: EndpointState, target: TargetState, outcome: str, now: float
    ) -> Sequence[Release]:
        told = outcomes.told_of(outcome, client.status, sent=client.request_sent)
        if told in _BAD:
            target.answered = outcomes.bad_word(outcome, client.status)
        before = target.ejections
        releases = self.router.done(endpoint, target, now, told, client.sent_at, client.tenant)
        if target.ejections != before:
            self._tell_ejected(target, now)
        return releases

    def carry_out(self, releases: Sequence[Release]) -> None:
        """Act on what the core decided for held requests."""
        for token, decision in releases:
            cast("ClientConnection", token).act(decision)

    # --- called by the control link and main ---------------------------------------------------------------------

    def apply(self, generation: Generation, routes: Sequence[RouteSpec], bindings: Sequence[BindingSpec] = ()) -> bool:
        """Take a routing table; False when it is not newer than the one in use."""
        self.counts.settle()  # as of the table that they ended by
        releases = self.router.apply(generation, routes, self.time(), bindings)
        if releases is None:
            return False
        self.counts.generation = generation
        self.ways.forget()
        listed = {target for endpoint in self.router.endpoints() for target in endpoint.targets}
        for target in [target for target in self._pools if target not in listed]:
            self._pools[target].retire()
            del self._pools[target]
        for copy in [copy for copy in self.copies if copy.target not in listed]:
            copy.abandon()  # no drain waits for an answer that nobody gets
        known = set(self.router.endpoints())
        self.counts.forget(known, listed, set(self.router.bindings()))
        self.carry_out(releases)
        return True

    def start(self) -> None:
        """Begin the sweep, and the access log."""
        if self.counts.access is not None:
            self.counts.access.start()
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)

    def stop(self) -> None:
        """Drop every connection and stop the sweep."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in list(self._connecting):
            task.cancel()
        for client in list(self.clients):
            client.transport.abort()
        for copy in list(self.copies):
            copy.abandon()
        for pool in self._pools.values():
            pool.retire()

    def drain(self) -> None:
        """Take no further request on connections at rest; those that work close after their answer."""
        self.draining = True
        for client in list(self.clients):
            client.close_if_idle()
        if not self.clients:
            self.drained.set()

    def close_rested(self, rest_s: float) -> None:
        """Close connections that have been at rest for so long."""
        before = self.time() + self.config.keepalive_s - rest_s
        for client in [client for client in self.clients if client.deadline <= before]:
            client.close_if_idle()

    def left(self, client: "ClientConnection") -> None:
        """A client connection is gone."""
        self.clients.discard(client)
        if self.draining and not self.clients:
            self.drained.set()

    # --- inside --------------------------------------------------------------------------------------------------

    async def _connect(self, client: "ClientConnection", endpoint: EndpointState, target: TargetState) -> None:
        request_id = client.request_id
        try:
            connection = await self.dial(endpoint, target)
        except (OSError, TimeoutError) as error:
            self._connect_failed(client, endpoint, target, request_id, error)
            return
        releases = self.router.connected(endpoint, target, self.time())
        if client.target is target and client.upstream is None and client.request_id is request_id:
            client.attach(connection, endpoint.route.limits.first_byte_timeout_s)
        else:
            connection.pool.give(connection, self.time())
        self.carry_out(releases)

    def _connect_failed(
        self,
        client: "ClientConnection",
        endpoint: EndpointState,
        target: TargetState,
        request_id: bytes,
        error: Exception,
    ) -> None:
        if not (client.target is target and client.upstream is None and client.request_id is request_id):
            self.unreachable(endpoint, target, error)
            return
        now = self.time()
        client.target = None
        held = Held(
            client,
            client.held_until,
            client.head.revision,
            tenant=client.tenant,
            affinity=client.affinity,
            bound=client.bound,
        )
        decision = self.router.connect_failed(endpoint, target, held, now)
        client.act(decision)
        client.sent_at = now  # what the failed connect took is no time of the replica that answers
        self._count_unreachable(endpoint, target, error, now)

    def _count_unreachable(self, endpoint: EndpointState, target: TargetState, error: Exception, now: float) -> None:
        revision = target.revision
        revision.traffic.unreachable += 1
        if revision.comparison is not None:
            revision.comparison.unreachable()
        if target.failures == 1:
            spec = target.spec
            self.log.warning(
                "replica.ejected", replica=spec.replica, address=f"{spec.host}:{spec.port}", error=str(error)
            )
        if target.ejected_until == inf:
            return  # the next table lets it in again
        # A little late rather than early: the core compares with its own `now`.
        self.loop.call_later(max(0.0, target.ejected_until - now) + 0.001, self._retry, endpoint)

    def _tell_ejected(self, target: TargetState, now: float) -> None:
        spec = target.spec
        address = f"{spec.host}:{spec.port}"
        seconds = round(target.ejected_until - now, 3)
        self.log.warning("replica.answers_badly", replica=spec.replica, address=address, aside_s=seconds)

    def _retry(self, endpoint: EndpointState) -> None:
        self.carry_out(self.router.retry(endpoint, self.time()))

    def _sweep(self) -> None:
        self.arrivals.settle()
        now = self.tick = self.time()
        self.rest_until = now + self.config.keepalive_s
        for client in [client for client in self.clients if client.deadline < now]:
            client.expire(now)
        for copy in [copy for copy in self.copies if copy.deadline < now]:
            copy.expire()
        for pool in self._pools.values():
            pool.prune(now, self.config.upstream_idle_s)
        self.carry_out(self.router.sweep(now))
        self.counts.settle()
        self.on_tick()
        self._sweeper = self.loop.call_later(SWEEP_S, self._sweep)


def _label(target: TargetState) -> bytes:
    """Header lines that name the replica. The table's values are names, but a stray byte must not make a header."""
    spec = target.spec
    text = f"X-Moorage-Replica: {spec.replica}\r\nX-Moorage-Revision: {spec.revision}\r\n"
    safe = all(0x20 < ord(c) < 0x7F for c in spec.replica + spec.revision)
    return text.encode("ascii") if safe else b""


def _nobody() -> None:
    """Nobody listens yet."""

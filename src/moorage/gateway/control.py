"""The gateway's link to the control plane: takes routing tables, reports what it sees. Never on a request's path.

Here: `GET /api/v1/routing/table` (long poll), `POST /api/v1/routing/report`, reconnecting, the kept table. Not here:
what a table means (the routing core). Started by `main`; everything goes on serving while the link is down.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import httpx
from pydantic import ValidationError

from moorage.decide.serving.routes import Generation
from moorage.gateway import table as tables
from moorage.gateway.config import GatewayConfig
from moorage.gateway.hub import Hub
from moorage.gateway.reports import Reporter
from moorage.gateway.usage_file import Leftovers
from moorage.wire.routing import Access, GatewayReportAnswer, RoutingTable
from moorage.wire.trust import trusted

POLL_S = 25.0
_POLL_MARGIN_S = 10.0
_REPORT_TIMEOUT_S = 5.0
_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 2.0
"""Low, so that a control plane that comes back has its gateways back before anybody wonders."""
_ACTIVE_REPORT_S = 1.0
_API = "/api/v1/routing"


class Backoff:
    """Doubling waits with jitter.

    Args:
        draw: a number in [0, 1).
    """

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._failures = 0

    def reset(self) -> None:
        """It worked."""
        self._failures = 0

    def next_s(self) -> float:
        """How long to wait after one more failure: between half and all of the step."""
        step = min(_BACKOFF_MAX_S, _BACKOFF_MIN_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return step * (0.5 + 0.5 * self._draw())


class ControlLink:
    """The link of one gateway process.

    Args:
        incarnation: drawn at each start of the process.
        address: `host:port` at which clients reach this gateway.
        slot: which of its processes this is, from 0.
        transport: replaces the network in tests.
    """

    def __init__(
        self,
        hub: Hub,
        config: GatewayConfig,
        *,
        incarnation: str,
        address: str,
        slot: int = 0,
        transport: httpx.AsyncBaseTransport | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._hub = hub
        self._config = config
        self._part = tables.Part(slot, config.processes)
        self._reporter = Reporter(hub, config, incarnation=incarnation, address=address)
        self._left = Leftovers(hub, config, incarnation)
        self._transport = transport
        self._draw = draw
        self._lease_s = 30.0
        self._confirmed: Generation | None = None
        self._access: Access | None = None
        self._newest = 0  # number that the server spoke of last
        self._due = asyncio.Event()
        self._stuck = asyncio.Event()
        self._up = False
        self.taken = asyncio.Event()
        """a table is in use"""

    def load(self) -> None:
        """Start from the kept table, so that known endpoints are served without a control plane."""
        self._hub.leased_until = float("-inf")
        try:
            kept = tables.load(self._config.state_dir)
        except tables.UnreadableTable as error:
            self._hub.log.warning("table.unreadable", error=str(error))
            return
        if kept is not None and self._hub.apply(
            tables.generation_of(kept), tables.routes_of(kept, self._part), tables.bindings_of(kept)
        ):
            self._limit(kept)
            self._confirmed = tables.generation_of(kept)
            self.taken.set()
            self._hub.log.info("table.loaded", incarnation=kept.incarnation, number=kept.number)

    async def run(self) -> None:
        """Poll and report until cancelled."""
        self._hub.on_demand = self._due.set
        self._hub.on_tick = self._tick
        async with self._client() as client, asyncio.TaskGroup() as group:
            group.create_task(self._poll_forever(client))
            group.create_task(self._report_forever(client))

    async def goodbye(self) -> None:
        """Say that nothing runs here any more, and that nothing more is admitted: its shares of limits are free.

        Called once, after `run` was cancelled. Nothing is lost without it but time: shares are free when they run out,
        and usage that is not acknowledged is left to the next process.
        """
        async with self._client() as client:
            try:
                await self._report(client, leaving=True)
            except (httpx.HTTPError, ValidationError) as error:
                self._hub.log.info("control.no_goodbye", error=f"{type(error).__name__}: {error}")
        await self._left.save()

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self._config.server_url,
            headers={"Authorization": f"Bearer {self._config.token}"},
            transport=self._transport,
            trust_env=False,
            verify=trusted() if self._config.server_url.startswith("https:") else False,
        )

    # --- tables --------------------------------------------------------------------------------------------------

    async def _poll_forever(self, client: httpx.AsyncClient) -> None:
        backoff = Backoff(self._draw)
        while True:
            try:
                table = await self._poll(client)
            except (httpx.HTTPError, ValidationError) as error:
                self._lost(error)
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            self._found()
            if table is not None:
                await self._take(table)

    async def _poll(self, client: httpx.AsyncClient) -> RoutingTable | None:
        """One long poll: a table, or None when nothing changed or the poll was found stuck."""
        known = self._hub.router.generation
        params: dict[str, Any] = {"after": known.number if known else 0, "wait_s": POLL_S if self._up else 0}
        if known:
            params["incarnation"] = known.incarnation
            params["access"] = self._access.number if self._access is not None else 0
        self._stuck.clear()
        request = asyncio.ensure_future(
            client.get(f"{_API}/table", params=params, timeout=httpx.Timeout(5.0, read=POLL_S + _POLL_MARGIN_S))
        )
        stuck = asyncio.ensure_future(self._stuck.wait())
        try:
            await asyncio.wait((request, stuck), return_when=asyncio.FIRST_COMPLETED)
            if not request.done():
                return None
            response = request.result()
        finally:
            request.cancel()
            stuck.cancel()
        if response.status_code == httpx.codes.NO_CONTENT:
            return None
        response.raise_for_status()
        return RoutingTable.model_validate_json(response.content)

    async def _take(self, table: RoutingTable) -> None:
        """Apply, keep, then confirm: a confirmed table is what a restart begins with."""
        generation = tables.generation_of(table)
        self._lease_s = table.lease_s
        if not self._hub.apply(generation, tables.routes_of(table, self._part), tables.bindings_of(table)):
            return
        table = self._limit(table)
        try:
            await asyncio.to_thread(tables.save, self._config.state_dir, table)
        except OSError as error:
            self._hub.log.warning("table.not_kept", error=str(error))
            await asyncio.to_thread(tables.forget, self._config.state_dir)
        self._confirmed = generation
        self.taken.set()
        self._reporter.forget()
        self._due.set()

    def _limit(self, table: RoutingTable) -> RoutingTable:
        """Keep to the table's limits; the table with what it left out, since this gateway has it."""
        if table.access is None and self._access is not None:
            table = table.model_copy(update={"access": self._access})
        self._access = table.access
        self._hub.limits.configure(table.access, table.bindings)
        self._hub.keys.configure(table.access)
        return table

    # --- reports -------------------------------------------------------------------------------------------------

    async def _report_forever(self, client: httpx.AsyncClient) -> None:
        backoff = Backoff(self._draw)
        while True:
            self._due.clear()
            try:
                await self._report(client)
            except (httpx.HTTPError, ValidationError):
                # The poll says that the link is down; this only has to come back.
                await self._left.not_taken()
                await asyncio.sleep(backoff.next_s())
                continue
            backoff.reset()
            # Not wait_for, which before Python 3.12 loses a cancellation that meets the event being set.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._lease_s / 3):
                    await self._due.wait()

    async def _report(self, client: httpx.AsyncClient, *, leaving: bool = False) -> None:
        sent_at = self._hub.time()
        report = self._reporter.report(self._confirmed, leaving=leaving)
        response = await client.post(
            f"{_API}/report",
            content=report.model_dump_json(),
            headers={"Content-Type": "application/json"},
            timeout=_REPORT_TIMEOUT_S,
        )
        response.raise_for_status()
        answer = GatewayReportAnswer.model_validate_json(response.content)
        self._reporter.answered()
        self._hub.limits.answered(answer, sent_at)
        self._lease_s = answer.lease_s
        self._hub.leased_until = sent_at + answer.lease_s
        known = self._hub.router.generation
        if known and answer.number > known.number:
            # Once may be the poll's answer on its way; twice the same number is a poll that hangs.
            if answer.number == self._newest:
                self._stuck.set()
            self._newest = answer.number
        await self._left.taken(answer)

    def _tick(self) -> None:
        """Once a second: report while anything runs, waits or changed."""
        self._hub.usage.look_at_day()
        if self._reporter.due() or self._hub.limits.due() or self._hub.usage.due():
            self._due.set()

    # --- link state ----------------------------------------------------------------------------------------------

    def _lost(self, error: Exception) -> None:
        if self._up or self._hub.router.control_lost_at is None:
            self._hub.log.warning("control.lost", error=f"{type(error).__name__}: {error}")
        self._up = False
        self._hub.limits.away = True
        self._hub.router.control(False, self._hub.time())

    def _found(self) -> None:
        if not self._up:
            self._hub.log.info("control.up", server=self._config.server_url)
            self._reporter.forget()
            self._due.set()
        self._up = True
        self._hub.limits.away = False
        self._hub.router.control(True, self._hub.time())

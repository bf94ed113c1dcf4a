"""The agent of one machine, built from its parts, from start to an orderly end."""

import asyncio
from random import Random
from typing import Any

import httpx
import structlog

from moorage.agent.abilities import Abilities
from moorage.agent.config import AgentConfig
from moorage.agent.contact import Contact
from moorage.agent.desk import Desk
from moorage.agent.drives import Fillings
from moorage.agent.engines import Engines
from moorage.agent.inventory import Inventory
from moorage.agent.ledger import Ledger
from moorage.agent.leftovers import Leftovers
from moorage.agent.link import Link
from moorage.agent.means import Means
from moorage.agent.models.cache import ModelCache
from moorage.agent.models.shelf import Shelf
from moorage.agent.outbox import RESERVED, Outbox
from moorage.agent.relays import Relays
from moorage.agent.roster import Roster
from moorage.agent.session import CREDENTIAL, Itself, Session
from moorage.devices.port import Devices
from moorage.domain.errors import Conflict
from moorage.ports import Clock
from moorage.runners.identity import boot_id
from moorage.runners.ports import PortPool
from moorage.sources.hub import Hub
from moorage.wire.trust import trusted

REMOVED = "removed"
"""File in the agent's folder that says why it ended: whoever keeps agents running leaves this one alone."""

POLL_S = 0.05
"""How often an orderly end looks whether everything is gone and told; it runs once in an agent's life."""


class Agent:
    """One machine's agent.

    Args:
        config: what it is told.
        clock: time.
        rng: randomness for cookies, incarnation and jitter; a cryptographic one outside tests.
        log: its own log.
        version: of this program.
        devices: the GPUs of this machine.
    """

    def __init__(
        self,
        config: AgentConfig,
        clock: Clock,
        rng: Random,
        log: structlog.stdlib.BoundLogger,
        version: str,
        *,
        devices: Devices,
    ) -> None:
        self._config = config
        self._clock = clock
        self._rng = rng
        self._log = log
        self._version = version
        self._devices = devices

    async def run(self, stop: asyncio.Event) -> None:
        """Adopt what is here, then serve the control plane until `stop` is set or this machine is removed.

        Raises:
            LedgerUnusable: nothing may be started without a ledger.
            Unauthorized: there is neither token nor credential.
        """
        config = self._config
        config.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        (config.home / REMOVED).unlink(missing_ok=True)
        ledger = Ledger(config.home / "ledger.sqlite")
        remembered = ledger.recall()
        known = frozenset(attempt.cookie for attempt in remembered.attempts)
        leftovers = Leftovers(config.home, known, self._clock, self._log)
        engines = Engines(config, self._clock, leftovers.end_containers)
        tls = config.server_url.startswith("https:")
        async with _client(tls=tls) as http, _client(tls=False, keep=False) as probes:
            boot = boot_id()
            link = Link(config.server_url, http)
            means = self._means(link, engines, ledger, probes, Contact(ledger, self._clock, boot, remembered.notes))
            outbox, inventory = means.outbox, means.inventory
            session: Session | None = None

            def changed() -> None:
                if session is not None:
                    session.look_again()

            roster = Roster(means, self._rng, changed)
            last = max((a.last_seq for a in remembered.attempts), default=0)
            outbox.restore(remembered.outbox, last, int(remembered.notes.get(RESERVED, 0)))
            await outbox.reserve()
            await roster.recall(remembered)
            roster.keep()
            means.models.holders = roster.folders
            await means.models.open()
            inventory.attend(roster.ours)
            await inventory.look()
            itself = Itself(
                incarnation=f"{self._rng.getrandbits(80):020x}",
                boot_id=boot,
                version=self._version,
                credential=remembered.notes.get(CREDENTIAL),
            )
            session = Session(means, link, roster, self._rng, itself, clear=leftovers.end_processes)
            inventory.on_change = session.tell
            looking = asyncio.create_task(inventory.keep())
            try:
                await self._serve(session, roster, outbox, stop)
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
                await inventory.close()
                await roster.close()
                await means.models.close()
                await means.relays.aclose()
                await engines.aclose()
                await outbox.flushed()
                await ledger.close()

    def _means(
        self, link: Link, engines: Engines, ledger: Ledger, probes: httpx.AsyncClient, contact: Contact
    ) -> Means:
        config = self._config
        ports = PortPool(range(config.ports[0], config.ports[1] + 1))
        return Means(
            config,
            self._clock,
            engines,
            ports,
            ledger,
            Outbox(ledger, self._clock),
            contact,
            probes,
            Desk(link, self._clock),
            Relays(config.host, ports, self._log),
            Abilities(config.python),
            Fillings(),
            Inventory(self._devices, (config.home, config.data_location), self._clock, self._log),
            ModelCache(
                Shelf(config.data_location / "models"),
                Hub(config.python),
                self._clock,
                self._log,
                limit_bytes=config.models_bytes,
            ),
            self._log,
        )

    async def _serve(self, session: Session, roster: Roster, outbox: Outbox, stop: asyncio.Event) -> None:
        talking = asyncio.create_task(session.run())
        stopped = asyncio.create_task(stop.wait())
        try:
            ends: set[asyncio.Future[Any]] = {talking, stopped, outbox.broken}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if outbox.broken.done():
                outbox.broken.result()
            if talking.done():
                talking.result()
                await self._leave_for_good(session, roster, outbox)
            elif self._config.stop_workers_on_exit:
                await self._drain(session, roster, outbox, talking)
            else:
                self._log.info("leaving; workers go on and can be adopted", workers=len(roster.alive()))
        finally:
            for task in (talking, stopped):
                task.cancel()
            await asyncio.gather(talking, stopped, return_exceptions=True)

    async def _leave_for_good(self, session: Session, roster: Roster, outbox: Outbox) -> None:
        """This machine was removed: stop all, tell who still listens, and forget having been a member."""
        self._log.warning("this machine was removed from the cluster: stopping all that runs here")
        telling = asyncio.create_task(session.tell_rest())
        try:
            await self._drain(session, roster, outbox, telling)
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        await session.forget_membership()
        (self._config.home / REMOVED).touch(mode=0o600)
        self._log.warning(
            "this machine was removed from the cluster and its credential is dropped: leaving; "
            "started again with a join token it becomes a new member",
            stopped=roster.all_gone,
        )

    async def _drain(self, session: Session, roster: Roster, outbox: Outbox, telling: asyncio.Task[None]) -> None:
        """Stop everything, wait until it is gone and, while somebody listens (`telling` runs), told; bounded."""
        session.draining = True
        self._log.info("stopping all workers")
        deadline = self._clock.monotonic() + self._config.exit_wait_s + roster.longest_grace_s
        roster.drain()
        while self._clock.monotonic() < deadline:
            if roster.all_gone and (outbox.empty or telling.done()):
                return
            await self._clock.sleep(POLL_S)
        self._log.warning("left before everything was gone and told", gone=roster.all_gone, told=outbox.empty)


def _client(*, tls: bool, keep: bool = True) -> httpx.AsyncClient:
    """An HTTP client that looks at no proxy variables; without `keep` each request has a connection of its own.

    Without `tls` (plain HTTP only) the certificates of the system are not loaded, which would take a good part of the
    agent's start.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None if keep else 0)
    return httpx.AsyncClient(trust_env=False, limits=limits, verify=trusted() if tls else False)


def check_single(home_in_use: bool, home: str) -> None:
    """Two agents on one ledger would fight over the same processes.

    Raises:
        Conflict: another agent runs on this home.
    """
    if home_in_use:
        raise Conflict(f"another agent already runs on {home}", remedy="stop it first, or give this one its own home")

"""The agent's conversation with the control plane: join, reconcile, then work, heartbeats and reports side by side.

While the control plane is away everything goes on running and nothing new starts; each loop tries again with a
back-off of its own. When the control plane no longer knows this incarnation the session begins anew with a join.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from moorage.agent.backoff import Backoff
from moorage.agent.capacity import capacity
from moorage.agent.claims import ClaimDesk
from moorage.agent.drives import DriveDesk, location
from moorage.agent.execs import ExecDesk
from moorage.agent.link import Link, LinkDenied, LinkDown, LinkError, LinkRemoved, LinkStale
from moorage.agent.logs import LogDesk
from moorage.agent.means import Means
from moorage.agent.models.desk import CacheDesk
from moorage.agent.roster import Roster
from moorage.agent.stocktaking import StockDesk
from moorage.domain.errors import Unauthorized
from moorage.wire.agent import Assignment, Heartbeat, Join, Reconcile
from moorage.wire.gpus import Gpu

CREDENTIAL = "credential"
BEATS = 3
"""Heartbeats within the shortest silence that means something here, so that one lost means nothing."""
QUIET_S = 5.0
"""An agent is often started a moment before its control plane: that it is not there yet is no news for so long."""


@dataclass(slots=True)
class Standing:
    """What the control plane told at the last join, and the last desired set."""

    machine: str = ""
    heartbeat_s: float = 10.0
    assignments: tuple[Assignment, ...] = ()
    version: int = 0
    gpus: tuple[Gpu, ...] | None = None
    """those that it knows of"""
    asked: set[str] = field(default_factory=set)
    """workers about which a reconcile was already asked in this session"""


@dataclass(frozen=True, slots=True)
class Itself:
    """Who this agent is.

    Args:
        incarnation: drawn at this start of the agent.
        boot_id: of this start of the machine.
        version: of this program.
        credential: kept from an earlier join, or None.
    """

    incarnation: str
    boot_id: str
    version: str
    credential: str | None = None


class Session:
    """Runs until removed or cancelled.

    Args:
        means: what the agent works with.
        link: to the control plane.
        roster: the held workers.
        rng: source of jitter.
        itself: who this agent is now.
        clear: awaited once, after the first join and before anything is said of what is held: ends what the ledger does
            not know. Not earlier: while the control plane is away, or waits for an old lease to end, all runs on.
    """

    def __init__(
        self,
        means: Means,
        link: Link,
        roster: Roster,
        rng: Random,
        itself: Itself,
        *,
        clear: Callable[[], Awaitable[None]],
    ) -> None:
        self._clear: Callable[[], Awaitable[None]] | None = clear
        self._config = means.config
        self._engines = means.engines
        self._desk = means.desk
        self._drives = DriveDesk(link, means.config.data_location, means.log)
        self._abilities = means.abilities
        self._inventory = means.inventory
        self._ledger = means.ledger
        self._outbox = means.outbox
        self._contact = means.contact
        self._clock = means.clock
        self._log = means.log
        self._link = link
        self._roster = roster
        self._rng = rng
        self._itself = itself
        self._credential = itself.credential
        self._standing = Standing()
        self._look_again = asyncio.Event()
        self._sooner = asyncio.Event()
        self._news = False
        self._logs = LogDesk(roster, link, means.clock, rng, means.log)
        self._execs = ExecDesk(roster, means.config.server_url, lambda: link.bearer, means.log)
        self._claims = ClaimDesk(means, link)
        self._stock = StockDesk(means, roster, link)
        self._caches = CacheDesk(means, link)
        self._waiting_since: float | None = None
        self._reached = False
        self.draining = False

    def tell(self) -> None:
        """Something that heartbeats tell has changed: the next one goes out at once."""
        self._news = True
        self._sooner.set()

    def look_again(self) -> None:
        """Something held has changed: apply the last desired set again."""
        self._look_again.set()

    async def run(self) -> None:
        """Join, reconcile, work; again whenever asked to. Returns when this machine was removed."""
        backoff = Backoff(self._rng)
        while True:
            try:
                await self._join()
                await self._reconcile()
                backoff.reset()
                if await self._converse():
                    return
            except LinkRemoved:
                return
            except LinkError as cause:
                wait_s = backoff.next_s()
                self._tell_away(cause, wait_s)
                await self._clock.sleep(wait_s)

    async def tell_rest(self) -> None:
        """After a removal: report for as long as somebody listens. Returns when nobody does; to be cancelled."""
        try:
            await self._send()
        except LinkError as cause:
            self._log.info("the control plane takes no more reports", why=str(cause))

    async def forget_membership(self) -> None:
        """Drop the credential, so that a later start joins anew, with a token."""
        await self._ledger.drop_notes(CREDENTIAL, "machine")

    def _tell_away(self, cause: LinkError, wait_s: float) -> None:
        """One line while it may be about to start, then a warning at each try."""
        now = self._clock.monotonic()
        first = self._waiting_since is None
        since = self._waiting_since = now if self._waiting_since is None else self._waiting_since
        if self._reached or not isinstance(cause, LinkDown) or now - since >= QUIET_S:
            self._log.warning("control plane not available", why=str(cause), again_in_s=round(wait_s, 2))
        elif first:
            self._log.info("control plane not there yet: trying until it is", why=str(cause))

    # Join and reconcile

    async def _join(self) -> None:
        tries = [t for t in (self._credential, self._config.token) if t]
        if not tries:
            raise Unauthorized(
                "no join token and no credential from an earlier join", remedy="start the agent with --token"
            )
        for index, bearer in enumerate(tries):
            self._link.bearer = bearer
            try:
                message = await self._join_message()
                joined = await self._link.join(message)
            except LinkDenied:
                if index + 1 < len(tries):
                    continue
                raise
            break
        self._reached = True
        self._desk.speaks_for(joined.machine, self._itself.incarnation)
        self._standing = Standing(joined.machine, joined.heartbeat_s, gpus=message.capacity.gpus)
        if joined.credential is not None:
            self._credential = self._link.bearer = joined.credential
            await self._ledger.note({CREDENTIAL: joined.credential, "machine": joined.machine})
        self._log.info("joined", machine=joined.machine, heartbeat_s=joined.heartbeat_s)

    async def _join_message(self) -> Join:
        config = self._config
        return Join(
            name=config.name,
            incarnation=self._itself.incarnation,
            boot_id=self._itself.boot_id,
            host=config.host,
            capacity=capacity(self._inventory.gpus),
            reserve=dict(config.reserve),
            labels=dict(config.labels),
            accepts=config.accepts,
            engines=await self._engines.answering(),
            capabilities=await self._abilities.reported(),
            version=self._itself.version,
            data=await asyncio.to_thread(location, config.data_location),
        )

    async def _reconcile(self) -> None:
        if self._clear is not None:
            await self._clear()
            self._clear = None
        held = self._roster.held()
        message = Reconcile(
            machine=self._standing.machine,
            incarnation=self._itself.incarnation,
            boot_id=self._itself.boot_id,
            held=held,
        )
        sent_at = self._clock.monotonic()
        told = await self._link.reconcile(message)
        self._contact.answered(sent_at)
        self._outbox.renumber(told.next_seq)
        self._roster.stop_unwanted(told.stop)
        self._log.info("reconciled", held=len(held), keep=len(told.keep), stop=len(told.stop))

    # The loops

    async def _converse(self) -> bool:
        """Heartbeats, reports and work until one says to begin anew. True: this machine was removed."""
        loops = [asyncio.create_task(loop()) for loop in (self._work, self._beat, self._send, self._settle)]
        try:
            done, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
            results = [task.result() for task in done]
            return any(results)
        finally:
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    async def _work(self) -> bool:
        standing, backoff = self._standing, Backoff(self._rng)
        while True:
            try:
                work = await self._link.work(standing.machine, self._itself.incarnation, standing.version)
            except LinkDown as cause:
                await self._wait(backoff, cause, "work")
                continue
            backoff.reset()
            if work is None:
                continue
            if work.removed:
                return True
            standing.version, standing.assignments = work.version, work.assignments
            self._logs.take(work.logs)
            self._execs.take(work.execs)
            self._stock.take(work.inventories)
            self._claims.take(work.claims)
            self._caches.take(work.caches)
            self._desk.wake()
            self._drives.take(work.drives)
            await self._apply()

    async def _settle(self) -> bool:
        """Apply the last desired set again when something held changed (a superseded attempt is gone)."""
        while True:
            await self._look_again.wait()
            self._look_again.clear()
            if self._standing.version:
                await self._apply()

    async def _apply(self) -> None:
        if self.draining:
            return
        actions = self._roster.apply(self._standing.assignments)
        if actions.start:
            self._sooner.set()
        self._standing.asked &= set(actions.unclaimed)  # what was wanted again meanwhile is asked about anew
        unasked = [w for w in actions.unclaimed if w not in self._standing.asked]
        if unasked:
            # One empty answer must not end everything on this machine: what the desired set does not name is asked
            # about once more, and only a clear "stop" ends it.
            self._standing.asked.update(unasked)
            self._log.warning("held, and not in the desired set: asking", workers=unasked)
            await self._reconcile()

    async def _beat(self) -> bool:
        standing = self._standing
        backoff = Backoff(self._rng)
        while True:
            self._news, gpus = False, self._inventory.gpus
            beat = Heartbeat(
                machine=standing.machine,
                incarnation=self._itself.incarnation,
                workers=self._roster.alive(),
                ages=self._roster.beats(),
                pressure=self._inventory.pressure,
                gpus=gpus if gpus != standing.gpus else None,
            )
            sent_at = self._clock.monotonic()
            try:
                told = await self._link.heartbeat(beat)
            except LinkDown as cause:
                await self._wait(backoff, cause, "heartbeat")
                continue
            backoff.reset()
            if told.removed:
                return True
            if told.rejoin:
                raise LinkStale("the control plane asks to join again")
            standing.gpus = gpus
            self._contact.answered(sent_at)
            if self._roster.counts_contact:
                await self._contact.save()
            await self._pause(sent_at)

    async def _pause(self, sent_at: float) -> None:
        """Until the next heartbeat is due; something that needs one earlier may be taken up meanwhile."""
        while True:
            interval_s = min(self._standing.heartbeat_s, self._roster.shortest_silence_s / BEATS)
            left_s = sent_at + interval_s - self._clock.monotonic()
            if left_s <= 0 or self._news:
                return
            self._sooner.clear()
            pause = asyncio.ensure_future(self._clock.sleep(left_s))
            sooner = asyncio.ensure_future(self._sooner.wait())
            try:
                await asyncio.wait({pause, sooner}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
                sooner.cancel()

    async def _send(self) -> bool:
        backoff = Backoff(self._rng)
        while True:
            await self._outbox.news.wait()
            report = self._outbox.batch(self._standing.machine, self._itself.incarnation)
            if report is None:
                continue
            before = self._outbox.acknowledged
            try:
                told = await self._link.report(report)
                self._outbox.confirm(told.seq)
                if self._outbox.acknowledged == before:
                    raise LinkDown(f"reports from {report.reports[0].seq} on were not taken (it holds {told.seq})")
            except LinkDown as cause:
                await self._wait(backoff, cause, "report")
                continue
            backoff.reset()
            self._look_again.set()

    async def _wait(self, backoff: Backoff, cause: LinkDown, what: str) -> None:
        wait_s = backoff.next_s()
        self._log.info("control plane away", call=what, why=str(cause), again_in_s=round(wait_s, 2))
        await self._clock.sleep(wait_s)

"""One worker's way to its start: ports, directories, the ledger, the model, the image, the barrier of its gang.

Each step that may stand still is under the limit without progress (the pull has one of its own, and who waits at the
barrier waits for others). A stop ends all of it at any point, since nothing is started here. Made by `held`.
"""

import asyncio
from dataclasses import dataclass, replace

from moorage.agent import setting_up
from moorage.agent.account import Account
from moorage.agent.barrier import Barrier
from moorage.agent.given import NOTHING, Given
from moorage.agent.limits import ProgressLimit
from moorage.agent.means import Means
from moorage.agent.models.cache import Want
from moorage.agent.models.news import FetchNews
from moorage.agent.providing import Providing
from moorage.domain.sources import HubSource, hub_source
from moorage.runners.port import Host, LaunchIntent, PullProgress

HUB_TOKEN = "HF_TOKEN"
"""Variable (a secret's, in any sound spec) whose value is the token with which its model is fetched."""


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that a start needs.

    Args:
        host: who executes it.
        intent: what to run, complete.
    """

    host: Host
    intent: LaunchIntent


class Preparation:
    """The preparation of one attempt.

    Args:
        account: of the worker.
        means: what workers share.
        barrier: of its gang.
    """

    def __init__(self, account: Account, means: Means, barrier: Barrier) -> None:
        self._account = account
        self._means = means
        self._barrier = barrier
        self._limit = ProgressLimit(account.launch.prepare_timeout_s, means.clock)
        self._given = NOTHING
        self._task = asyncio.ensure_future(self._limit.within(self._prepare()))

    async def done(self) -> Start | None:
        """Wait for it. None: it was cancelled.

        Raises:
            RunnerError: what is needed cannot be had, or nothing moved for too long (`NoProgress`).
            OSError: a directory cannot be made.
        """
        try:
            await asyncio.wait({self._task})
        finally:
            self._task.cancel()
        return None if self._task.cancelled() else self._task.result()

    def cancel(self) -> None:
        """End it."""
        self._task.cancel()

    async def _prepare(self) -> Start:
        account, means, launch = self._account, self._means, self._account.launch
        self._limit.at(f"looking for {launch.runner}")
        host = await means.engines.get(launch.runner)
        self._lease_ports()
        self._given = await Providing(account, means, self._limit).done()
        if launch.source is not None and (source := hub_source(launch.source)) is not None:
            self._given = await self._with_model(source)
        self._limit.at("making its directories")
        intent = setting_up.intent(
            account.assignment, account.attempt, means.config, self._given, has_gpus=bool(means.inventory.gpus)
        )
        self._limit.at("writing the ledger")
        if launch.on_disconnect == "stop":
            await means.contact.save()
        if intent.container is None and not launch.barrier:
            account.set(started=means.clock.monotonic())
            await means.ledger.intend(account.attempt)
            return Start(host, intent)
        await means.ledger.intend(account.attempt)
        if intent.container is not None:
            await self._fetch(host, intent)
        if launch.barrier:
            intent = await self._pass_barrier()
        account.set(started=means.clock.monotonic())
        await account.save()
        return Start(host, intent)

    async def _with_model(self, source: HubSource) -> Given:
        """Have its model here; how long nothing may come is the limit of pulls."""
        account, launch = self._account, self._account.launch
        self._limit.off()
        token = self._given.secrets.get(HUB_TOKEN) or launch.env.get(HUB_TOKEN)
        want = Want(account.assignment.namespace, token, launch.pull_stall_s, account.folder)
        entry = await self._means.models.obtain(source, want, FetchNews(self._means.clock, account.fetching).hear)
        account.fetched(entry)
        return replace(self._given, model=entry.path)

    def _lease_ports(self) -> None:
        account, pool, worker = self._account, self._means.ports, self._account.attempt.worker
        if account.launch.port:
            account.set(port=pool.lease(worker))
        if account.launch.leads:
            account.set(rendezvous=pool.lease(f"{worker}/rendezvous"))

    async def _fetch(self, host: Host, intent: LaunchIntent) -> None:
        """Have the image; from the moment something is asked of the registry the pull's own limit holds."""
        self._limit.at("looking for its image")
        news = setting_up.PullNews(self._means.clock, self._account.pulling)

        def hear(progress: PullProgress) -> None:
            self._limit.off()
            news.hear(progress)

        await host.prepare(intent, hear)

    async def _pass_barrier(self) -> LaunchIntent:
        """Wait for the others; where they are is known afterwards, so the environment is made again."""
        self._limit.off()
        self._account.reached_barrier()
        self._account.assigned(await self._barrier.passed())
        self._limit.at("starting with its gang")
        account = self._account
        means = self._means
        has_gpus = bool(means.inventory.gpus)
        return setting_up.intent(account.assignment, account.attempt, means.config, self._given, has_gpus=has_gpus)

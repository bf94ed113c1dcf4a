"""Namespaces and their quotas: what is set about them, and what they use, summed over what is there.

Nothing is counted up: the use shown is summed when it is asked for, over holdings, over what the scheduler keeps for
restarts and preemption plans, and over live runs and deployments. Called by the API's routes.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from moorage.control.carrying import Answer, Carrier
from moorage.control.keeping import FleetKeeper
from moorage.control.scheduling import load_book
from moorage.control.views import JsonObject, head
from moorage.decide import namespaces
from moorage.decide.decision import Outcome
from moorage.decide.scheduling.usage import used_now
from moorage.domain import quotas
from moorage.domain.errors import Conflict, NotFound
from moorage.domain.ids import namespace_uid
from moorage.domain.nouns import Deployment, Endpoint, Namespace, Run
from moorage.domain.quotas import RATES, Amounts
from moorage.domain.states import TERMINAL_RUN, DeploymentStatus, RunState
from moorage.ports import Clock, Store
from moorage.wire.namespace import Limits, NamespaceBody, shown

DEFAULT = "default"
OPEN_RUN = tuple(state for state in RunState if state not in TERMINAL_RUN)
NO_REPLICAS = frozenset({DeploymentStatus.STOPPED, DeploymentStatus.FAILED})
BESIDE = ("drive/", "secret/")
"""Where the store keeps what lives in a namespace and is no row: `PREFIX NAMESPACE/NAME`."""


class Namespaces:
    """What there is, and the orders about it.

    Args:
        store, clock: outside.
        keeper: of the scheduler's book, if this process may lead.
        passed: what passed of a namespace's requests and tokens in the last minute, by resource.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        keeper: FleetKeeper | None = None,
        passed: Callable[[str], Amounts] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._keeper = keeper
        self._passed = passed
        self._carry = Carrier(store)

    async def listed(self) -> list[JsonObject]:
        """`default`, those that were made, and those in which something lives."""
        rows = {n.name: n for n in await self._store.find(Namespace)}
        names = {DEFAULT, *(name for name, row in rows.items() if row.made or row.limits), *await self._lived_in()}
        return [namespace_object(rows.get(name) or namespaces.unset(name)) for name in sorted(names)]

    async def get(self, name: str) -> JsonObject:
        """One of them.

        Raises:
            NotFound: nobody made it and nothing lives in it.
        """
        row = await self._row(name)
        if (row is None or not (row.made or row.limits)) and name != DEFAULT and name not in await self._lived_in():
            raise _missing(name)
        return namespace_object(row or namespaces.unset(name))

    async def put(self, name: str, body: NamespaceBody, *, actor: str, key: str | None) -> JsonObject:
        """Make it, or change it."""

        async def decide() -> Outcome:
            row = await self._row(name)
            return namespaces.set_namespace(row, name, body.machines, body.description, actor=actor, keys=body.keys)

        await self._carried(name, key, {"namespace": name, "set": body.model_dump()}, decide)
        return await self.get(name)

    async def remove(self, name: str, *, actor: str, key: str | None) -> JsonObject:
        """Forget what was set about it, but for its quota.

        Raises:
            NotFound: nobody made it.
            Conflict: something lives in it, which could then use every machine.
        """

        async def decide() -> Outcome:
            row = await self._row(name)
            if row is None or not row.made:
                raise _missing(name)
            if name in await self._lived_in():
                raise Conflict(
                    f"something lives in the namespace {name}, and could then use every machine",
                    code="namespace_in_use",
                    remedy=f"delete what is in it first (`moor ls -n {name}`), or lift its restriction: "
                    f"moor namespaces set {name}",
                    target=f"Namespace {name}",
                )
            return namespaces.remove_namespace(row, actor)

        await self._carried(name, key, {"namespace": name, "remove": True}, decide)
        return {"kind": "Namespace", "name": name, "namespace": name, "deleted": True}

    # Quotas

    async def quotas(self) -> list[JsonObject]:
        """What every namespace may hold and does."""
        rows = {n.name: n for n in await self._store.find(Namespace)}
        used = await self._used()
        names = sorted({DEFAULT, *used, *(name for name, row in rows.items() if row.made or row.limits)})
        return [self._quota(rows.get(name) or namespaces.unset(name), used.get(name, {})) for name in names]

    async def quota(self, name: str) -> JsonObject:
        """What one may hold and does; without a quota its limits are empty."""
        row = await self._row(name)
        return self._quota(row or namespaces.unset(name), (await self._used(name)).get(name, {}))

    def _quota(self, row: Namespace, used: Amounts) -> JsonObject:
        limited = self._passed is not None and any(resource in row.limits for resource in RATES)
        return quota_object(row, {**used, **self._passed(row.name)} if limited and self._passed else used)

    async def set_quota(self, name: str, limits: Limits, *, actor: str, key: str | None) -> JsonObject:
        """Set all of it. What is held already stays, even above it."""
        amounts = limits.amounts()

        async def decide() -> Outcome:
            return namespaces.set_quota(await self._row(name), name, amounts, actor)

        await self._carried(name, key, {"quota": name, "set": amounts}, decide)
        return await self.quota(name)

    async def remove_quota(self, name: str, *, actor: str, key: str | None) -> JsonObject:
        """Unlimited again.

        Raises:
            NotFound: it has none.
        """

        async def decide() -> Outcome:
            row = await self._row(name)
            if row is None or not row.limits:
                raise NotFound(
                    f"the namespace {name} has no quota", remedy="see `moor quota ls`", target=f"Quota {name}"
                )
            return namespaces.remove_quota(row, actor)

        await self._carried(name, key, {"quota": name, "remove": True}, decide)
        return {"kind": "Quota", "name": name, "namespace": name, "deleted": True}

    async def _carried(
        self, name: str, key: str | None, intent: Mapping[str, object], decide: Callable[[], Awaitable[Outcome]]
    ) -> Answer:
        return await self._carry(name, key, intent, decide)

    async def _row(self, name: str) -> Namespace | None:
        return await self._store.get(Namespace, namespace_uid(name))

    async def _lived_in(self) -> set[str]:
        """Namespaces in which something lives."""
        rows = [*await self._store.find(Deployment), *await self._store.find(Endpoint), *await self._open_runs(None)]
        places = [place for prefix in BESIDE for place in await self._store.secrets(prefix)]
        return {row.namespace for row in rows} | {p.split("/")[1] for p in places}

    async def _open_runs(self, name: str | None) -> list[Run]:
        where: dict[str, Any] = {} if name is None else {"namespace": name}
        return await self._store.find(Run, deployment=None, state=OPEN_RUN, **where)

    async def _used(self, name: str | None = None) -> dict[str, dict[str, int]]:
        """Sums by namespace: of all, or of one."""
        book = await load_book(self._store, self._clock, self._keeper)
        found = used_now(book, await self._store.holdings(), self._clock.now())
        where: dict[str, Any] = {} if name is None else {"namespace": name}
        _count(found, ((run.namespace, {quotas.RUNS: 1}) for run in await self._open_runs(name)))
        deployments = await self._store.find(Deployment, **where)
        _count(found, ((d.namespace, {quotas.DEPLOYMENTS: 1, quotas.REPLICAS: _replicas(d)}) for d in deployments))
        return found


def _count(sums: dict[str, dict[str, int]], amounts: Iterable[tuple[str, quotas.Amounts]]) -> None:
    for namespace, more in amounts:
        quotas.add(sums.setdefault(namespace, {}), more)


def _replicas(deployment: Deployment) -> int:
    if deployment.status in NO_REPLICAS:
        return 0
    return int((deployment.spec.get("replicas") or {}).get("max") or 1)


def namespace_object(row: Namespace) -> JsonObject:
    """A Namespace."""
    return {
        **head(row),
        "made": row.made,
        "machines": dict(row.machines),
        "description": row.description,
        "keys": row.keys,
    }


def quota_object(row: Namespace, used: quotas.Amounts) -> JsonObject:
    """A Quota: its limits, and the use of everything that has one or is used."""
    nothing = dict.fromkeys((quotas.GPUS, quotas.CPU, quotas.MEMORY, *quotas.COUNTED), 0)
    return {
        **head(row),
        "kind": "Quota",
        "limits": shown(row.limits),
        "used": shown({**nothing, **dict.fromkeys(row.limits, 0), **{r: n for r, n in used.items() if n}}),
    }


def _missing(name: str) -> NotFound:
    return NotFound(
        f"there is no namespace {name}: nobody made it and nothing lives in it",
        remedy="`moor namespaces ls` shows those there are",
        target=f"Namespace {name}",
    )

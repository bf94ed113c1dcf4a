"""The questions people ask: rows loaded in as few reads as there are nouns, and shown as API objects.

Everything a GET answers comes from here; nothing here writes. Lists load related rows with one `find` a noun, never
one an item. Called by the API's routes only.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from moorage.control.accounts import GpuAccounts
from moorage.control.explained import explained
from moorage.control.gateways import Aside
from moorage.control.keeping import FleetKeeper
from moorage.control.leader import LEASE
from moorage.control.paging import Page, page
from moorage.control.views import HELD, JsonObject, change_object, operation_object, tombstone_object
from moorage.control.views_gpus import Sees, everything
from moorage.control.views_rollout import Scene, decision_object, rollout_object
from moorage.control.views_running import machine_object, run_object, worker_object
from moorage.control.views_serving import Surroundings, deployment_object, replica_object, revision_object
from moorage.decide.endpoints import naming
from moorage.decide.scheduling.order import ordered
from moorage.decide.scheduling.snapshot import SchedulingSnapshot
from moorage.decide.serving.snapshot import Demand
from moorage.domain.errors import NotFound
from moorage.domain.nouns import Deployment, Endpoint, Key, Machine, Noun, Operation, Replica, Revision, Run, Worker
from moorage.domain.states import RunState, WorkerState
from moorage.ports import Clock, Store

N = TypeVar("N", bound=Noun)

HISTORY_MAX = 1000
"""Rows of history in one answer."""

_SEEN_WITH: Mapping[type[Noun], str] = {
    Operation: "see what there is with `moor operations list`",
    Machine: "see what there is with `moor ls machines`",
    Endpoint: "see what there is with `moor endpoint ls --all`",
    Key: "see what there is with `moor keys ls`",
}
"""How to see what there is, of the kinds that a plain `moor ls` does not list."""


class Reader:
    """Reads for people.

    Args:
        store: where the rows are.
        clock: phases are judged now.
        gateway_url: where clients reach the gateway, without a slash at its end.
        keeper: of the scheduler's book, if this process may lead: a page then reads no queue of its own.
        demand: traffic of a deployment, as gateways report it to this control plane.
        aside: its replicas to which gateways send nothing now.
        reached: where the gateway says that clients reach it; None, or where it does not say: at `gateway_url`.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        gateway_url: str,
        keeper: FleetKeeper | None = None,
        demand: Callable[[Deployment], Demand] | None = None,
        *,
        aside: Callable[[Deployment], Sequence[Aside]] | None = None,
        reached: Callable[[], str | None] | None = None,
    ) -> None:
        self._aside = aside
        self._reached = reached
        self._demand = demand
        self._keeper = keeper
        self._store = store
        self._clock = clock
        self._gateway_url = gateway_url
        self.accounts = GpuAccounts(store, clock, keeper)

    @property
    def gateway_url(self) -> str:
        """Where clients reach the gateway now, without a slash at its end."""
        return (self._reached and self._reached()) or self._gateway_url

    async def find(self, kind: type[N], namespace: str | None, name: str) -> N:
        """The object of that name, the newest where several had it, or that uid.

        Raises:
            NotFound: there is none, or it belongs to another namespace.
        """
        where: dict[str, Any] = {} if namespace is None else {"namespace": namespace}
        named = await self._store.find(kind, name=name, **where)
        if named:
            return max(named, key=lambda r: (r.created_at, r.uid))
        row = await self._store.get(kind, name)
        if row is None or (namespace is not None and row.namespace != namespace):
            raise missing(kind, namespace, name)
        return row

    async def deployments(self, namespace: str, wanted: Page) -> JsonObject:
        """One page of a namespace's deployments, by name within the page (pages go on by uid, to stay right)."""
        rows, following = await page(self._store, Deployment, wanted, namespace=namespace)
        rows.sort(key=lambda r: (r.name, r.uid))
        return {"items": await self.deployment_objects(rows), "next": following}

    async def deployment(self, namespace: str, name: str) -> JsonObject:
        """One deployment."""
        row = await self.find(Deployment, namespace, name)
        return (await self.deployment_objects([row]))[0]

    async def replicas(self, namespace: str, name: str) -> list[JsonObject]:
        """Every replica of a deployment, ended ones included, oldest first."""
        row = await self.find(Deployment, namespace, name)
        rows = await self._store.find(Replica, deployment=row.uid)
        return await self._replica_objects(sorted(rows, key=_age))

    async def replica(self, namespace: str, name: str) -> JsonObject:
        """One replica."""
        return (await self._replica_objects([await self.find(Replica, namespace, name)]))[0]

    async def revisions(self, namespace: str, name: str) -> list[JsonObject]:
        """Every revision of a deployment, oldest first."""
        row = await self.find(Deployment, namespace, name)
        rows = await self._store.find(Revision, deployment=row.uid)
        return [revision_object(r) for r in sorted(rows, key=lambda r: r.number)]

    async def decisions(self, namespace: str, name: str) -> list[JsonObject]:
        """Every release decision of a deployment, with the revision it was about, oldest revision first."""
        row = await self.find(Deployment, namespace, name)
        revisions = sorted(await self._store.find(Revision, deployment=row.uid), key=lambda r: r.number)
        return [decision_object(d, r) for r in revisions for d in r.decisions]

    async def rollout(self, namespace: str, name: str) -> JsonObject:
        """What moves in a deployment, or that nothing does."""
        row = await self.find(Deployment, namespace, name)
        revisions = await self._store.find(Revision, deployment=row.uid)
        return rollout_object(self._scene(row, revisions, await self._store.find(Replica, deployment=row.uid)))

    async def explained(self, namespace: str, name: str, wanted: str | None) -> JsonObject:
        """A stored release decision worked out again from its own inputs.

        Args:
            wanted: the decision's id, or a revision's number, name or uid (its last one); None: the last of all.

        Raises:
            NotFound: there is no such decision.
        """
        row = await self.find(Deployment, namespace, name)
        revisions = await self._store.find(Revision, deployment=row.uid)
        return explained(row, revisions, wanted)

    def _scene(self, row: Deployment, revisions: Sequence[Revision], replicas: Sequence[Replica]) -> Scene:
        demand = self._demand(row) if self._demand is not None else None
        return Scene(row, revisions, replicas, demand, self._clock.now())

    async def runs(self, namespace: str, wanted: Page) -> JsonObject:
        """One page of a namespace's runs, oldest first within the page (pages go on by uid)."""
        rows, following = await page(self._store, Run, wanted, namespace=namespace)
        rows.sort(key=_age)
        return {"items": await self._run_objects(rows), "next": following}

    async def run(self, namespace: str, name: str) -> JsonObject:
        """One run."""
        return (await self._run_objects([await self.find(Run, namespace, name)]))[0]

    async def workers(self, namespace: str, run: str) -> list[JsonObject]:
        """The workers of a run, by group and rank."""
        row = await self.find(Run, namespace, run)
        rows = sorted(await self._store.find(Worker, run=row.uid), key=lambda w: (w.group, w.rank, *_age(w)))
        machines = await self._machines(w.machine for w in rows)
        return [worker_object(w, machines) for w in rows]

    async def worker(self, namespace: str, name: str) -> JsonObject:
        """One worker."""
        row = await self.find(Worker, namespace, name)
        return worker_object(row, await self._machines([row.machine]))

    async def machines(self, wanted: Page, sees: Sees = everything) -> JsonObject:
        """One page of machines, by name within the page (pages go on by uid).

        Args:
            wanted: the page.
            sees: what of the work on them who asks may know of.
        """
        rows, following = await page(self._store, Machine, wanted)
        rows.sort(key=lambda r: (r.name, r.uid))
        held = _by(await self._store.holdings(), lambda h: str(h["machine"]))
        gpus = await self.accounts.objects(rows, held, sees)
        return {"items": [machine_object(r, held[r.uid], gpus[r.uid]) for r in rows], "next": following}

    async def machine(self, name: str, sees: Sees = everything) -> JsonObject:
        """One machine; as `machines`."""
        row = await self.find(Machine, None, name)
        held = await self._store.holdings(row.uid)
        gpus = await self.accounts.objects([row], {row.uid: held}, sees)
        return machine_object(row, held, gpus[row.uid])

    async def operations(self, wanted: Page, target: str | None = None, state: str | None = None) -> JsonObject:
        """One page of operations, over ones included, oldest first within the page (pages go on by uid)."""
        where = {k: v for k, v in (("target", target), ("state", state)) if v is not None}
        rows, following = await page(self._store, Operation, wanted, **where)
        rows.sort(key=_age)
        return {"items": await self._operation_objects(rows), "next": following}

    async def operation(self, uid: str) -> JsonObject:
        """One operation."""
        row = await self._store.get(Operation, uid)
        if row is None:
            raise missing(Operation, None, uid)
        return (await self._operation_objects([row]))[0]

    async def tombstones(self, kind: type[Noun], namespace: str, name: str | None = None) -> list[JsonObject]:
        """Deleted objects, oldest first. `name` may be a uid."""
        rows = await self._store.tombstones(kind, namespace, name)
        if name is not None and not rows:
            rows = [r for r in await self._store.tombstones(kind, namespace) if r["uid"] == name]
        return [tombstone_object(r) for r in sorted(rows, key=lambda r: (r["at"], r["uid"]))]

    async def tombstone(self, kind: type[Noun], namespace: str, name: str) -> JsonObject:
        """What is left of the object last deleted under that name or uid.

        Raises:
            NotFound: none was.
        """
        gone = await self.tombstones(kind, namespace, name)
        if not gone:
            raise missing(kind, namespace, name)
        return gone[-1]

    async def history(
        self,
        kind: type[Noun],
        namespace: str | None,
        name: str,
        *,
        after: str | None = None,
        limit: int = HISTORY_MAX,
    ) -> JsonObject:
        """An object's history with that of everything under it, oldest first; deleted objects keep theirs."""
        uid = await self._uid_ever(kind, namespace, name)
        root = uid if await self._is_root(kind, uid) else None
        rows = await self._store.history(uid=None if root else uid, root=root, after=after, limit=limit)
        return changes(rows, limit, after)

    async def events(
        self, *, namespace: str | None, root: str | None, after: str | None, limit: int, newest: bool = False
    ) -> JsonObject:
        """A page of everything that happened, oldest first; with `newest` the last `limit` rows."""
        rows = await self._store.history(root=root, namespace=namespace, after=after, limit=limit, newest_first=newest)
        return changes(sorted_back(rows) if newest else rows, limit, after, whole=newest)

    async def uid(self, kind: type[Noun], namespace: str | None, name: str) -> str:
        """The uid that a name means now, or meant when it was last deleted."""
        return await self._uid_ever(kind, namespace, name)

    async def _is_root(self, kind: type[Noun], uid: str) -> bool:
        """Whether history is kept under it: a deployment, or a run that stands for itself."""
        if kind is not Run:
            return kind is Deployment
        row = await self._store.get(Run, uid)
        return row is None or row.deployment is None

    async def _uid_ever(self, kind: type[Noun], namespace: str | None, name: str) -> str:
        try:
            return (await self.find(kind, namespace, name)).uid
        except NotFound:
            gone = await self.tombstones(kind, namespace or "default", name)
            if not gone:
                raise
            return str(gone[-1]["id"])

    async def deployment_objects(self, rows: Sequence[Deployment]) -> list[JsonObject]:
        """Deployments as objects, in the order of their rows."""
        if not rows:
            return []
        uids = [r.uid for r in rows]
        revisions = _by(await self._store.find(Revision, deployment=uids), lambda r: r.deployment)
        replicas = _by(await self._store.find(Replica, deployment=uids), lambda r: r.deployment)
        operations = _by(await self._store.find(Operation, target=uids), lambda o: o.target)
        made = await self._store.find(Endpoint, namespace=sorted({r.namespace for r in rows}))
        now, demand = self._clock.now(), self._demand

        def around(row: Deployment) -> Surroundings:
            traffic = demand(row) if demand is not None else None
            bound = naming(row.name, (e for e in made if e.namespace == row.namespace))
            return Surroundings(revisions[row.uid], replicas[row.uid], operations[row.uid], traffic, bound)

        return [deployment_object(r, around(r), self.gateway_url, now) for r in rows]

    async def _run_objects(self, rows: Sequence[Run]) -> list[JsonObject]:
        if not rows:
            return []
        workers = _by(await self._store.find(Worker, run=[r.uid for r in rows]), lambda w: w.run)
        queue = await self._queue() if any(r.state is RunState.PENDING for r in rows) else {}
        return [run_object(r, workers[r.uid], queue.get(r.uid)) for r in rows]

    async def _queue(self) -> dict[str, int]:
        """Place of every run in the queue, from 1, in the order in which the scheduler looks at them."""
        book = await self._keeper.kept() if self._keeper is not None else None
        if book is not None:
            return {uid: place for place, uid in enumerate(dict.fromkeys(e.run.uid for e in book.queue), start=1)}
        waiting = [w for w in await self._store.find(Worker, state=WorkerState.PENDING) if w.machine is None]
        runs = {r.uid: r for r in await self._store.find(Run, uid={w.run for w in waiting})} if waiting else {}
        snapshot = SchedulingSnapshot(self._clock.now(), tuple(waiting), runs, ())
        order = dict.fromkeys(w.run for w in ordered(waiting, snapshot))
        return {uid: place for place, uid in enumerate(order, start=1)}

    async def _replica_objects(self, rows: Sequence[Replica]) -> list[JsonObject]:
        if not rows:
            return []
        revisions = {r.uid: r for r in await self._store.find(Revision, uid={r.revision for r in rows})}
        workers = _by(await self._store.find(Worker, run=[r.run for r in rows]), lambda w: w.run)
        placed = [m for group in workers.values() for m in (w.machine for w in group)]
        machines = await self._machines([*placed, *(r.machine for r in rows)])
        owners = await self._store.find(Deployment, uid={r.deployment for r in rows})
        demands = {d.uid: self._demand(d) for d in owners} if self._demand is not None else {}
        asides = {d.uid: self._aside(d) for d in owners} if self._aside is not None else {}
        return [
            replica_object(
                r,
                revisions.get(r.revision),
                workers[r.run],
                machines,
                demand=demands.get(r.deployment),
                aside=asides.get(r.deployment, ()),
            )
            for r in rows
        ]

    async def _machines(self, uids: Iterable[str | None]) -> dict[str, Machine]:
        wanted = {u for u in uids if u}
        return {m.uid: m for m in await self._store.find(Machine, uid=wanted)} if wanted else {}

    async def _operation_objects(self, rows: Sequence[Operation]) -> list[JsonObject]:
        names = await self._target_names(rows)
        lease = await self._store.lease(LEASE) if any(r.state in HELD for r in rows) else None
        return [operation_object(r, names.get(r.target), lease) for r in rows]

    async def _target_names(self, rows: Sequence[Operation]) -> Mapping[str, str]:
        uids = {r.target for r in rows if r.target_kind == Deployment.kind}
        return {d.uid: d.name for d in await self._store.find(Deployment, uid=uids)} if uids else {}


def changes(rows: Sequence[Any], limit: int, after: str | None, *, whole: bool = False) -> JsonObject:
    """A page of changes. `next` is null on the last page; `cursor` is where to go on when more has happened."""
    cursor = rows[-1].cursor if rows else after
    more = len(rows) >= limit and not whole
    return {"items": [change_object(r) for r in rows], "next": cursor if more else None, "cursor": cursor}


def sorted_back(rows: Sequence[Any]) -> list[Any]:
    """Newest-first rows, oldest first again."""
    return list(reversed(rows))


def missing(kind: type[Noun], namespace: str | None, name: str) -> NotFound:
    """The error for an object that is not there (or not the caller's)."""
    shown = f"{namespace}/{name}" if namespace is not None else name
    return NotFound(
        f"there is no {kind.kind.lower()} {shown}",
        remedy=_SEEN_WITH.get(kind, "see what there is with `moor ls`; deleted ones with `moor ls --deleted`"),
        target=f"{kind.kind} {shown}",
    )


def _by(rows: Iterable[Any], key: Callable[[Any], str]) -> defaultdict[str, list[Any]]:
    grouped: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        grouped[key(row)].append(row)
    return grouped


def _age(row: Noun) -> tuple[float, str]:
    return row.created_at, row.uid

"""The real inventory: every machine is asked what is there, and the answers are laid beside the intents of the rows.

Agents pull, so the question travels with a machine's next `Work`. A machine that does not answer makes the inventory
incomplete, and it says so: silence proves nothing. Nothing is changed here. Called by the API for `moor orphans`,
`moor inspect` and the proof of a delete.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from moorage.control.asking import Asking
from moorage.control.launches import digest_of, group_of
from moorage.control.views import JsonObject, iso
from moorage.decide.providers.drift import Compared, Drift, Finding, Intent, MachineLook, Observed, compare
from moorage.decide.providers.identity import Identity, identity_of
from moorage.decide.serving.phase import OPEN_OPERATION
from moorage.domain.nouns import Deployment, Machine, Operation, Run, Worker
from moorage.domain.states import ENDED_WORKER, MachineState, WorkerState
from moorage.ports import Clock, Store
from moorage.wire.inventory import InventoryAnswer, InventoryRequest

ANSWER_S = 15.0
"""A machine whose agent polls answers within two round trips and one look at /proc."""
PROVIDER = "fleet"


StockAsking = Asking[InventoryRequest, InventoryAnswer]


@dataclass(frozen=True, slots=True)
class Taken:
    """One inventory of all machines, and what comparing it with the rows showed."""

    at: float
    observed: tuple[Observed, ...]
    compared: Compared
    names: Mapping[str, str] = field(default_factory=dict)
    """machine uid -> name"""

    def orphans(self) -> list[JsonObject]:
        """What nobody means and what needs a person, as the API tells it."""
        telling = (Drift.ORPHAN, Drift.LATE, Drift.NEEDS_ATTENTION)
        return [
            {
                "provider": PROVIDER,
                "identity": f.identity or None,
                "resource_id": f.thing.resource if f.thing else None,
                "machine": self.names.get(f.machine, f.machine),
                "drift": str(f.drift),
                "why": f.why,
                "observed_at": iso(f.thing.observed_at) if f.thing else None,
                "inventory_complete": f.machine not in self.compared.incomplete,
            }
            for f in self.compared.findings
            if f.drift in telling
        ]

    def lines(self, owner: str | None = None) -> list[JsonObject]:
        """Every line, what was found beside what was meant; of one owner (a uid), where that is given."""
        return [_line(f, self) for f in self.compared.findings if owner is None or f.identity.startswith(f"{owner}/")]

    def incomplete(self) -> list[JsonObject]:
        """Machines that did not tell everything, and why."""
        return [{"machine": self.names.get(uid, uid), "why": why} for uid, why in self.compared.incomplete.items()]


def _line(found: Finding, taken: Taken) -> JsonObject:
    intent, thing = found.intent, found.thing
    identity = Identity.parse(found.identity)
    return {
        "provider": PROVIDER,
        "machine": taken.names.get(found.machine, found.machine),
        "drift": str(found.drift),
        "why": found.why,
        "identity": found.identity or None,
        "owner": identity.owner if identity else None,
        "resource_id": thing.resource if thing else None,
        "digest": thing.digest or None if thing else None,
        "observed_at": iso(thing.observed_at) if thing else None,
        "inventory_complete": found.machine not in taken.compared.incomplete,
        "intent": None
        if intent is None
        else {
            "kind": intent.kind,
            "name": intent.name,
            "identity": intent.identity,
            "digest": intent.digest,
            "wanted": intent.wanted,
            "operation": intent.operation,
        },
    }


class Inventories:
    """Takes inventories.

    Args:
        store: the intents.
        clock: time limits.
        asking: of the machines.
        new_id: unguessable ids.
    """

    def __init__(self, store: Store, clock: Clock, asking: StockAsking, new_id: Callable[[], str]) -> None:
        self._store = store
        self._clock = clock
        self._asking = asking
        self._new_id = new_id

    async def take(self) -> Taken:
        """Ask every machine now, side by side, and compare."""
        machines = [m for m in await self._store.find(Machine) if m.state is not MachineState.REMOVED]
        answers = await asyncio.gather(*(self._ask(m) for m in machines))
        looks = [self._look(m, answer) for m, answer in zip(machines, answers, strict=True)]
        now = self._clock.now()
        observed = tuple(
            Observed(
                machine=machine.uid,
                resource=item.resource,
                worker=item.worker,
                epoch=item.epoch,
                identity=item.identity,
                digest=item.digest,
                proven=item.proven,
                alive=item.alive,
                observed_at=now,
                healthy=item.healthy,
            )
            for machine, answer in zip(machines, answers, strict=True)
            if answer is not None
            for item in answer.items
        )
        intents = await self._intents()
        unknown = {o.worker for o in observed if o.worker} - {i.worker for i in intents}
        compared = compare(intents, observed, looks, await self._ended(unknown))
        return Taken(now, observed, compared, {m.uid: m.name for m in machines})

    async def _ask(self, machine: Machine) -> InventoryAnswer | None:
        if machine.state not in (MachineState.READY, MachineState.NOT_READY):
            return None
        return await self._asking.ask(machine.uid, InventoryRequest(id=self._new_id()), ANSWER_S)

    def _look(self, machine: Machine, answer: InventoryAnswer | None) -> MachineLook:
        if answer is None:
            reached = machine.state in (MachineState.READY, MachineState.NOT_READY)
            why = f"it does not answer within {ANSWER_S:.0f} s" if reached else f"it is {machine.state}"
            return MachineLook(machine.uid, 0.0, why)
        begun = self._clock.now() - answer.begun_s
        return MachineLook(machine.uid, begun, "; ".join(answer.incomplete) or None)

    async def _intents(self) -> list[Intent]:
        """What rows say should be on machines, and what they say should be gone and is not proven to be."""
        live = [s for s in WorkerState if s not in ENDED_WORKER]
        workers = [w for w in await self._store.find(Worker, state=tuple(live)) if w.machine and w.handed_over]
        uids = sorted({w.run for w in workers})
        runs = {r.uid: r for r in await self._store.find(Run, uid=uids)} if uids else {}
        owners = sorted({r.deployment for r in runs.values() if r.deployment})
        deployments = {d.uid: d for d in await self._store.find(Deployment, uid=owners)} if owners else {}
        operations = await self._store.find(Operation, state=tuple(OPEN_OPERATION))
        busy = {o.target: o.uid for o in operations}
        return [_intent(w, runs[w.run], deployments, busy) for w in workers if w.run in runs]

    async def _ended(self, workers: Iterable[str]) -> frozenset[str]:
        """Which of them were known once: their rows ended, or only their history is left."""
        found = set()
        for uid in sorted(workers):
            row = await self._store.get(Worker, uid)
            if row is not None or await self._store.history(uid=uid, limit=1):
                found.add(uid)
        return frozenset(found)


def _intent(worker: Worker, run: Run, deployments: Mapping[str, Deployment], busy: Mapping[str, str]) -> Intent:
    owner = deployments.get(run.deployment or "")
    return Intent(
        worker=worker.uid,
        epoch=worker.epoch,
        identity=identity_of(run, worker).text,
        digest=digest_of(group_of(run, worker.group)),
        machine=worker.machine or "",
        kind="Deployment" if owner is not None else "Run",
        name=f"{worker.namespace}/{owner.name if owner is not None else run.name}",
        since=worker.placed_at or worker.queued_at,
        wanted=worker.state is not WorkerState.STOPPING,
        operation=busy.get(run.deployment or run.uid),
    )

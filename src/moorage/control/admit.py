"""Commands from people about deployments, operations and machines: load, decide, carry out.

Those about runs are in `admit_runs`, about machines in `fleet`; keys and retries in `carrying`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from moorage.control import pinning
from moorage.control.admit_runs import RunAdmission
from moorage.control.carrying import Answer, Carrier
from moorage.control.dry_runs import Belongings, delete_deployment
from moorage.control.endpoints import namings
from moorage.control.fleet import FleetAdmission
from moorage.control.keeping import FleetKeeper
from moorage.control.pinning import Look, Pins
from moorage.control.planning import Prospect, plan
from moorage.control.reading import missing
from moorage.control.roomcheck import Room, room_for
from moorage.control.scheduling import load_book
from moorage.control.submitted import checked_spec
from moorage.decide.decision import Ids, Outcome
from moorage.decide.endpoints import refuse_to_strand, with_endpoints
from moorage.decide.serving import commands, operation_commands
from moorage.decide.serving.commands import Intent, Known
from moorage.decide.serving.phase import OPEN_OPERATION, desired_replicas, initial_scale
from moorage.decide.serving.rollout.record import terms_of
from moorage.decide.serving.snapshot import Demand
from moorage.domain.ids import digest
from moorage.domain.nouns import Deployment, Key, Machine, Operation, Replica, Revision, Run, Worker
from moorage.ports import Clock, Store
from moorage.wire.spec import revision_part


class Admission:
    """The commands of the API.

    Args:
        store, clock, ids: outside.
        demand: traffic of a deployment, as gateways report it to this control plane.
        keeper: of the scheduler's book, if this process may lead: plans then build none of their own.
        pins: looks up which commit a model's source means; None: machines do.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        demand: Callable[[Deployment], Demand] | None = None,
        keeper: FleetKeeper | None = None,
        *,
        pins: Pins | None = None,
    ) -> None:
        self._pins = pins
        self._keeper = keeper
        self._store = store
        self._clock = clock
        self._ids = ids
        self._demand = demand
        self._carry = Carrier(store)
        self.runs = RunAdmission(store, clock, ids, self._carry)
        self.fleet = FleetAdmission(store, clock, self._carry)

    async def apply_deployment(
        self, ns: str, name: str, document: Mapping[str, Any], *, actor: str, key: str | None, create_only: bool
    ) -> Answer:
        """Make it so: {deployment, revision, operation | null, changed, warnings?}."""
        asked = read_intent(ns, name, document)
        look = await self._look(asked)

        async def decide() -> Outcome:
            known = await self._known(ns, name)
            if known is None:
                await self.runs.refuse_name(ns, name)
            intent, now = pinning.pinned(asked, known, look), self._clock.now()
            made = commands.apply(intent, known, self._ids, now, actor=actor, create_only=create_only)
            said = pinning.warnings(asked, known, look)
            return replace(made, answer={**made.answer, "warnings": said}) if said else made

        return await self._carry(ns, key, {"apply": name, "spec": asked.spec}, decide)

    async def _look(self, intent: Intent) -> Look | None:
        """Which commit its model is now; None where that cannot move, or is left to machines."""
        return await self._pins.look(intent) if self._pins is not None else None

    async def plan_deployment(self, ns: str, name: str, document: Mapping[str, Any]) -> Answer:
        """What an apply would do: a Plan object.

        Raises:
            Conflict: the apply would be refused; the same error.
        """
        asked, now = read_intent(ns, name, document), self._clock.now()
        look = await self._look(asked)
        known = await self._known(ns, name)
        if known is None:
            await self.runs.refuse_name(ns, name)
        intent = pinning.pinned(asked, known, look)
        outcome = commands.apply(intent, known, self._ids, now, actor="plan", create_only=False)
        prospect = Prospect(intent, known, outcome)
        told = plan(prospect, await self._room(prospect, now))
        return {**told, "warnings": [*told["warnings"], *pinning.warnings(asked, known, look)]}

    async def _room(self, prospect: Prospect, now: float) -> Room | None:
        """What the scheduler says of the replicas that an apply would start; None: it starts none beside others."""
        revision, deployment = prospect.revision, prospect.deployment
        first = prospect.active() is None
        count = initial_scale(deployment.spec) if first else max(desired_replicas(deployment), 1)
        if revision is None or not count or (not first and terms_of(deployment).replace):
            return None
        book = await load_book(self._store, self._clock, self._keeper)
        return room_for(book, deployment, revision, count, ids=self._ids, now=now)

    async def stop_deployment(self, ns: str, name: str, *, actor: str, key: str | None, text: str | None) -> Answer:
        """Stop it for good: {deployment, operation}."""

        async def decide() -> Outcome:
            known = await self._must_know(ns, name)
            return commands.stop(known, self._ids, self._clock.now(), actor=actor, text=text)

        return await self._carry(ns, key, {"stop": name}, decide)

    async def delete_deployment(self, ns: str, name: str, *, actor: str, key: str | None, keep: bool = False) -> Answer:
        """Remove it: {deployment, operation}; with `keep`, its adopted server runs on."""

        async def decide() -> Outcome:
            known, now = await self._must_know(ns, name), self._clock.now()
            bound = [] if known.deployment.deleting else await namings(self._store, known.deployment)
            refuse_to_strand(known.deployment, bound)
            return with_endpoints(commands.delete(known, self._ids, now, actor=actor, keep=keep), bound)

        return await self._carry(ns, key, {"delete": name, **({"keep": True} if keep else {})}, decide)

    async def delete_dry_run(self, ns: str, name: str) -> Answer:
        """What a delete would touch: a DryRun object."""
        known = await self._must_know(ns, name)
        uid = known.deployment.uid
        replicas = await self._store.find(Replica, deployment=uid)
        runs = await self._store.find(Run, deployment=uid)
        workers = await self._store.find(Worker, run=[r.uid for r in runs]) if runs else []
        machines = {w.machine for w in workers if w.machine}
        rows = await self._store.find(Machine, uid=sorted(machines)) if machines else []
        demand = self._demand(known.deployment) if self._demand is not None else None
        bound = await namings(self._store, known.deployment)
        keys = sorted(k.name for k in await self._store.find(Key, namespace=ns) if known.deployment.name in k.endpoints)
        return delete_deployment(known, Belongings(replicas, runs, workers, rows, demand, bound, keys))

    async def promote_deployment(
        self, ns: str, name: str, *, actor: str, key: str | None, text: str | None, revision: str | None
    ) -> Answer:
        """The candidate takes over without the guard's word: {deployment, revision, operation, changed}."""

        async def decide() -> Outcome:
            known, now = await self._must_know(ns, name), self._clock.now()
            return commands.promote(known, self._ids, now, actor=actor, text=text, revision=revision)

        return await self._carry(ns, key, {"promote": name, "revision": revision}, decide)

    async def reject_deployment(
        self, ns: str, name: str, *, actor: str, key: str | None, text: str | None, revision: str | None
    ) -> Answer:
        """The candidate ends, the active revision goes on: as `promote_deployment`."""

        async def decide() -> Outcome:
            known, now = await self._must_know(ns, name), self._clock.now()
            return commands.reject(known, self._ids, now, actor=actor, text=text, revision=revision)

        return await self._carry(ns, key, {"reject": name, "revision": revision}, decide)

    async def rollback_deployment(
        self, ns: str, name: str, *, actor: str, key: str | None, text: str | None, to: str | None
    ) -> Answer:
        """Back to a revision that served before: as `promote_deployment`."""

        async def decide() -> Outcome:
            known, now = await self._must_know(ns, name), self._clock.now()
            return commands.rollback(known, self._ids, now, actor=actor, text=text, to=to)

        return await self._carry(ns, key, {"rollback": name, "to": to}, decide)

    async def pause_deployment(self, ns: str, name: str, *, actor: str, key: str | None) -> Answer:
        """Scale it to zero until the next request."""

        async def decide() -> Outcome:
            return commands.pause(await self._must_know(ns, name), self._clock.now(), actor=actor)

        return await self._carry(ns, key, {"pause": name}, decide)

    async def wake_deployment(self, ns: str, name: str, *, actor: str, key: str | None) -> Answer:
        """Bring a paused one back."""

        async def decide() -> Outcome:
            return commands.wake(await self._must_know(ns, name), self._clock.now(), actor=actor)

        return await self._carry(ns, key, {"wake": name}, decide)

    async def scale_deployment(
        self, ns: str, name: str, *, min: int | None, max: int | None, actor: str, key: str | None
    ) -> Answer:
        """Change the replica limits."""

        async def decide() -> Outcome:
            return commands.scale(await self._must_know(ns, name), min, max, self._clock.now(), actor=actor)

        return await self._carry(ns, key, {"scale": name, "min": min, "max": max}, decide)

    async def cancel_operation(self, uid: str, *, actor: str, key: str | None) -> Answer:
        """Ask an operation to end."""

        async def decide() -> Outcome:
            return operation_commands.cancel(await self._operation(uid), self._clock.now(), actor=actor)

        return await self._carry("default", key, {"cancel": uid}, decide)

    async def resolve_operation(
        self, uid: str, *, adopt: str | None, absent: bool, actor: str, key: str | None
    ) -> Answer:
        """A person's word on what is there, for an operation that needs attention."""

        async def decide() -> Outcome:
            operation, now = await self._operation(uid), self._clock.now()
            return operation_commands.resolve(operation, now, actor=actor, adopt=adopt, absent=absent)

        return await self._carry("default", key, {"resolve": uid, "adopt": adopt, "absent": absent}, decide)

    async def _operation(self, uid: str) -> Operation:
        operation = await self._store.get(Operation, uid)
        if operation is None:
            raise missing(Operation, None, uid)
        return operation

    async def cordon(self, machine: str, *, why: str, actor: str, key: str | None) -> Answer:
        """Place nothing new on a machine."""
        return await self.fleet.cordon(machine, why=why, actor=actor, key=key)

    async def uncordon(self, machine: str, *, actor: str, key: str | None) -> Answer:
        """Use it again."""
        return await self.fleet.uncordon(machine, actor=actor, key=key)

    async def drain_machine(
        self, machine: str, *, grace_s: float | None, until: float | None, actor: str, key: str | None
    ) -> Answer:
        """Empty a machine."""
        return await self.fleet.drain(machine, grace_s=grace_s, until=until, actor=actor, key=key)

    async def remove_machine(self, machine: str, *, actor: str, key: str | None) -> Answer:
        """Take a machine out of the cluster."""
        return await self.fleet.remove(machine, actor=actor, key=key)

    async def machine_dry_run(self, machine: str, *, removed: bool) -> Answer:
        """What a drain, or a removal, would touch: a DryRun object."""
        return await self.fleet.what_moves(machine, removed=removed)

    async def _known(self, ns: str, name: str) -> Known | None:
        rows = await self._store.find(Deployment, namespace=ns, name=name)
        if not rows:
            return None
        deployment = rows[-1]
        revisions = await self._store.find(Revision, deployment=deployment.uid)
        open_ones = await self._store.find(Operation, target=deployment.uid, state=tuple(OPEN_OPERATION))
        return Known(deployment, tuple(revisions), commands.operations_by_age(open_ones))

    async def _must_know(self, ns: str, name: str) -> Known:
        known = await self._known(ns, name)
        if known is None:
            raise missing(Deployment, ns, name)
        return known


def read_intent(ns: str, name: str, document: Mapping[str, Any]) -> Intent:
    """A checked spec of the deployment `ns`/`name`.

    Raises:
        InvalidSpec: it is wrong, asks for what this version does not have, or names another object.
    """
    spec = checked_spec("Deployment", ns, name, document, verb="apply")
    part = revision_part(spec)
    return Intent(ns, name, spec, part, digest(part))

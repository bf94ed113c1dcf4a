"""Commands from people about machines: load, let `decide/running/fleet` decide, carry out."""

from collections.abc import Awaitable, Callable, Mapping

from moorage.control.carrying import Answer, Carrier
from moorage.control.machines import placed_on, places_on
from moorage.decide.decision import Outcome
from moorage.decide.running import fleet
from moorage.domain.errors import InvalidSpec, NotFound
from moorage.domain.nouns import Machine, Run
from moorage.domain.states import MachineState
from moorage.ports import Clock, Store

DRAIN_S_MAX = 30 * 86400.0


class FleetAdmission:
    """What may be ordered about machines; reached through `Admission`.

    Args:
        store, clock: outside.
        carry: carries commands out.
    """

    def __init__(self, store: Store, clock: Clock, carry: Carrier) -> None:
        self._store = store
        self._clock = clock
        self._carry = carry

    async def cordon(self, machine: str, *, why: str, actor: str, key: str | None) -> Answer:
        """Place nothing new on a machine: {machine, cordoned}."""
        intent = {"cordon": machine, "why": why}
        return await self._order(machine, intent, key, lambda row: fleet.cordon(row, why, actor))

    async def uncordon(self, machine: str, *, actor: str, key: str | None) -> Answer:
        """Use it again, and end its drain: {machine, cordoned: null}."""
        intent = {"cordon": machine, "why": None}
        return await self._order(machine, intent, key, lambda row: fleet.uncordon(row, actor))

    async def drain(
        self, machine: str, *, grace_s: float | None, until: float | None, actor: str, key: str | None
    ) -> Answer:
        """Empty a machine: {machine, draining}.

        Args:
            machine: its name.
            grace_s: seconds that models there may wait for their replacements; or
            until: the time up to which they may, seconds since the epoch.

        Raises:
            InvalidSpec: both are given, or the time is out of range.
        """
        now = self._clock.now()
        wait_s = _wait_s(grace_s, until, now)
        intent = {"drain": machine, "grace": grace_s, "until": until}
        return await self._order(
            machine, intent, key, lambda row: fleet.drain(row, until if until is not None else now + wait_s, now, actor)
        )

    async def remove(self, machine: str, *, actor: str, key: str | None) -> Answer:
        """Take it out of the cluster, with all that runs there: {machine, state}."""

        async def decide() -> Outcome:
            row = await self.row(machine)
            places = await places_on(self._store, row.uid)
            workers = await placed_on(self._store, row.uid, places)
            return fleet.remove(row, workers, places, self._clock.now(), actor)

        return await self._carry("default", key, {"remove": machine}, decide)

    async def what_moves(self, machine: str, *, removed: bool) -> Answer:
        """What a drain, or a removal, would touch: a DryRun object."""
        row = await self.row(machine)
        workers = await placed_on(self._store, row.uid, await places_on(self._store, row.uid))
        uids = sorted({w.run for w in workers})
        runs = {run.uid: run for run in await self._store.find(Run, uid=uids)} if uids else {}
        return fleet.what_moves(row, workers, runs, removed=removed)

    async def _order(
        self, machine: str, intent: Mapping[str, object], key: str | None, decide: Callable[[Machine], Outcome]
    ) -> Answer:
        async def load_and_decide() -> Outcome:
            return decide(await self.row(machine))

        ask: Callable[[], Awaitable[Outcome]] = load_and_decide
        return await self._carry("default", key, intent, ask)

    async def row(self, name: str) -> Machine:
        """The machine that has this name now.

        Raises:
            NotFound: none has it, or it was removed.
        """
        rows = [m for m in await self._store.find(Machine, name=name) if m.state is not MachineState.REMOVED]
        if not rows:
            raise NotFound(
                f"there is no machine {name} in the cluster",
                remedy="see what there is with `moor ls machines`",
                target=f"Machine {name}",
            )
        return max(rows, key=lambda m: (m.created_at, m.uid))


def _wait_s(grace_s: float | None, until: float | None, now: float) -> float:
    if grace_s is not None and until is not None:
        raise InvalidSpec("a drain has a grace or an end, not both", remedy="give one of the two")
    wait_s = grace_s if grace_s is not None else fleet.DRAIN_S if until is None else until - now
    if not 0 <= wait_s <= DRAIN_S_MAX:
        raise InvalidSpec(
            f"a drain cannot wait for {wait_s:g} s",
            remedy="give a grace from 0s to 30d, or an end within 30 days",
            errors=[{"path": "grace" if until is None else "until", "message": "out of range"}],
        )
    return wait_s

"""The scheduling loop: one key, the fleet. Loads waiting workers, machines and holdings, and commits each placement."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from moorage.control.drives import with_drives
from moorage.decide.scheduling.book import room_of
from moorage.decide.scheduling.cycle import schedule
from moorage.decide.scheduling.snapshot import Room, SchedulingSnapshot, owners_of
from moorage.domain.changes import Change, Fence
from moorage.domain.errors import StaleVersion
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import MachineState, WorkerState
from moorage.ports import Clock, Store

FLEET = "fleet"


class SchedulingStep:
    """Places what waits.

    Args:
        store, clock: outside.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.fence: Fence | None = None

    async def everything(self) -> Iterable[str]:
        """The one key."""
        return [FLEET]

    async def __call__(self, key: str) -> float | None:
        """One cycle; returns when the next waiting worker becomes eligible."""
        del key
        snapshot = await load(self._store, self._clock.now())
        if not snapshot.pending:
            return None
        cycle = schedule(snapshot, self.fence)
        stale = await asyncio.gather(*(self._commit(c) for c in cycle.changes))
        if any(stale):
            raise StaleVersion("a placement lost against a newer row; the cycle runs again")
        return cycle.wake_at

    async def _commit(self, change: Change) -> bool:
        """Whether it was stale: it fails alone, the others stand."""
        try:
            await self._store.commit(change)
        except StaleVersion:
            return True
        return False


async def load(store: Store, now: float) -> SchedulingSnapshot:
    """Everything a cycle sees."""
    waiting = await store.find(Worker, state=WorkerState.PENDING)
    pending = tuple(w for w in waiting if w.machine is None)
    if not pending:
        return SchedulingSnapshot(now, (), {}, ())
    held: dict[str, list[Mapping[str, Any]]] = {}
    for holding in await store.holdings():
        held.setdefault(str(holding["machine"]), []).append(holding)
    uids = sorted({str(h["worker"]) for rows in held.values() for h in rows})
    standing = {w.uid: w for w in (await store.find(Worker, uid=uids) if uids else ())}
    named = sorted({w.run for w in (*pending, *standing.values())})
    runs = await with_drives(store, await store.find(Run, uid=named))
    owners = {w.uid: owners_of(w, runs[w.run]) for w in standing.values() if w.run in runs}
    rooms = tuple(
        room_of(Room(m), held.get(m.uid, ()), (owners.get(str(h["worker"]), ()) for h in held.get(m.uid, ())))
        for m in await store.find(Machine)
        if m.state is not MachineState.REMOVED
    )
    return SchedulingSnapshot(now, pending, runs, rooms, tuple(standing.values()))

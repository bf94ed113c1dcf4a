"""The scheduling loop: one key, the fleet. Loads waiting workers, machines and holdings, and commits each placement."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from moorage.decide.scheduling.cycle import schedule
from moorage.decide.scheduling.snapshot import Room, SchedulingSnapshot, owner_of
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
        snapshot = await self.load()
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

    async def load(self) -> SchedulingSnapshot:
        """What a cycle sees."""
        waiting = await self._store.find(Worker, state=WorkerState.PENDING)
        pending = tuple(w for w in waiting if w.machine is None)
        runs: dict[str, Run] = {}
        rooms: tuple[Room, ...] = ()
        if pending:
            runs = {r.uid: r for r in await self._store.find(Run, uid=sorted({w.run for w in pending}))}
            rooms = await load_rooms(self._store)
        return SchedulingSnapshot(self._clock.now(), pending, runs, rooms)


async def load_rooms(store: Store) -> tuple[Room, ...]:
    """Every machine with what is held on it."""
    machines = [m for m in await store.find(Machine) if m.state is not MachineState.REMOVED]
    held: dict[str, list[Mapping[str, Any]]] = {}
    for holding in await store.holdings():
        held.setdefault(str(holding["machine"]), []).append(holding)
    placed: dict[str, set[str]] = {}
    uids = sorted({str(h["worker"]) for rows in held.values() for h in rows})
    for worker in await store.find(Worker, uid=uids) if uids else ():
        if worker.machine:
            placed.setdefault(worker.machine, set()).add(owner_of(worker))
    return tuple(_room(m, held.get(m.uid, []), frozenset(placed.get(m.uid, ()))) for m in machines)


def _room(machine: Machine, held: list[Mapping[str, Any]], owners: frozenset[str]) -> Room:
    return Room(
        machine,
        cpu_milli=sum(int(h["cpu_milli"]) for h in held),
        memory_bytes=sum(int(h["memory_bytes"]) for h in held),
        gpus=frozenset(int(g) for h in held for g in h["gpus"]),
        owners=owners,
    )

"""The ledger of GPUs, read: for people, for metrics, and checked at the start of a leadership.

Who holds what is read anew at each question. Who has what reserved is the scheduler's own answer, which costs a run of
it: it is asked only while something waits, again only when something changed, and never for more than a twentieth of
the time.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from moorage.control.keeping import FleetKeeper
from moorage.control.scheduling import load_book
from moorage.control.views import JsonObject
from moorage.control.views_gpus import Named, Sees, everything, gpu_objects
from moorage.decide.invariants import gpu_violations
from moorage.decide.scheduling.accounts import Kept, Line, Surroundings, counts, kept_now, lines
from moorage.domain.nouns import Deployment, Machine, Run, Worker
from moorage.domain.states import MachineState, WorkerState
from moorage.ports import Clock, Store

Holding = Mapping[str, Any]

SHARE = 20
"""Times as long as the last answer took, the next is not asked for."""

COUNTED_S = 60.0
"""How old counts for metrics may be while nothing changes."""

log = structlog.get_logger("moorage.control")


class GpuAccounts:
    """The ledger.

    Args:
        store, clock: outside.
        keeper: of the scheduler's book, if this process may lead: then no other is built for a question.
    """

    def __init__(self, store: Store, clock: Clock, keeper: FleetKeeper | None = None) -> None:
        self._keeper = keeper
        self._store = store
        self._clock = clock
        self._kept: tuple[Kept, ...] = ()
        self._cursor: str | None = None
        self._again_at = 0.0
        self._counts: dict[tuple[str, str], int] = {}
        self._counted_of: str | None = None
        self._counted_at = 0.0
        self.violations = 0
        """found at the last check"""

    async def objects(
        self, machines: Sequence[Machine], held: Mapping[str, Sequence[Holding]], sees: Sees = everything
    ) -> dict[str, list[JsonObject]]:
        """The GPUs of machines, by uid, as the API shows them.

        Args:
            machines: their rows.
            held: what is held on each, by uid.
            sees: what who asks may know of.
        """
        found, around = await self._lines(machines, held)
        wanted = {line.kept.owner for some in found.values() for line in some if line.kept is not None}
        wanted -= around.workers.keys()
        owners: dict[str, Worker | Deployment] = dict(around.workers)
        if wanted:
            owners |= {row.uid: row for row in await self._store.find(Worker, uid=sorted(wanted))}
            owners |= {row.uid: row for row in await self._store.find(Deployment, uid=sorted(wanted))}
        return {m.uid: gpu_objects(m, found[m.uid], Named(owners, sees)) for m in machines}

    async def by_state(self) -> dict[tuple[str, str], int]:
        """(Machine, state) → how many GPUs, of machines that have any; states with none are there as zero.

        Counted when something changed, or after a while: a reservation lapses, and a place of an earlier placement
        comes free, without a row that says so.
        """
        cursor, now = await self._store.cursor(), self._clock.monotonic()
        if cursor != self._counted_of or now - self._counted_at >= COUNTED_S:
            machines = [m for m in await self._store.find(Machine) if m.state is not MachineState.REMOVED]
            found, _ = await self._lines(machines, await self._held())
            self._counts = {(m.name, state): n for m in machines if found[m.uid] for state, n in counts(found[m.uid])}
            self._counted_of, self._counted_at = cursor, now
        return self._counts

    async def check(self) -> tuple[str, ...]:
        """Everything that does not agree; said in the log, and counted."""
        machines = [m for m in await self._store.find(Machine) if m.state is not MachineState.REMOVED]
        held = await self._held()
        found, _ = await self._lines(machines, held)
        faults = tuple(
            fault for m in machines for fault in gpu_violations(m, held.get(m.uid, ()), self._kept, found[m.uid])
        )
        for fault in faults:
            log.error("the ledger of GPUs does not agree", violation=fault)
        self.violations = len(faults)
        return faults

    async def _held(self) -> dict[str, list[Holding]]:
        held: dict[str, list[Holding]] = {}
        for holding in await self._store.holdings():
            held.setdefault(str(holding["machine"]), []).append(holding)
        return held

    async def _lines(
        self, machines: Sequence[Machine], held: Mapping[str, Sequence[Holding]]
    ) -> tuple[dict[str, tuple[Line, ...]], Surroundings]:
        if not any(m.capacity.get("gpus") for m in machines) and not any(
            h["gpus"] for some in held.values() for h in some
        ):
            return {m.uid: () for m in machines}, Surroundings()
        around = await self._around({m.uid for m in machines}, held)
        kept = await self._reservations()
        return {m.uid: lines(m, held.get(m.uid, ()), kept, around) for m in machines}, around

    async def _around(self, machines: set[str], held: Mapping[str, Sequence[Holding]]) -> Surroundings:
        wanted = {str(h["worker"]) for uid in machines for h in held.get(uid, ()) if h["gpus"]}
        workers = await self._store.find(Worker, uid=sorted(wanted)) if wanted else []
        runs = await self._store.find(Run, uid=sorted({w.run for w in workers})) if workers else []
        return Surroundings({w.uid: w for w in workers}, {r.uid: r for r in runs})

    async def _reservations(self) -> tuple[Kept, ...]:
        """What is kept for somebody: nothing while nothing waits."""
        if not await self._store.find(Worker, state=WorkerState.PENDING, limit=1):
            self._kept, self._cursor = (), None
            return ()
        cursor, before = await self._store.cursor(), self._clock.monotonic()
        if cursor != self._cursor and before >= self._again_at:
            book = await load_book(self._store, self._clock, self._keeper)
            self._kept, self._cursor = kept_now(book, self._clock.now()), cursor
            after = self._clock.monotonic()
            self._again_at = after + SHARE * (after - before)
        now = self._clock.now()
        self._kept = tuple(k for k in self._kept if k.why == "head" or k.until is None or k.until > now)
        return self._kept

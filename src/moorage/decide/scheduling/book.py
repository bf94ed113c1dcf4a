"""Everything a cycle needs, kept up row by row or built whole from a snapshot; the same either way (a test compares).

`control/scheduling` keeps one from the change feed; tests, `why` and simulations build theirs. A cycle reads it and
changes nothing in it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from moorage.decide.scheduling.fleet import Fleet
from moorage.decide.scheduling.holders import Holders
from moorage.decide.scheduling.queued import Queue
from moorage.decide.scheduling.quota import Usage
from moorage.decide.scheduling.snapshot import Request, Room, SchedulingSnapshot
from moorage.domain.nouns import Run, Worker
from moorage.domain.quotas import Amounts
from moorage.domain.states import TERMINAL_RUN, MachineState, WorkerState

LOST = frozenset({WorkerState.FAILED, WorkerState.DOWN})


@dataclass(slots=True)
class Book:
    """Machines, what waits, what holds room, and what just failed and will be tried again."""

    fleet: Fleet = field(default_factory=Fleet)
    queue: Queue = field(default_factory=Queue)
    holders: Holders = field(default_factory=Holders)
    ended: dict[str, Worker] = field(default_factory=dict)
    """workers that failed, gave their place up, and are not queued again yet; their run, or deployment, goes on"""
    retry_at: Mapping[str, float] = field(default_factory=dict)
    """by uid of a deployment, when it makes the replacement of a failed replica"""
    limits: Mapping[str, Amounts] = field(default_factory=dict)
    """by namespace, its quota; without an entry it is unlimited"""
    usage: Usage = field(default_factory=Usage)
    """what namespaces hold; kept up where there are limits"""

    @staticmethod
    def of(snapshot: SchedulingSnapshot) -> "Book":
        """The book of a snapshot."""
        queue = Queue.of(snapshot.pending, snapshot.runs, snapshot.pools)
        book = Book(Fleet(snapshot.rooms), queue, limits=snapshot.limits)
        for machine, held in snapshot.held.items():
            book.usage.put(machine, held)
        for worker in snapshot.standing:
            run = snapshot.runs.get(worker.run)
            if run is not None and worker.machine is not None and worker.machine in book.fleet:
                book.holders.put(worker, run, book.fleet.row(worker.machine), book.fleet)
        return book

    def room(self, room: Room) -> None:
        """A machine joined, changed or was removed, or what is held there did."""
        uid = room.machine.uid
        if room.machine.state is MachineState.REMOVED and uid in self.fleet:
            row = self.fleet.row(uid)  # another machine may get it: nobody may go on to hold room of it
            for holder in [h for h in self.holders if h.spot.row == row]:
                self.holders.drop(holder.worker.uid)
        self.fleet.put(room)

    def worker(self, worker: Worker, run: Run | None, machine: str | None) -> None:
        """A worker's row changed, or what it holds did.

        Args:
            run: its run; None: gone.
            machine: uid of the machine of which it holds room; the machine's room is put before.
        """
        uid = worker.uid
        self.forget(uid, but=machine is not None)
        if run is None:
            return
        if machine is not None and machine in self.fleet:
            self.holders.put(worker, run, self.fleet.row(machine), self.fleet)
        elif worker.state is WorkerState.PENDING and worker.machine is None:
            self.queue.put(worker, run)
        elif _is_tried_again(worker, run):
            self.ended[uid] = worker

    def requests(self) -> dict[Request, int]:
        """How many workers hold, or wait for, each kind of request."""
        counts = dict(self.holders.mix)
        for ask, count in self.queue.counts.items():
            counts[ask.request] = counts.get(ask.request, 0) + count
        return counts

    def forget(self, uid: str, *, but: bool = False) -> None:
        """A worker is gone (`but`: from all but those who hold room)."""
        self.queue.drop(uid)
        self.ended.pop(uid, None)
        if not but:
            self.holders.drop(uid)


def _is_tried_again(worker: Worker, run: Run) -> bool:
    """Whether what failed will be started again, by its run or, a replica, by its deployment."""
    if worker.state not in LOST or worker.stop is not None or run.cancel is not None or run.deleting:
        return False
    return run.replica is not None or (run.state not in TERMINAL_RUN and not worker.final)


def room_of(room: Room, held: Iterable[Mapping[str, object]], owners: Iterable[tuple[str, ...]]) -> Room:
    """A machine's room from its holdings.

    Args:
        room: the machine, with nothing held.
        held: its holdings: {gpus, cpu_milli, memory_bytes}.
        owners: of each worker that holds them, what it counts under (`snapshot.owners_of`).
    """
    cpu = memory = 0
    gpus: set[int] = set()
    for holding in held:
        cpu += int(str(holding["cpu_milli"]))
        memory += int(str(holding["memory_bytes"]))
        gpus.update(int(g) for g in holding["gpus"])  # type: ignore[attr-defined]  # a list of device indexes
    return replace(
        room,
        cpu_milli=cpu,
        memory_bytes=memory,
        gpus=frozenset(gpus),
        owners=frozenset(owner for some in owners for owner in some),
    )

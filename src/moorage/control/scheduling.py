"""The scheduling loop: one key, the fleet. Runs a cycle on the kept book, and commits what it decides.

Every change is a commit of its own, so that a stale one fails alone; all are submitted together, so that the store
carries them in few groups.
"""

from collections.abc import Iterable, Sequence

from moorage.control.keeping import FleetKeeper
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.cycle import run_cycle
from moorage.domain.changes import Change, Committed, Fence
from moorage.domain.errors import StaleVersion
from moorage.ports import Clock, Store

FLEET = "fleet"

AT_ONCE = 4096
"""Changes submitted together: some groups of the store's writer, and a bound on what waits in memory."""

RESTS_FROM_S = 0.02
RESTS_TIMES = 3.0
REST_MAX_S = 0.25
"""A cycle over a long queue looks at all of it again, and a busy fleet wakes it for each thing that happens. One that
took at least `RESTS_FROM_S` is followed by a rest of so many times what it took, at most `REST_MAX_S`: what happens
meanwhile is one cycle. So whatever comes in is looked at `REST_MAX_S` later at the latest, beside the cycle that runs,
and up to cycles of 80 ms the loop uses a quarter of a core at most."""


class SchedulingStep:
    """Places what waits.

    Args:
        store, clock: outside.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.keeper = FleetKeeper(store, clock)
        self.fence: Fence | None = None

    async def everything(self) -> Iterable[str]:
        """The one key."""
        return [FLEET]

    async def __call__(self, key: str) -> float | None:
        """One cycle; returns when the next waiting worker becomes eligible, or room that is kept lapses."""
        del key
        book = await self.keeper.book()
        if not len(book.queue):
            return None
        begun = self._clock.monotonic()
        cycle = run_cycle(book, self._clock.now(), self.fence)
        took_s = self._clock.monotonic() - begun
        stale = False
        for at in range(0, len(cycle.changes), AT_ONCE):
            stale |= await self._commit(cycle.changes[at : at + AT_ONCE])
        if stale:
            self.keeper.doubt()
            raise StaleVersion("a placement lost against a newer row; the cycle runs again")
        if took_s >= RESTS_FROM_S:
            await self._clock.sleep(min(took_s * RESTS_TIMES, REST_MAX_S))
        return cycle.wake_at

    async def _commit(self, changes: Sequence[Change]) -> bool:
        """Whether one was stale: it fails alone, the others stand."""
        answers = await self._store.commit_each(changes)
        failed = [answer for answer in answers if not isinstance(answer, Committed)]
        stood = changes
        if failed:
            pairs = zip(changes, answers, strict=True)
            stood = [change for change, answer in pairs if isinstance(answer, Committed)]
        self.keeper.wrote(stood)
        stale = any(isinstance(answer, StaleVersion) for answer in failed)
        refused = next((answer for answer in failed if not isinstance(answer, StaleVersion)), None)
        if refused is not None:
            raise refused
        return stale


async def load_book(store: Store, clock: Clock, keeper: FleetKeeper | None = None) -> Book:
    """A book of what the store holds now, for a question.

    Args:
        store, clock: outside.
        keeper: of the scheduler's own book: while this process leads it is read, and no other is built.
    """
    kept = await keeper.kept() if keeper is not None else None
    return kept if kept is not None else await FleetKeeper(store, clock).book()

"""Whether replicas that do not exist yet would find room now: the scheduler's own cycle on its book with them queued.

Nothing is written. Called by `planning`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from moorage.decide.decision import Draft, Ids
from moorage.decide.scheduling.assign import decide
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.turn import found_for
from moorage.decide.scheduling.writes import wait_reason
from moorage.decide.serving.starting import start
from moorage.domain.nouns import Deployment, Revision, Run, Worker


@dataclass(frozen=True, slots=True)
class Room:
    """What the scheduler says.

    Args:
        asked, fits: replicas, and how many of them would start at once.
        why: why the first other one would wait; empty where all fit.
    """

    asked: int
    fits: int
    why: str = ""


def room_for(book: Book, deployment: Deployment, revision: Revision, count: int, *, ids: Ids, now: float) -> Room:
    """Room for `count` more replicas of a revision, as they would be queued now.

    Args:
        book: of the scheduler; it is not changed.
        deployment, revision: rows, of which nothing needs to be stored.
    """
    runs = [_replica(deployment, revision, ordinal, ids, now) for ordinal in range(count)]
    queue = book.queue.copy()
    for run, workers in runs:
        for worker in workers:
            queue.put(worker, run)
    tried = replace(book, queue=queue)
    outcome = decide(tried, now)
    waiting = [workers for _, workers in runs if found_for(outcome, workers[0].uid) is None]
    if not waiting:
        return Room(count, count)
    first = waiting[0][0].uid
    wait = next((w for w in outcome.waits if any(e.worker.uid == first for e in w.unit.members)), None)
    why = wait_reason(tried, outcome, wait).message if wait is not None else "others wait before it"
    return Room(count, count - len(waiting), why)


def _replica(
    deployment: Deployment, revision: Revision, ordinal: int, ids: Ids, now: float
) -> tuple[Run, Sequence[Worker]]:
    """The run and the workers that the serving decision would make."""
    draft = Draft((deployment, revision), now, "plan")
    start(draft, deployment, revision, ordinal, ids)
    return next(draft.of(Run)), list(draft.of(Worker))

"""`moor why`: why a deployment or run is as it is, from the rows and by running the scheduler itself.

Nothing here re-tells a rule: a waiting run's answer is that of the very cycle that would run now, and a proposed change
is verified by running it again with the change made (`decide/scheduling/whatif`).
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from moorage.control.gateways import Aside
from moorage.control.keeping import FleetKeeper
from moorage.control.scaling import last_reason
from moorage.control.scheduling import load_book
from moorage.control.views import iso
from moorage.control.views_rollout import Scene, is_shown
from moorage.control.views_rollout import words as rollout_words
from moorage.control.views_serving import open_operation
from moorage.decide.scheduling import explain, whatif
from moorage.decide.scheduling.assign import Outcome, decide
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.order import Entry, Unit
from moorage.decide.scheduling.turn import Turn
from moorage.decide.scheduling.writes import wait_reason
from moorage.decide.serving.phase import deployment_phase, desired_replicas
from moorage.decide.serving.readiness import first_unready
from moorage.decide.serving.snapshot import Demand
from moorage.domain.catalogue import ANOTHER_NAMESPACE
from moorage.domain.errors import NotFound
from moorage.domain.nouns import Deployment, Noun, Operation, Replica, Revision, Run, Worker
from moorage.domain.reasons import Reason
from moorage.domain.states import TERMINAL_REPLICA, WorkerState
from moorage.ports import Clock, Store

Answer = dict[str, Any]
EXAMPLES = 3
AHEAD_MAX = 20


class Explanation:
    """Answers why.

    Args:
        store, clock: outside.
        keeper: of the scheduler's book, if this process may lead: then a question reads what the scheduler reads.
        demand: traffic of a deployment, as gateways report it to this control plane.
        aside: its replicas to which gateways send nothing now.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        keeper: FleetKeeper | None = None,
        demand: Callable[[Deployment], Demand] | None = None,
        aside: Callable[[Deployment], Sequence[Aside]] | None = None,
    ) -> None:
        self._aside = aside
        self._demand = demand
        self._store = store
        self._clock = clock
        self._keeper = keeper

    async def why(self, ns: str, name: str) -> Answer:
        """A Why object of the deployment or run of that name.

        Raises:
            NotFound: there is none.
        """
        deployments = await self._store.find(Deployment, namespace=ns, name=name)
        if deployments:
            return await self._deployment(deployments[-1])
        runs = await self._store.find(Run, namespace=ns, name=name) or [
            r for r in [await self._store.get(Run, name)] if r is not None and r.namespace == ns
        ]
        if not runs:
            raise NotFound(f"there is no deployment or run {ns}/{name}", remedy="see what there is with `moor ls`")
        run = max(runs, key=lambda r: (r.created_at, r.uid))
        return await self._explain(run, str(run.state), run.reason, [run])

    async def _deployment(self, deployment: Deployment) -> Answer:
        replicas = await self._store.find(Replica, deployment=deployment.uid)
        alive = [r for r in replicas if r.status not in TERMINAL_REPLICA]
        runs = await self._store.find(Run, uid=[r.run for r in alive]) if alive else []
        answer = await self._explain(deployment, str(deployment.status), deployment.reason, runs)
        revisions = await self._store.find(Revision, deployment=deployment.uid)
        answer["phase"] = await self._phase(deployment, revisions, alive)
        demand = self._demand(deployment) if self._demand is not None else None
        scene = Scene(deployment, revisions, alive, demand, self._clock.now())
        answer["rollout"] = rollout_words(scene) if is_shown(scene) else None
        answer["unready"] = _unready(first_unready(alive)) if answer["queue"] is None else None
        answer["replicas"] = [
            {"name": r.name, "status": str(r.status), "reason": _wire(r.reason), "routed": r.routed} for r in alive
        ]
        answer["aside"] = [_aside(each, alive) for each in (self._aside(deployment) if self._aside is not None else ())]
        answer["scaling"] = {
            "desired": desired_replicas(deployment),
            "reason": last_reason(deployment).to_wire(),
            "since": iso((deployment.scaling or {}).get("since")),
        }
        if deployment.last_failure:
            answer["last_failure"] = dict(deployment.last_failure)
        return answer

    async def _phase(self, deployment: Deployment, revisions: Sequence[Revision], alive: Sequence[Replica]) -> str:
        operation = open_operation(deployment, await self._store.find(Operation, target=deployment.uid))
        return str(deployment_phase(deployment, revisions, alive, operation, deployment.updated_at))

    async def _explain(self, subject: Noun, state: str, reason: Reason | None, runs: Sequence[Run]) -> Answer:
        workers = await self._store.find(Worker, run=[r.uid for r in runs]) if runs else []
        answer: Answer = {
            "kind": "Why",
            "subject": {"kind": subject.kind, "name": subject.name, "id": subject.uid},
            "state": state,
            "reason": _wire(reason),
            "queue": None,
            "machines": [],
            "changes": [],
        }
        waiting = next((w for w in workers if w.state is WorkerState.PENDING and w.machine is None), None)
        if waiting is None:
            active = next((w for w in workers if w.reason is not None), None)
            if active is not None:
                answer["worker"] = {
                    "name": active.name,
                    "state": str(active.state),
                    "machine": active.machine_name,
                    "reason": _wire(active.reason),
                }
            return answer
        book = await load_book(self._store, self._clock, self._keeper)
        if waiting.uid not in book.queue:  # the feed has not told of it yet
            book = await load_book(self._store, self._clock)
        entry, now = book.queue.get(waiting.uid), self._clock.now()
        if entry is not None:
            answer |= waiting_answer(book, entry, now)
        return answer


def waiting_answer(book: Book, entry: Entry, now: float) -> Answer:
    """The part of an answer that is about a place: the scheduler's own cycle up to this worker's turn."""
    turn = Turn.of(book, now, entry.worker.uid)
    outcome = turn.outcome() if turn is not None else decide(book, now)
    last = outcome.waits.last  # its turn was the last
    wait = last if last is not None and entry in last.unit.members else None
    unit = wait.unit if wait is not None else Unit((entry,))
    found: Answer = {
        "queue": _queue(book, entry),
        "machines": grouped(outcome, entry),
        "changes": [],
    }
    if wait is not None:
        found["reason"] = wait_reason(book, outcome, wait).to_wire()
        remedies = [*whatif.raised_quota(book, wait, now), *whatif.remedies(book, unit, now, turn)]
        found["changes"] = [{"change": r.change, "effect": r.effect, "verified": True} for r in remedies]
    return found


def _queue(book: Book, entry: Entry) -> Answer:
    """Its place among all that waits, and who is before it; work of other namespaces is not named."""
    before, mine = book.queue.place(entry), entry.run.namespace
    first = islice(book.queue, min(before, AHEAD_MAX))
    ahead = [e.worker.name if e.worker.namespace == mine else ANOTHER_NAMESPACE for e in first]
    return {"position": before + 1, "ahead": ahead}


def grouped(outcome: Outcome, entry: Entry) -> list[Answer]:
    """Machines with the same reasons together, the largest group first; before them those on which it fits."""
    fleet = outcome.ledger.fleet
    found = explain.groups(outcome.ledger, entry)
    rows = [
        {
            "reasons": [r.to_wire() for r in refused.reasons],
            "count": len(refused.rows),
            "examples": [fleet.room(int(row)).machine.name for row in refused.rows[:EXAMPLES]],
        }
        for refused in found
    ]
    fits = np.setdiff1d(
        fleet.by_name, np.concatenate([fleet.by_name[:0], *(refused.rows for refused in found)]), assume_unique=True
    )
    if len(fits):
        first = fits[np.argsort(fleet.ranks[fits])[:EXAMPLES]]
        names = [fleet.room(int(row)).machine.name for row in first]
        rows.insert(0, {"reasons": [], "count": len(fits), "examples": names})
    return rows


def _unready(replica: Replica | None) -> Answer | None:
    """The first replica that gets no requests though it is wanted, with what it waits for."""
    if replica is None:
        return None
    return {"name": replica.name, "status": str(replica.status), "reason": _wire(replica.reason)}


def _aside(aside: Aside, alive: Sequence[Replica]) -> Answer:
    """What one gateway put aside, with the replica's name."""
    name = next((replica.name for replica in alive if replica.uid == aside.replica), aside.replica)
    return {"replica": name, **aside.to_wire()}


def _wire(reason: Reason | None) -> Answer | None:
    return reason.to_wire() if reason else None

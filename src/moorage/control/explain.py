"""`moor why`: why a deployment or run is as it is, from the rows and by running the scheduler's own predicates.

Nothing here re-tells a rule: machines are looked at by `decide/scheduling/cycle.look_at`, and a proposed change is
verified by looking again with the change made.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from moorage.control.scheduling import load_rooms
from moorage.control.views_serving import open_operation
from moorage.decide.scheduling.cycle import Look, look_at, ordered, waiting_reason
from moorage.decide.scheduling.snapshot import Placement, Request, Room, SchedulingSnapshot, owner_of
from moorage.decide.serving.phase import deployment_phase
from moorage.decide.serving.readiness import first_unready
from moorage.domain.errors import NotFound
from moorage.domain.nouns import Deployment, Noun, Operation, Replica, Revision, Run, Worker
from moorage.domain.reasons import Reason
from moorage.domain.states import TERMINAL_REPLICA, WorkerState
from moorage.ports import Store

Answer = dict[str, Any]
EXAMPLES = 3


class Explanation:
    """Answers why.

    Args:
        store: where rows are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

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
        answer["phase"] = await self._phase(deployment, alive)
        answer["unready"] = _unready(first_unready(alive)) if answer["queue"] is None else None
        answer["replicas"] = [
            {"name": r.name, "status": str(r.status), "reason": _wire(r.reason), "routed": r.routed} for r in alive
        ]
        if deployment.last_failure:
            answer["last_failure"] = dict(deployment.last_failure)
        return answer

    async def _phase(self, deployment: Deployment, alive: Sequence[Replica]) -> str:
        revisions = await self._store.find(Revision, deployment=deployment.uid)
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
        run = next(r for r in runs if r.uid == waiting.run)
        rooms = await load_rooms(self._store)
        look = look_at(Request.of(waiting), Placement.of(run), owner_of(waiting), rooms)
        if not look.fits:
            answer["reason"] = waiting_reason(Request.of(waiting), look).to_wire()
        answer["queue"] = await self._queue(waiting, run)
        answer["machines"] = grouped(look)
        answer["changes"] = changes(Request.of(waiting), Placement.of(run), owner_of(waiting), rooms)
        return answer

    async def _queue(self, worker: Worker, run: Run) -> Answer:
        waiting = await self._store.find(Worker, state=WorkerState.PENDING)
        pending = tuple(w for w in waiting if w.machine is None)
        runs = {r.uid: r for r in await self._store.find(Run, uid=sorted({w.run for w in pending}))} if pending else {}
        order = ordered(pending, SchedulingSnapshot(0.0, pending, runs, ()))
        ahead = list(takewhile(lambda w: w.uid != worker.uid, order))
        names = [w.name if w.namespace == run.namespace else "work in another namespace" for w in ahead]
        return {"position": len(ahead) + 1, "ahead": names[:20]}


def grouped(look: Look) -> list[Answer]:
    """Machines with the same reasons together, the largest group first."""
    groups: Counter[tuple[str, ...]] = Counter()
    kept: dict[tuple[str, ...], tuple[list[str], tuple[Reason, ...]]] = {}
    for room, reasons in look.refused:
        key = tuple(sorted(r.message for r in reasons))
        groups[key] += 1
        kept.setdefault(key, ([], reasons))[0].append(room.machine.name)
    rows = [
        {"reasons": [r.to_wire() for r in kept[key][1]], "count": count, "examples": kept[key][0][:EXAMPLES]}
        for key, count in groups.most_common()
    ]
    if look.fits:
        names = [room.machine.name for room in look.fits]
        rows.insert(0, {"reasons": [], "count": len(names), "examples": names[:EXAMPLES]})
    return rows


def changes(request: Request, placement: Placement, owner: str, rooms: Sequence[Room]) -> list[Answer]:
    """The smallest single changes after which it would fit, each verified by looking again with it made."""
    tried: list[tuple[str, Request, Placement, Sequence[Room]]] = []
    for gpus in range(request.gpus - 1, 0, -1):
        tried.append((f"ask for {gpus} GPUs instead of {request.gpus}", replace(request, gpus=gpus), placement, rooms))
    if request.models:
        tried.append(("allow any GPU model", replace(request, models=()), placement, rooms))
    if request.memory_bytes:
        tried.append(("ask for no memory in particular", replace(request, memory_bytes=0), placement, rooms))
    if request.cpu_milli:
        tried.append(("ask for less CPU", replace(request, cpu_milli=0), placement, rooms))
    if placement.labels:
        tried.append(("drop placement.labels", request, replace(placement, labels={}), rooms))
    if placement.machines:
        tried.append(("drop placement.machines", request, replace(placement, machines=()), rooms))
    for room in rooms:
        if room.machine.cordoned is not None:
            opened = [replace(r, machine=replace(r.machine, cordoned=None)) if r is room else r for r in rooms]
            tried.append((f"uncordon machine {room.machine.name}", request, placement, opened))
    out: list[Answer] = []
    for change, asked, where, fleet in tried:
        found = look_at(asked, where, owner, fleet)
        if found.fits:
            out.append({"change": change, "effect": f"starts on {found.fits[0].machine.name}", "verified": True})
    return out


def _unready(replica: Replica | None) -> Answer | None:
    """The first replica that gets no requests though it is wanted, with what it waits for."""
    if replica is None:
        return None
    return {"name": replica.name, "status": str(replica.status), "reason": _wire(replica.reason)}


def _wire(reason: Reason | None) -> Answer | None:
    return reason.to_wire() if reason else None

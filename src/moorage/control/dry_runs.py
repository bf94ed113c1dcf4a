"""What a delete would do, said before it is done: all that it touches, and all that refers to it.

Pure: rows in, a DryRun object out. Made by the server, so that no client guesses. Called by `admit`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.decide.endpoints import Naming, goes_on
from moorage.decide.serving.commands import Known
from moorage.decide.serving.snapshot import Demand
from moorage.domain.nouns import Machine, Noun, Replica, Run, Worker
from moorage.domain.states import ENDED_WORKER, TERMINAL_REPLICA, MachineState, OperationState

Answer = dict[str, Any]

NOT_STOPPED = frozenset({"observe", "traffic"})
"""Ownerships of a server that we did not start and may not stop."""


@dataclass(frozen=True, slots=True)
class Belongings:
    """What is under one deployment.

    Args:
        replicas, runs, workers: all of them.
        machines: of the workers.
        demand: its traffic, where this control plane hears it.
        endpoints: those that people made and that name it.
        keys: names of clients' keys that name it.
    """

    replicas: Sequence[Replica] = ()
    runs: Sequence[Run] = ()
    workers: Sequence[Worker] = ()
    machines: Sequence[Machine] = ()
    demand: Demand | None = None
    endpoints: Sequence[Naming] = ()
    keys: Sequence[str] = ()


def delete_deployment(known: Known, own: Belongings) -> Answer:
    """Everything that a delete touches, and everything that refers to it."""
    alive = [r for r in own.replicas if r.status not in TERMINAL_REPLICA]
    workers = [w for w in own.workers if w.state not in ENDED_WORKER or w.handed_over]
    machines = [m for m in own.machines if any(w.machine == m.uid for w in workers)]
    runs = [r for r in own.runs if any(w.run == r.uid for w in workers)]
    revisions = sorted(known.revisions, key=lambda r: r.number)
    rows: list[Noun] = [known.deployment, *revisions, *alive, *runs, *workers, *machines]
    return {
        "kind": "DryRun",
        "changes": [],
        "actions": [{"order": n, **a} for n, a in enumerate(_actions(known, alive, machines), start=1)],
        "warnings": list(_warnings(known, own)),
        "touches": [*map(_named, rows), *(_identity(known, r) for r in alive), *map(_named, known.operations)],
        "refers": list(_refers(known, own)),
    }


def _named(row: Noun) -> Answer:
    return {"kind": row.kind, "name": row.name, "id": row.uid}


def _identity(known: Known, replica: Replica) -> Answer:
    """The provider identity of a replica: what its resource is found by, whatever becomes of the rows."""
    number = next((r.number for r in known.revisions if r.uid == replica.revision), "?")
    name = f"revision {number}, ordinal {replica.ordinal}, attempt {replica.attempt}"
    identity = f"{replica.deployment}/{replica.revision}/{replica.ordinal}/{replica.attempt}"
    return {"kind": "Identity", "name": name, "id": identity}


def _actions(known: Known, alive: Sequence[Replica], machines: Sequence[Machine]) -> Iterator[Answer]:
    drain = dict(known.deployment.spec).get("gateway", {}).get("drain", 60)
    yield {"kind": "withdraw", "summary": f"withdraw {_count(len(alive), 'replica')} from routing"}
    yield {"kind": "drain", "summary": f"let requests in flight end, for at most {float(drain):g} s"}
    if known.deployment.ownership in NOT_STOPPED:
        yield {"kind": "keep", "summary": "leave its server running: it was adopted without its lifecycle"}
    else:
        yield {"kind": "stop", "summary": f"stop its processes on {_count(len(machines), 'machine')}"}
        yield {"kind": "prove", "summary": "wait until every machine confirmed that they are gone"}
    yield {"kind": "tombstone", "summary": "keep a tombstone and the history; the name is free again"}


def _warnings(known: Known, own: Belongings) -> Iterator[str]:
    for machine in own.machines:
        if machine.state is MachineState.DOWN:
            yield (
                f"machine {machine.name} is lost: nothing can be proven of it until it comes back or is removed "
                f"(moor machines remove {machine.name})"
            )
    for one in own.endpoints:
        if one.alone:
            yield f"the endpoint {one.endpoint.name} has nothing else that answers: bind it anew, or delete it, first"
    for operation in known.operations:
        if operation.state is OperationState.NEEDS_ATTENTION:
            yield f"operation {operation.uid} ({operation.operation}) needs a person; a delete asks it to cancel"


def _refers(known: Known, own: Belongings) -> Iterator[Answer]:
    deployment, demand = known.deployment, own.demand
    yield {
        "kind": "Endpoint",
        "name": deployment.name,
        "what_happens": "requests are answered 503, then 404; nothing takes its place",
    }
    for one in own.endpoints:
        yield {"kind": "Endpoint", "name": one.endpoint.name, "what_happens": goes_on(one)}
    for key in own.keys:
        yield {"kind": "Key", "name": key, "what_happens": "opens nothing by that name any more"}
    if demand is None or not demand.known:
        yield _stream("requests in flight are not known yet: gateways have not reported since the control plane began")
    elif demand.in_flight or demand.held:
        yield _stream(f"{_count(demand.in_flight, 'request')} in flight may end within the drain; {demand.held} held")
    else:
        yield _stream("no request is in flight or held")
    judged = [r for r in known.revisions if r.decisions or r.evidence]
    if judged:
        many = _count(sum(len(r.decisions) for r in judged), "release decision")
        what = f"{many} of {_count(len(judged), 'revision')} and the evidence go with it; the history stays"
        yield {"kind": "Evidence", "name": known.deployment.name, "what_happens": what}
    for operation in known.operations:
        if operation.operation not in ("stop", "delete"):
            what = f"the {operation.operation} under way is asked to cancel"
            yield {"kind": "Operation", "name": operation.uid, "what_happens": what}
    yield {"kind": "Fallback", "name": "-", "what_happens": "external fallbacks: none exist in Moorage"}
    yield {"kind": "AsyncJob", "name": "-", "what_happens": "async jobs: none exist in Moorage"}


def _stream(what: str) -> Answer:
    return {"kind": "Stream", "name": "-", "what_happens": what}


def _count(many: int, what: str) -> str:
    return f"{many} {what}{'' if many == 1 else 's'}"

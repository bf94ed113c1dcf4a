"""What people do to machines: cordon, drain, uncordon and remove one. Pure; called by `control/fleet`.

A drain is a flag with a time. What follows from it is decided where the work is: `limits` stops workers of runs (they
are queued again), `serving/scale` replaces replicas before it stops them. A removal is at once and for good: its agent
is told, stops everything and exits; work that ran there is lost without a return window.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.decide.decision import Draft, Outcome
from moorage.decide.running.fates import fate
from moorage.decide.running.liveness import REMOVED, Place, give_up, release
from moorage.domain.changes import Change, Update
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import ENDED_WORKER, MachineState

DRAIN_S = 600.0
"""What is served there may wait so long for its replacement to be ready, where nobody says otherwise."""

CORDONED_BY_DRAIN = "draining"


def cordon(machine: Machine, why: str, actor: str) -> Outcome:
    """Nothing new is placed on it."""
    answer = {"machine": machine.uid, "cordoned": why}
    if machine.cordoned == why:
        return Outcome(None, answer)
    return _flagged(machine, {"cordoned": why}, reason("machine.cordoned", why=why, by=actor), actor, answer)


def uncordon(machine: Machine, actor: str) -> Outcome:
    """It takes work again, and is not drained any more."""
    answer: dict[str, Any] = {"machine": machine.uid, "cordoned": None}
    if machine.cordoned is None and machine.draining is None:
        return Outcome(None, answer)
    fields = {"cordoned": None, "draining": None}
    return _flagged(machine, fields, reason("machine.uncordoned", by=actor), actor, answer)


def drain(machine: Machine, until: float, now: float, actor: str) -> Outcome:
    """It is emptied; again only moves the time.

    Args:
        until: what is served there is kept until then while its replacement is not ready, seconds since the epoch.
    """
    since = dict(machine.draining or {}).get("since", now)
    draining = {"since": since, "until": until, "by": actor}
    answer = {"machine": machine.uid, "draining": draining}
    fields = {"draining": draining, "cordoned": machine.cordoned or CORDONED_BY_DRAIN}
    return _flagged(machine, fields, reason("machine.draining", until=until, by=actor), actor, answer)


def _flagged(
    machine: Machine, fields: Mapping[str, Any], why: Reason, actor: str, answer: Mapping[str, Any]
) -> Outcome:
    update = Update("Machine", machine.uid, machine.version, fields=fields, reason=why)
    return Outcome(Change((update,), actor), dict(answer))


def remove(machine: Machine, workers: Iterable[Worker], held: Iterable[Place], now: float, actor: str) -> Outcome:
    """Out of the cluster; every place on it is free at once, since nobody will ask it any more.

    Args:
        workers: placed there and not ended, or ended and still holding a place there.
        held: every place that is held there.
    """
    answer = {"machine": machine.uid, "state": str(MachineState.REMOVED)}
    if machine.state is MachineState.REMOVED:
        return Outcome(None, answer)
    draft = Draft((machine, *workers), now, actor)
    why = reason("machine.removed", machine=machine.name, by=actor)
    draft.step(machine, MachineState.REMOVED, "removed", why, draining=None, cordoned=None, beats={})
    for worker in list(draft.of(Worker)):
        give_up(draft, machine, worker, "machine_removed", REMOVED)
    release(draft, held)
    return Outcome(draft.decision().change, answer)


def what_moves(
    machine: Machine, workers: Iterable[Worker], runs: Mapping[str, Run], *, removed: bool
) -> dict[str, Any]:
    """A DryRun object: what runs there and what becomes of it when it is drained, or removed; `runs` by uid."""
    there = sorted((w for w in workers if w.machine == machine.uid and w.state not in ENDED_WORKER), key=_name)
    refers = [
        {"kind": "Worker", "name": w.name, "what_happens": fate(w, runs.get(w.run), machine, removed=removed)}
        for w in there
    ]
    verb = "remove" if removed else "drain"
    return {
        "kind": "DryRun",
        "changes": [],
        "actions": [
            {"order": n + 1, "kind": kind, "summary": summary}
            for n, (kind, summary) in enumerate(_REMOVAL if removed else _DRAIN)
        ],
        "warnings": [] if there else [f"nothing of ours runs on {machine.name}: there is nothing to {verb} but itself"],
        "touches": [
            {"kind": "Machine", "name": machine.name, "id": machine.uid},
            *({"kind": "Worker", "name": w.name, "id": w.uid} for w in there),
        ],
        "refers": refers,
    }


_DRAIN = (
    ("cordon", "place nothing new there"),
    ("replace", "start each model's replacement elsewhere and stop the old one once it is ready, or the time is over"),
    ("stop", "stop workers of runs with their grace and queue them again; no restart is counted"),
)
_REMOVAL = (
    ("lose", "give up every worker there at once; what its restart policy, or its deployment, allows starts elsewhere"),
    ("tell", "tell its agent, which stops all it holds and exits"),
)


def _name(worker: Worker) -> str:
    return worker.name

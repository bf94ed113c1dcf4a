"""How a replica of a revision begins: its row, its run and its workers, in one change. Called by stage `scale`."""

from collections.abc import Mapping
from typing import Any

from moorage.decide.decision import Draft, Ids
from moorage.decide.running.request import request_of
from moorage.decide.serving.gang import GROUP, LEADER
from moorage.domain.nouns import Deployment, Replica, Revision, Run, Worker
from moorage.domain.reasons import reason


def start(draft: Draft, deployment: Deployment, revision: Revision, ordinal: int, ids: Ids) -> None:
    """A replica, its run and its workers, in one change. A replacement keeps the first attempt's place in the queue."""
    attempts: dict[str, int] = {str(k): int(v) for k, v in deployment.attempts.items()}
    attempt = attempts.get(str(ordinal), 0) + 1
    place = place_key(deployment, revision, ordinal)
    queued_at = float(deployment.queued.get(place, draft.now))
    draft.set(
        deployment,
        attempts={**attempts, str(ordinal): attempt},
        queued={**deployment.queued, place: queued_at},
    )
    name = f"{deployment.name}-{ordinal}-{attempt}"
    replica_uid, run_uid = ids.new("Replica"), ids.new("Run")
    common: dict[str, Any] = {"namespace": deployment.namespace, "labels": dict(deployment.labels)}
    of_replica = {"revision": revision.uid, "ordinal": ordinal, "attempt": attempt}
    spec = {**run_spec(revision.spec, revision.pins), "replica": of_replica}
    replica = Replica(
        uid=replica_uid,
        name=name,
        deployment=deployment.uid,
        revision=revision.uid,
        ordinal=ordinal,
        attempt=attempt,
        run=run_uid,
        **common,
    )
    run = Run(
        uid=run_uid,
        name=name,
        spec=spec,
        deployment=deployment.uid,
        replica=replica_uid,
        priority=int(dict(deployment.spec).get("priority", 0)),
        queued_at=queued_at,
        **common,
    )
    draft.create(replica, reason("replica.created"))
    draft.create(run, reason("run.created"))
    for worker in _workers(run, ids):
        draft.create(worker, reason("worker.created"))


def _workers(run: Run, ids: Ids) -> list[Worker]:
    """All of them at once: a replica is placed whole."""
    group = run.spec["groups"][0]
    return [
        Worker(
            uid=ids.new("Worker"),
            name=f"{run.name}-{rank}",
            namespace=run.namespace,
            labels=dict(run.labels),
            run=run.uid,
            deployment=run.deployment,
            group=group["name"],
            rank=rank,
            request=group["request"],
            queued_at=run.queued_at,
        )
        for rank in range(int(group["count"]))
    ]


def place_key(deployment: Deployment, revision: Revision, ordinal: int) -> str:
    """Under which an ordinal keeps its place in the queue; a candidate's are its own and begin at their end of it."""
    beside = deployment.active_revision is not None and revision.uid != deployment.active_revision
    return f"{revision.number}/{ordinal}" if beside else str(ordinal)


GIVEN = ("identity", "drives")
"""What a worker is given, asked for beside its group."""


SOURCE = "model.source"
"""Name of the pin of a revision's model."""


def run_spec(revision: Mapping[str, Any], pins: Mapping[str, Any]) -> dict[str, Any]:
    """The run behind a replica of this revision: one group, of several workers a gang, restarting nothing.

    Args:
        revision: its spec.
        pins: what of that may move, as it was looked up.
    """
    model: Mapping[str, Any] = revision.get("model") or {}
    count = int(dict(revision.get("replicas") or {}).get("workers") or 1)
    group = {
        "name": GROUP,
        "count": count,
        "restart_policy": "Never",
        "runtime": revision.get("runtime") or {},
        "model": {**model, "source": pins[SOURCE]} if SOURCE in pins else model,
        "request": request_of(revision.get("resources")),
    }
    together = {"gang": True, "leader": LEADER} if count > 1 else {}
    given = {name: revision[name] for name in GIVEN if revision.get(name)}
    if revision.get("expose"):
        group["expose"] = revision["expose"]
    return {"groups": [group], "placement": revision.get("placement") or {}, "lifetime": "service", **together, **given}

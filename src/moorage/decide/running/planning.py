"""Stage 1 of the run's decision: its workers are made, one row a member.

A group says how many workers it has; the group of an array has one for each element. Called by `cycle` only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from moorage.decide.decision import Draft, Ids
from moorage.decide.running.request import request_of
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import TERMINAL_RUN

HEARTBEAT_TTL_S = 60.0


def plan_workers(draft: Draft, snapshot: RunSnapshot, ids: Ids) -> None:
    """Make the workers of a run that has none yet; nothing for one that ended, is to end, or only makes other runs."""
    run = draft.row(snapshot.run)
    if run.planned_at is not None or snapshot.workers or run.state in TERMINAL_RUN:
        return
    if run.cancel is not None or run.deleting or run.spec.get("schedule"):
        return
    groups: Sequence[Mapping[str, Any]] = run.spec.get("groups") or ()
    for group in groups:
        for rank in range(_size(run.spec, group)):
            draft.create(_worker(run, group, rank, ids, alone=len(groups) == 1), reason("worker.created"))
    draft.set(run, planned_at=draft.now)


def _size(spec: Mapping[str, Any], group: Mapping[str, Any]) -> int:
    array: Mapping[str, Any] = spec.get("array") or {}
    return int(array.get("count") or group.get("count") or 1)


def _worker(run: Run, group: Mapping[str, Any], rank: int, ids: Ids, *, alone: bool) -> Worker:
    name = str(group.get("name") or "worker")
    ttl_s = run.spec.get("heartbeat_ttl")
    stops = run.spec.get("on_disconnect") == "stop"
    return Worker(
        uid=ids.new("Worker"),
        name=f"{run.name}-{rank}" if alone else f"{run.name}-{name}-{rank}",
        namespace=run.namespace,
        labels=dict(run.labels),
        run=run.uid,
        group=name,
        rank=rank,
        request=request_of(group.get("resources")),
        queued_at=run.queued_at,
        heartbeat_ttl_s=float(ttl_s if ttl_s is not None else HEARTBEAT_TTL_S),
        ttl_set=ttl_s is not None,
        disconnect_after_s=float(run.spec.get("disconnect_after") or 600.0) if stops else None,
    )

"""Stage 1 of the run's decision: its workers are made, one row a member.

A group says how many workers it has; the group of an array has one for each element; one with `total_gpus` is divided
over the fleet, or waits for a fleet on which it can be. All groups are planned together or none is. Called by `cycle`
only.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from moorage.decide.decision import Draft, Ids
from moorage.decide.running.request import request_of
from moorage.decide.running.snapshot import RunSnapshot
from moorage.decide.running.splitting import LOOK_AGAIN_S, Split, hosts_of, split
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import Reason, reason
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
    sizes = [_size(snapshot, group) for group in groups]
    for found in sizes:
        if isinstance(found, Reason):
            draft.because(run, found)
            draft.look_again(draft.now + LOOK_AGAIN_S)
            return
    for group, found in zip(groups, sizes, strict=True):
        if isinstance(found, Split):
            _make(draft, run, _sized(group, found), found.workers, ids)
    draft.set(run, planned_at=draft.now)


def _size(snapshot: RunSnapshot, group: Mapping[str, Any]) -> Split | Reason:
    spec = snapshot.run.spec
    if group.get("total_gpus") is not None:
        return split(group, hosts_of(snapshot.run, group, snapshot.machines.values(), snapshot.held))
    array: Mapping[str, Any] = spec.get("array") or {}
    gpus = dict(dict(group.get("resources") or {}).get("gpus") or {})
    return Split(int(array.get("count") or group.get("count") or 1), int(gpus.get("count") or 0))


def _sized(group: Mapping[str, Any], found: Split) -> dict[str, Any]:
    """The group with the number of GPUs that each of its workers gets."""
    resources = dict(group.get("resources") or {})
    return {**group, "resources": {**resources, "gpus": {**dict(resources.get("gpus") or {}), "count": found.gpus}}}


def _make(draft: Draft, run: Run, group: Mapping[str, Any], count: int, ids: Ids) -> None:
    alone = len(run.spec.get("groups") or ()) == 1
    for rank in range(count):
        draft.create(_worker(run, group, rank, ids, alone=alone), reason("worker.created"))


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

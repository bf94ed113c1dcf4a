"""Stage 1 of the run's decision: its workers are made, one row a member.

A group says how many workers it has; the group of an array has one for each element; one with `total_gpus` is divided
over the fleet, or waits for a fleet on which it can be. All groups are planned together or none is. A large run's
workers are made in several decisions, a bounded number in each; until the last, `planned_at` is not set and nothing
else is decided about the run than its end. Called by `cycle` only.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from moorage.decide.decision import Draft, Ids
from moorage.decide.running.request import request_of
from moorage.decide.running.snapshot import RunSnapshot
from moorage.decide.running.splitting import LOOK_AGAIN_S, Split, hosts_of, split
from moorage.domain import limits
from moorage.domain.nouns import Run, Worker
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import TERMINAL_RUN

HEARTBEAT_TTL_S = 60.0


def plan_workers(draft: Draft, snapshot: RunSnapshot, ids: Ids) -> bool:
    """Make workers that the run lacks; nothing for one that ended, is to end, or only makes other runs.

    Returns:
        Whether this decision is about making them: it made some, or found that none are missing any more.
    """
    run = draft.row(snapshot.run)
    if run.planned_at is not None or run.state in TERMINAL_RUN:
        return False
    if run.cancel is not None or run.deleting or run.spec.get("schedule"):
        return False
    groups: Sequence[Mapping[str, Any]] = run.spec.get("groups") or ()
    sizes = [_size(snapshot, group) for group in groups]
    splits = [found for found in sizes if isinstance(found, Split)]
    why = next((found for found in sizes if isinstance(found, Reason)), None) or _too_many(splits)
    if why is not None:
        draft.because(run, why)
        draft.look_again(draft.now + LOOK_AGAIN_S)
        return False
    there = {(w.group, w.rank) for w in snapshot.workers}
    missing = _missing(groups, splits, there)
    alone = len(groups) == 1
    for group, rank in islice(missing, limits.AT_ONCE):
        draft.create(_worker(run, group, rank, ids, alone=alone), reason("worker.created"))
    if next(missing, None) is None:
        draft.set(run, planned_at=draft.now)
    else:
        draft.because(run, reason("run.planning"))  # these rows wake the next decision
    return True


def _missing(
    groups: Sequence[Mapping[str, Any]], splits: Sequence[Split], there: set[tuple[str, int]]
) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Group and rank of each worker that is still to be made."""
    for group, found in zip(groups, splits, strict=True):
        sized, name = _sized(group, found), _name(group)
        yield from ((sized, rank) for rank in range(found.workers) if (name, rank) not in there)


def _too_many(splits: Sequence[Split]) -> Reason | None:
    """A run that an older version let in asks for more than a control plane bears; its division may do so as well."""
    workers = sum(found.workers for found in splits)
    if workers <= limits.WORKERS_MAX:
        return None
    detail = f"it has {workers} workers, and a run has at most {limits.WORKERS_MAX}: cancel it and {limits.SPLIT_SPEC}"
    return reason("run.cannot_plan", why="too_many_workers", detail=detail)


def _size(snapshot: RunSnapshot, group: Mapping[str, Any]) -> Split | Reason:
    spec = snapshot.run.spec
    if group.get("total_gpus") is not None:
        begun = next((w for w in snapshot.workers if w.group == _name(group)), None)
        if begun is not None:  # however the fleet changed since the first of them were made
            per_worker = int(begun.request["gpus"]["count"])
            return Split(int(group["total_gpus"]) // per_worker, per_worker)
        return split(group, hosts_of(snapshot.run, group, snapshot.machines.values(), snapshot.held))
    array: Mapping[str, Any] = spec.get("array") or {}
    gpus = dict(dict(group.get("resources") or {}).get("gpus") or {})
    return Split(int(array.get("count") or group.get("count") or 1), int(gpus.get("count") or 0))


def _sized(group: Mapping[str, Any], found: Split) -> dict[str, Any]:
    """The group with the number of GPUs that each of its workers gets."""
    resources = dict(group.get("resources") or {})
    return {**group, "resources": {**resources, "gpus": {**dict(resources.get("gpus") or {}), "count": found.gpus}}}


def _name(group: Mapping[str, Any]) -> str:
    return str(group.get("name") or "worker")


def _worker(run: Run, group: Mapping[str, Any], rank: int, ids: Ids, *, alone: bool) -> Worker:
    name = _name(group)
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

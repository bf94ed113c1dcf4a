"""Runs, workers and machines as the API shows them.

Pure: rows in, JSON values out. Called by `control.reading`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from moorage.control.views import JsonObject, document, head, iso, plain
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import WorkerState

CRASH_LOOP_RESTARTS = 2
"""Two restarts without a reset show `crash_looping` (the lifecycle contract §2)."""

_RUNNING = (WorkerState.RUNNING, WorkerState.STALE)


def run_object(row: Run, workers: Sequence[Worker], queue_position: int | None = None) -> JsonObject:
    """A Run.

    Args:
        row: the row.
        workers: its workers.
        queue_position: from 1, while it waits to be placed.
    """
    return {
        **head(row),
        "state": str(row.state),
        "spec": document(row.spec),
        "deployment": row.deployment,
        "replica": row.replica,
        "priority": row.priority,
        "workers": worker_counts(workers),
        "queue_position": queue_position,
        "starts_by": iso(_starts_by(row)),
        "exit_code": row.exit_code,
        "queued_at": iso(row.queued_at),
        "started_at": iso(row.started_at),
        "ended_at": iso(row.ended_at),
        "crash_looping": any(w.restarts >= CRASH_LOOP_RESTARTS for w in workers),
        "last_failure": _last_failure(workers),
        "cancel": plain(row.cancel),
        "restarting": plain(row.restarting),
        "restarted_from": row.restarted_from,
        "schedule": plain(row.schedule),
        "scheduled_by": row.scheduled_by,
        "deleting": row.deleting,
    }


def _last_failure(workers: Sequence[Worker]) -> JsonObject | None:
    """Of the worker that failed last: which one it was, and what is kept of it."""
    failed = [w for w in workers if w.last_failure]
    if not failed:
        return None
    last = max(failed, key=lambda w: (w.ended_at or 0.0, w.uid))
    return {"worker": last.name, "machine": last.machine_name, **plain(last.last_failure)}


def worker_counts(workers: Sequence[Worker]) -> dict[str, int]:
    """Workers of a run by what they do: every state's word in small letters, with total, running and ready."""
    states = Counter(w.state for w in workers)
    return {
        "total": len(workers),
        **{word: states[s] for s, word in _SMALL.items()},
        "running": sum(states[s] for s in _RUNNING),
        "ready": sum(w.ready for w in workers),
    }


def worker_object(row: Worker, machines: Mapping[str, Machine]) -> JsonObject:
    """A Worker.

    Args:
        row: the row.
        machines: machines by uid.
    """
    return {
        **head(row),
        "run": row.run,
        "deployment": row.deployment,
        "group": row.group,
        "rank": row.rank,
        "state": str(row.state),
        "machine": machine_name(row.machine, machines),
        "machine_id": row.machine,
        "gpus": list(row.gpus),
        "epoch": row.epoch,
        "attempt": row.attempt,
        "restarts": row.restarts,
        "restart_at": iso(row.restart_at),
        "queued_at": iso(row.queued_at),
        "placed_at": iso(row.placed_at),
        "started_at": iso(row.started_at),
        "ended_at": iso(row.ended_at),
        "heartbeat_at": iso(row.heartbeat_at),
        "exit_code": row.exit_code,
        "last_failure": plain(row.last_failure),
        "stop": plain(row.stop),
        "waits": document(row.waits),
        "ready": row.ready,
        "address": row.address,
        "ports": document(row.ports),
        "process": document(row.process),
        "placement": _placement(row),
    }


def _placement(row: Worker) -> JsonObject | None:
    """Why it has no place; not whom it had stopped, which may be work of another namespace."""
    return None if row.placement is None else {k: v for k, v in plain(row.placement).items() if k != "plan"}


def machine_name(uid: str | None, machines: Mapping[str, Machine]) -> str | None:
    """The name a person knows a machine by; its uid when it is not known any more."""
    return machines[uid].name if uid is not None and uid in machines else uid


def machine_object(row: Machine, holdings: Sequence[Mapping[str, Any]], gpus: Sequence[JsonObject] = ()) -> JsonObject:
    """A Machine.

    Args:
        row: the row.
        holdings: what is held on it, as the store gives it.
        gpus: its GPUs, see `views_gpus`.
    """
    return {
        **head(row),
        "state": str(row.state),
        "cordoned": row.cordoned,
        "draining": plain(row.draining),
        "incarnation": row.incarnation,
        "boot_id": row.boot_id,
        "host": row.host,
        "reserve": document(row.reserve),
        "capacity": document(row.capacity),
        "allocated": _allocated(holdings),
        "accepts": list(row.accepts),
        "rack": row.labels.get("moorage/rack"),
        "site": row.labels.get("moorage/site"),
        "fabrics": [],
        "gpus": list(gpus),
        "pressure": list(row.pressure),
        "lease_expires_at": iso(row.lease_expires_at),
        "heartbeat_at": iso(row.heartbeat_at),
        "engines": list(row.engines),
        "capabilities": list(row.capabilities),
    }


def _starts_by(row: Run) -> float | None:
    """A reservation's promise, as the reason of a waiting run tells it."""
    value = row.reason.params.get("starts_by") if row.reason else None
    return float(value) if isinstance(value, int | float) else None


def _allocated(holdings: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {
        "cpu_milli": sum(int(h["cpu_milli"]) for h in holdings),
        "memory_bytes": sum(int(h["memory_bytes"]) for h in holdings),
        "gpus": sum(len(h["gpus"]) for h in holdings),
    }


def _small(state: WorkerState) -> str:
    """`ReadyToStart` → `ready_to_start`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in state).lstrip("_")


_SMALL = {state: _small(state) for state in WorkerState}
"""Each state's word in small letters."""

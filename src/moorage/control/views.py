"""Rows as the API shows them: what all objects share, and operations, tombstones and changes.

Pure: rows in, JSON values out; times become RFC 3339 text in UTC with milliseconds. The serving and running nouns are
in `views_serving` and `views_running`. Called by `control.reading` and the API's routes; nothing here loads anything.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import NoneType
from typing import Any

from moorage.domain.changes import HistoryRow
from moorage.domain.nouns import Noun, Operation
from moorage.domain.reasons import Reason
from moorage.domain.states import OperationState
from moorage.ports import Lease

JsonObject = dict[str, Any]

HELD = frozenset({OperationState.LEASED, OperationState.RUNNING, OperationState.WAITING, OperationState.CANCELLING})
"""States in which a control plane holds an operation."""

_TIMES = frozenset(
    {"at", "since", "until", "unkillable_since", "retry_at", "restart_at", "next_at", "last_at", "expires_at"}
)
"""Keys of stored maps that hold seconds since the epoch."""

_LEAVES = (str, int, float, NoneType)
"""Asked for first: nearly all that a document holds. Whether a value is a mapping takes ten times as long to say."""


def iso(at: float | None) -> str | None:
    """Seconds since the epoch as `2026-11-29T18:20:00.123Z`; None stays None."""
    if at is None:
        return None
    # Rounded first: isoformat cuts digits off, so 1.9996 would otherwise show as one millisecond less.
    moment = datetime.fromtimestamp(round(at, 3), UTC)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def plain(value: Any) -> Any:
    """Stored JSON values with their tuples and mappings made plain and the times among them made text."""
    if isinstance(value, _LEAVES):
        return value
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, dict | Mapping):
        return {str(k): _entry(k, v) for k, v in value.items()}
    return value.to_wire() if isinstance(value, Reason) else value


def document(value: Any) -> Any:
    """A spec document as it is: plain, and no key of it taken for a time."""
    if isinstance(value, _LEAVES):
        return value
    if isinstance(value, tuple | list):
        return [document(v) for v in value]
    if isinstance(value, dict | Mapping):
        return {str(k): document(v) for k, v in value.items()}
    return value


def head(row: Noun) -> JsonObject:
    """What every object has."""
    return {
        "kind": row.kind,
        "id": row.uid,
        "name": row.name,
        "namespace": row.namespace,
        "labels": dict(row.labels),
        "annotations": dict(row.annotations),
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "version": row.version,
        "reason": row.reason.to_wire() if row.reason else None,
    }


def operation_object(row: Operation, target_name: str | None = None, lease: Lease | None = None) -> JsonObject:
    """An Operation.

    Args:
        row: the row.
        target_name: name of what it works on, while that exists.
        lease: the control plane's own, under which operations are held, as last renewed.
    """
    return {
        **head(row),
        "operation": row.operation,
        "target": {"kind": row.target_kind, "id": row.target, "name": target_name},
        "revision": row.revision,
        "state": str(row.state),
        "steps": plain(row.steps),
        "progress": row.progress,
        "key": row.key,
        "attempt": row.attempt,
        "next_attempt_at": iso(row.next_attempt_at),
        "waiting_reason": plain(row.waiting_reason),
        "retryable": row.retryable,
        "cancel_requested": row.cancel_requested,
        "cancelled_by": row.cancelled_by,
        "resolution": plain(row.resolution),
        "lease": _lease(row, lease),
        "error": plain(row.error),
    }


def _lease(row: Operation, lease: Lease | None) -> JsonObject | None:
    """Under which lease it is held; of one that is over, or waits to be taken up, none."""
    if row.lease_owner is None or row.state not in HELD:
        return None
    same = lease is not None and lease.generation == row.lease_generation
    expires_at = lease.expires_at if same and lease is not None else row.lease_expires_at
    return {"owner": row.lease_owner, "generation": row.lease_generation, "expires_at": iso(expires_at)}


def tombstone_object(row: Mapping[str, Any]) -> JsonObject:
    """What is left of a deleted object. `actor` is who asked for it where that is known, not who carried it out.

    `deployment` is set of a run behind a replica: the name of the one that it was deleted with.
    """
    why = plain(row["reason"])
    return {
        "kind": row["kind"],
        "id": row["uid"],
        "name": row["name"],
        "namespace": row["namespace"],
        "deleted": True,
        "deleted_at": iso(row["at"]),
        "state": row["state"],
        "digest": row["digest"],
        "reason": why,
        "actor": ((why or {}).get("params") or {}).get("by") or row["actor"],
        "ownership": ((why or {}).get("params") or {}).get("ownership"),
        "deployment": ((why or {}).get("params") or {}).get("deployment"),
    }


def change_object(row: HistoryRow) -> JsonObject:
    """One line of history; also one event."""
    return {
        "object": {
            "kind": row.object_kind,
            "id": row.object_uid,
            "name": row.name,
            "namespace": row.namespace,
        },
        "kind": row.kind,
        "from": row.source,
        "to": row.to,
        "reason": row.reason.to_wire(),
        "actor": row.actor,
        "at": iso(row.at),
        "version": row.version,
        "cursor": row.cursor,
    }


def _entry(key: object, value: Any) -> Any:
    if key == "params":  # a reason's params are data for programs and stay as they were written
        return document(value)
    return iso(value) if _is_time(key, value) else plain(value)


def _is_time(key: object, value: object) -> bool:
    return key in _TIMES and isinstance(value, float | int) and not isinstance(value, bool)

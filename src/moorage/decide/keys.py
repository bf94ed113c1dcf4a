"""Clients' keys: issued, limited, revoked, deleted. Pure; called by `control/keys`.

What gateways make of them is theirs (`gateway/keys`). The text of a key is never here: only its digest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from moorage.decide.decision import Draft, Outcome
from moorage.domain.changes import Change, Create, Remove, Update
from moorage.domain.errors import Conflict
from moorage.domain.lifecycles.key import REVOKED
from moorage.domain.nouns import Key
from moorage.domain.reasons import reason
from moorage.domain.states import KeyState


def issue(row: Key, actor: str) -> Outcome:
    """A new key; that its name is free, the store sees."""
    opens, limits = ", ".join(row.endpoints) or None, told(row.limits) or None
    why = reason("key.issued", endpoints=opens, until=row.expires_at, limits=limits, by=actor)
    return Outcome(Change((Create(row, why),), actor), {"id": row.uid})


def change(
    row: Key,
    *,
    endpoints: Sequence[str] | None,
    limits: Mapping[str, int] | None,
    description: str | None,
    actor: str,
) -> Outcome:
    """Other limits, endpoints or words; None: as they are.

    Raises:
        Conflict: it is revoked.
    """
    if row.state is KeyState.REVOKED:
        raise Conflict(
            f"the key {row.namespace}/{row.name} is revoked",
            code="key_revoked",
            remedy="make another one: moor keys create NAME",
            target=f"Key {row.namespace}/{row.name}",
        )
    asked: dict[str, Any] = {
        "endpoints": None if endpoints is None else tuple(endpoints),
        "limits": None if limits is None else dict(limits),
        "description": description,
    }
    fields = {k: v for k, v in asked.items() if v is not None and v != _plain(getattr(row, k))}
    if not fields:
        return Outcome(None, {"id": row.uid})
    limited = told(fields["limits"]) or "none" if "limits" in fields else None
    if limited is not None and len(fields) == 1:
        why = reason("key.limited", limits=limited, by=actor)
    else:
        opens = ", ".join(fields["endpoints"]) or "all" if "endpoints" in fields else None
        words = fields.get("description") or None
        why = reason("key.set", endpoints=opens, limits=limited, description=words, by=actor)
    update = Update("Key", row.uid, row.version, fields=fields, reason=why)
    return Outcome(Change((update,), actor), {"id": row.uid})


def revoke(row: Key, now: float, *, text: str | None, actor: str) -> Outcome:
    """It opens nothing any more; again changes nothing."""
    if row.state is KeyState.REVOKED:
        return Outcome(None, {"id": row.uid})
    draft = Draft((row,), now, actor)
    draft.step(row, KeyState.REVOKED, REVOKED, reason("key.revoked", text=text, by=actor), revoked_at=now)
    return Outcome(draft.decision().change, {"id": row.uid})


def delete(row: Key, actor: str) -> Outcome:
    """Its name is free again; it opens nothing any more."""
    gone = Remove("Key", row.uid, row.version, reason("key.deleted", by=actor))
    return Outcome(Change((gone,), actor), {"id": row.uid, "name": row.name, "deleted": True})


def told(limits: Mapping[str, int]) -> str:
    """Limits in one line."""
    return ", ".join(f"{name} {limits[name]}" for name in sorted(limits))


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value

"""Clients' keys: issued, limited, revoked, deleted. Pure; called by `control/keys`.

What gateways make of them is theirs (`gateway/keys`). The text of a key is never here: only its digest.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.decide.decision import Draft, Outcome
from moorage.domain.changes import Change, Create, Remove, Update
from moorage.domain.errors import Conflict, InvalidSpec
from moorage.domain.lifecycles.key import REVOKED
from moorage.domain.nouns import Deployment, Endpoint, Key
from moorage.domain.reasons import reason
from moorage.domain.states import KeyState


@dataclass(frozen=True, slots=True)
class Opened:
    """What keys of a namespace may open by name.

    Args:
        names: endpoints that people made, and those that deployments have of their own.
        aliases: other names of a deployment's model -> the deployment; a key does not open those.
    """

    names: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)


def opened(deployments: Iterable[Deployment], endpoints: Iterable[Endpoint]) -> Opened:
    """As the rows of a namespace say. What is being deleted is not there any more."""
    there = [row for row in deployments if not row.deleting]
    aliases = {str(a): row.name for row in there for a in (row.spec.get("model") or {}).get("aliases") or ()}
    return Opened(frozenset((*(row.name for row in there), *(row.name for row in endpoints))), aliases)


def issue(row: Key, there: Opened, actor: str) -> Outcome:
    """A new key; that its name is free, the store sees.

    Raises:
        InvalidSpec: it names an endpoint that is not there.
    """
    _refuse_unknown(row, row.endpoints, there)
    opens, limits = ", ".join(row.endpoints) or None, told(row.limits) or None
    why = reason("key.issued", endpoints=opens, until=row.expires_at, limits=limits, by=actor)
    return Outcome(Change((Create(row, why),), actor), {"id": row.uid})


def change(
    row: Key,
    there: Opened,
    *,
    endpoints: Sequence[str] | None,
    limits: Mapping[str, int] | None,
    description: str | None,
    actor: str,
) -> Outcome:
    """Other limits, endpoints or words; None: as they are.

    Raises:
        Conflict: it is revoked.
        InvalidSpec: it is to open an endpoint that is not there.
    """
    if row.state is KeyState.REVOKED:
        raise Conflict(
            f"the key {row.namespace}/{row.name} is revoked",
            code="key_revoked",
            remedy="make another one: moor keys create NAME",
            target=f"Key {row.namespace}/{row.name}",
        )
    _refuse_unknown(row, endpoints or (), there)
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


def gone(row: Key, there: Opened) -> list[str]:
    """Names that it has and that open nothing now, since what was called so was deleted."""
    return [name for name in row.endpoints if name not in there.names]


def _refuse_unknown(row: Key, names: Sequence[str], there: Opened) -> None:
    errors: list[dict[str, Any]] = []
    for at, name in enumerate(names):
        if name in there.names:
            continue
        near = difflib.get_close_matches(name, there.names, n=1, cutoff=0.6)
        hint = f" (did you mean {near[0]}?)" if near else ""
        if name in there.aliases:
            hint = f" (the model of {there.aliases[name]} goes by that name: say {there.aliases[name]})"
        errors.append({"path": f"endpoints[{at}]", "message": f"there is no endpoint {name}{hint}"})
    if errors:
        raise InvalidSpec(
            f"the key {row.namespace}/{row.name} cannot open what is not there: "
            f"{'; '.join(str(error['message']) for error in errors)}",
            errors=errors,
            code="unknown_endpoint",
            remedy=f"name those that are there (moor endpoint ls --all -n {row.namespace}), or none to open all, also "
            "those to come; nothing was changed",
            target=f"Key {row.namespace}/{row.name}",
        )


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value

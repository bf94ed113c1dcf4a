"""What people set about namespaces: a pool of machines, a description, a quota. Pure; called by `control/namespaces`.

The row is made when something is first set, and stays: what was set, and by whom, is its history.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from moorage.decide.decision import Outcome
from moorage.domain import quotas
from moorage.domain.changes import Change, Create, Update
from moorage.domain.ids import namespace_uid
from moorage.domain.nouns import Namespace
from moorage.domain.quotas import Amounts
from moorage.domain.reasons import Reason, reason


def unset(name: str) -> Namespace:
    """A namespace about which nothing was ever set."""
    return Namespace(uid=namespace_uid(name), namespace=name, name=name)


def set_namespace(
    before: Namespace | None,
    name: str,
    machines: Mapping[str, str],
    description: str,
    *,
    actor: str,
    keys: str | None = None,
) -> Outcome:
    """Make it, or change which machines it may use, whether its endpoints ask for a key, and what is said of it.

    Args:
        keys: `optional` or `required`; None: as it was.
    """
    keys = keys or (before or unset(name)).keys
    text = ", ".join(f"{key}={value}" for key, value in sorted(machines.items())) or "all"
    why = reason("namespace.set", machines=text, description=description or None, keys=_told(before, keys), by=actor)
    fields = {"made": True, "machines": dict(machines), "description": description, "keys": keys}
    return _written(before, name, fields, why, actor)


def remove_namespace(before: Namespace, actor: str) -> Outcome:
    """Forget what was set about it, but for its quota."""
    fields: dict[str, Any] = {"made": False, "machines": {}, "description": "", "keys": "optional"}
    return _written(before, before.name, fields, reason("namespace.removed", by=actor), actor)


def set_quota(before: Namespace | None, name: str, limits: Amounts, actor: str) -> Outcome:
    """Set all of its quota; what it holds already stays, even above it."""
    text = ", ".join(f"{resource} {quotas.shown(resource, limit)}" for resource, limit in sorted(limits.items()))
    why = reason("quota.set", limits=text or "none", by=actor)
    return _written(before, name, {"limits": dict(sorted(limits.items()))}, why, actor)


def remove_quota(before: Namespace, actor: str) -> Outcome:
    """Unlimited again."""
    return _written(before, before.name, {"limits": {}}, reason("quota.removed", by=actor), actor)


def _written(before: Namespace | None, name: str, fields: Mapping[str, Any], why: Reason, actor: str) -> Outcome:
    if before is None:
        return Outcome(Change((Create(replace(unset(name), **fields), why),), actor))
    if all(_plain(getattr(before, field)) == _plain(value) for field, value in fields.items()):
        return Outcome(None)
    return Outcome(Change((Update("Namespace", before.uid, before.version, fields=fields, reason=why),), actor))


def _told(before: Namespace | None, keys: str) -> str | None:
    """Whether keys are asked for, where that is or was another than usual."""
    return keys if {keys, before.keys if before is not None else keys} != {"optional"} else None


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value

"""What an apply would do, said before it is done.

A plan runs the very decision of the apply and reads the result, so that it cannot promise something else.
"""

from collections.abc import Mapping
from typing import Any

from moorage.decide.decision import Ids
from moorage.decide.serving import commands
from moorage.decide.serving.commands import Intent, Known, changed_fields
from moorage.decide.serving.phase import initial_scale
from moorage.domain.errors import Conflict

Answer = dict[str, Any]


def plan(intent: Intent, known: Known | None, ids: Ids, now: float) -> Answer:
    """Field by field before → after, ordered actions, warnings.

    Raises:
        Conflict: an apply would be refused; the same error an apply gives.
    """
    before: Mapping[str, Any] = known.deployment.spec if known else {}
    changes = [
        {"path": path, "before": _at(before, path), "after": _at(intent.spec, path)}
        for path in changed_fields(before, intent.spec)
    ]
    warnings: list[str] = []
    try:
        commands.apply(intent, known, ids, now, actor="plan", create_only=False)
        actions = _actions(intent, known, [str(c["path"]) for c in changes])
    except Conflict as refused:
        actions = []
        warnings.append(f"apply would be refused: {refused.message}. {refused.remedy or ''}".strip())
    return {
        "kind": "Plan",
        "changes": changes,
        "actions": [{"order": n + 1, **a} for n, a in enumerate(actions)],
        "warnings": warnings + _warnings(intent),
        "touches": [{"kind": "Deployment", "name": intent.name, "id": known.deployment.uid if known else None}],
        "refers": [],
    }


def _actions(intent: Intent, known: Known | None, paths: list[str]) -> list[Answer]:
    if known is None:
        count = initial_scale(intent.spec)
        start = f"start {count} replica{'s' if count != 1 else ''}" if count else "sleep until the first request"
        return [
            {"kind": "create", "summary": f"create deployment {intent.name} with revision 1 ({intent.digest[:19]})"},
            {"kind": "start", "summary": start},
        ]
    return [{"kind": "change", "summary": f"change at once: {', '.join(paths)}"}] if paths else []


def _warnings(intent: Intent) -> list[str]:
    out: list[str] = []
    replicas: Mapping[str, Any] = intent.spec.get("replicas") or {}
    if int(replicas.get("max") or 1) > max(int(replicas.get("min") or 0), 1):
        out.append("replicas.max above replicas.min has no effect yet: this version keeps the minimum, and 0 to 1")
    if not (intent.spec.get("model") or {}).get("id"):
        out.append("model.id is not set, so readiness checks health only and not which model answers")
    return out


def _at(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value

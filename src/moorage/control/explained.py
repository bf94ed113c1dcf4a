"""A release decision told again: the stored inputs judged by the guard's own function, and compared byte for byte.

Pure: revisions in, an Explanation out. Called by `control.reading`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from moorage.control.views import JsonObject
from moorage.control.views_rollout import decision_object, named
from moorage.decide.serving.guard import replay
from moorage.domain.errors import NotFound
from moorage.domain.ids import digest
from moorage.domain.nouns import Deployment, Revision


def explained(row: Deployment, revisions: Sequence[Revision], wanted: str | None) -> JsonObject:
    """The decision, what its inputs lead to now, and whether the two are the same to the byte.

    Args:
        wanted: the decision's id, or a revision's number, name or uid (its last one); None: the last of all.

    Raises:
        NotFound: there is no such decision.
    """
    revision, kept = _chosen(row, revisions, wanted)
    again = replay(kept)
    stored, replayed = digest(kept), digest(again)
    return {
        "kind": "Explanation",
        "deployment": row.uid,
        "name": row.name,
        "decision": decision_object(kept, revision),
        "identical": stored == replayed,
        "digest": stored,
        "replayed_digest": replayed,
        "replayed": None if stored == replayed else decision_object(again, revision),
    }


def _chosen(row: Deployment, revisions: Sequence[Revision], wanted: str | None) -> tuple[Revision, Mapping[str, Any]]:
    of = named(revisions, wanted) if wanted is not None else None
    found = [
        (revision, kept)
        for revision in sorted(revisions, key=lambda r: r.number)
        for kept in revision.decisions
        if wanted is None or of is revision or kept.get("id") == wanted
    ]
    if not found:
        about = f"no release decision {wanted}" if wanted else "no release decision yet"
        raise NotFound(
            f"deployment {row.namespace}/{row.name} has {about}",
            remedy=f"`moor rollout {row.name}` shows what it waits for",
            target=f"Deployment {row.namespace}/{row.name}",
        )
    return max(enumerate(found), key=lambda item: (float(item[1][1].get("at") or 0.0), item[0]))[1]

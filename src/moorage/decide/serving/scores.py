"""A quality score that somebody posts of a revision: evidence that no request brings. Pure.

Kept as a source of its own in `Revision.evidence`; the last score of a metric counts, and it stays with the revision.
The guard compares it where `rollout.guard.quality` names the metric. Called by the command that posts it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.decide.decision import Draft, Outcome
from moorage.decide.serving.evidence import QUALITY, Seen
from moorage.domain.errors import Conflict, NotFound
from moorage.domain.nouns import Deployment, Revision
from moorage.domain.reasons import reason
from moorage.domain.states import RevisionState

OVER = (RevisionState.REJECTED, RevisionState.FAILED, RevisionState.CANCELLED)

METRICS_MAX = 16
"""Metrics kept of one revision; the guard reads one."""


@dataclass(frozen=True, slots=True)
class Score:
    """What is posted.

    Args:
        revision: number, name or uid.
        samples: how many cases it is the mean of.
    """

    revision: str
    metric: str
    value: float
    samples: int


def post(deployment: Deployment, revisions: Iterable[Revision], score: Score, now: float, *, actor: str) -> Outcome:
    """Keep a score with its revision: `{deployment, revision, metric, value, samples, counts, changed}`.

    `counts` says whether the guard of the spec asks for this metric.

    Raises:
        NotFound: there is no such revision.
        Conflict: that revision is over, or has more metrics than are kept.
    """
    row = _named(deployment, tuple(revisions), score.revision)
    answer = {
        "deployment": deployment.uid,
        "revision": row.uid,
        "metric": score.metric,
        "value": score.value,
        "samples": score.samples,
        "counts": _asked(deployment) == score.metric,
    }
    source = f"{QUALITY}/{score.metric}"
    seen = Seen(quality={score.metric: (score.value, score.samples)}).to_wire()
    if dict(row.evidence.get(source) or {}) == seen:
        return Outcome(None, {**answer, "changed": False})
    _refuse(row, source)
    draft = Draft((row,), now, actor)
    draft.set(row, evidence={**row.evidence, source: seen})
    said = {"metric": score.metric, "value": score.value, "samples": score.samples}
    draft.note(row, reason("revision.scored", **said, by=actor))
    return Outcome(draft.decision().change, {**answer, "changed": True})


def _named(deployment: Deployment, revisions: tuple[Revision, ...], word: str) -> Revision:
    found = next((r for r in revisions if word in (r.uid, r.name, str(r.number))), None)
    if found is None:
        there = ", ".join(str(r.number) for r in sorted(revisions, key=lambda r: r.number))
        raise NotFound(
            f"deployment {deployment.namespace}/{deployment.name} has no revision {word}",
            remedy=f"it has {there or 'none'}; see them with `moor rollout {deployment.name}`",
            target=f"Deployment {deployment.namespace}/{deployment.name}",
        )
    return found


def _refuse(row: Revision, source: str) -> None:
    if row.state in OVER:
        raise Conflict(
            f"revision {row.name} is {row.state} and is compared with nothing any more",
            code="revision_over",
            remedy="post the score of the candidate or of the active revision",
            target=f"Revision {row.name}",
        )
    kept = [name for name in row.evidence if name.startswith(QUALITY)]
    if source not in kept and len(kept) >= METRICS_MAX:
        raise Conflict(
            f"revision {row.name} has scores of {METRICS_MAX} metrics already",
            code="too_many_metrics",
            remedy="post only the metric that `rollout.guard.quality` names",
            target=f"Revision {row.name}",
        )


def _asked(deployment: Deployment) -> str | None:
    guard: Mapping[str, Any] = dict(dict(deployment.spec.get("rollout") or {}).get("guard") or {})
    return dict(guard.get("quality") or {}).get("name")

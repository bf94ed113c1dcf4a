"""What a rollout keeps in `Deployment.rollout`, as a typed value, and the live part of the spec that steers it.

Read by every file of this room, by the route and by the views; written by `proposing`, `advance`, `promoting` and
`rollback` alone.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from moorage.domain.nouns import Deployment

LIVE = ("header", "canary", "mirror")
"""Strategies under which requests of clients reach a candidate."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout, a rollback, or the window after a promotion.

    Args:
        candidate: uid of the revision that is to serve; in the window: that was promoted.
        baseline: uid of the one that serves; in the window: that served before.
        kind: rollout, rollback or window.
        strategy: how requests of clients come to the candidate; fixed when it began.
        since, step_since: when it began, and when its present canary step did; seconds since the epoch.
        step, weight: canary step (0: the first), and the candidate's per cent of the requests.
        deadline: until when it must be promoted; None: none runs.
        evidence_id: what clients and synthetic requests meet is counted under it; another one begins at zero.
        numbers: number of each of the two revisions, by uid.
        window_until: end of the window.
        by, why: who went back, and why.
        served: the baseline had a ready replica (or slept) at the first look, so that one without any was stopped for
            the candidate; None: nobody looked yet.
        steady_s: seconds that the candidate must have been ready at a stretch, since it was ready and ceased to be.
    """

    candidate: str
    baseline: str
    kind: str = "rollout"
    strategy: str = "none"
    since: float = 0.0
    step: int = 0
    weight: int = 0
    step_since: float = 0.0
    deadline: float | None = None
    evidence_id: str | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)
    window_until: float | None = None
    by: str | None = None
    why: str | None = None
    served: bool | None = None
    steady_s: float = 0.0

    def to_wire(self) -> dict[str, Any]:
        """As it is kept."""
        return {k: v for k, v in asdict(self).items() if v is not None}

    def but(self, **changes: Any) -> "Rollout":
        """The same with these fields changed."""
        return replace(self, **changes)


_FIELDS = frozenset(Rollout.__dataclass_fields__)


def rollout_of(deployment: Deployment) -> Rollout | None:
    """What is under way; None: nothing."""
    kept = deployment.rollout
    if not kept:
        return None
    return Rollout(**{k: v for k, v in kept.items() if k in _FIELDS})


@dataclass(frozen=True, slots=True)
class Terms:
    """`rollout:` of the spec as last applied; seconds, per cent."""

    strategy: str = "none"
    steps: tuple[int, ...] = (5, 25, 50)
    step_interval_s: float = 60.0
    auto: bool = True
    replace: bool = False
    deadline_s: float = 1800.0
    window_s: float = 300.0
    guard: Mapping[str, Any] = field(default_factory=dict)

    @property
    def guards(self) -> bool:
        """Whether the release guard is switched on."""
        return bool(self.guard.get("enabled", True))


def terms_of(deployment: Deployment) -> Terms:
    """The terms that hold now."""
    spec: Mapping[str, Any] = dict(deployment.spec).get("rollout") or {}
    usual = Terms()
    return Terms(
        strategy=str(spec.get("strategy", usual.strategy)),
        steps=tuple(int(s) for s in spec.get("steps", usual.steps)),
        step_interval_s=float(spec.get("step_interval", usual.step_interval_s)),
        auto=bool(spec.get("auto", usual.auto)),
        replace=spec.get("capacity", "extra") == "replace",
        deadline_s=float(spec.get("deadline", usual.deadline_s)),
        window_s=float(spec.get("rollback_window", usual.window_s)),
        guard=dict(spec.get("guard") or {}),
    )


def takes_requests(deployment: Deployment, revision: str) -> bool:
    """Whether requests of clients may come to this revision's replicas.

    To the active one (before there is one: to the first), and to a candidate whose strategy sends it some. To nothing
    else, ever: a revision that ended is named by neither field.
    """
    if deployment.active_revision is None:
        return revision == deployment.candidate_revision or deployment.candidate_revision is None
    if revision == deployment.active_revision:
        return True
    rollout = rollout_of(deployment)
    return (
        revision == deployment.candidate_revision
        and rollout is not None
        and (rollout.kind, rollout.candidate) == ("rollout", revision)
        and rollout.strategy in LIVE
    )

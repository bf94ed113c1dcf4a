"""How a run of its own comes to be: by a person's command, as the repetition of a finished one, by a schedule. Pure.

Where nothing but the spec says what its workers are and may wait for, a command makes them with it, by the recipe's own
stages: one commit fewer, and the scheduler sees them a step sooner. Otherwise the recipe plans them once the run is
there. Called by `commands` and `schedules`.
"""

from collections.abc import Mapping
from typing import Any

from moorage.decide.decision import Draft, Ids
from moorage.decide.running.cron import next_due
from moorage.decide.running.planning import plan_workers
from moorage.decide.running.policy import Policy
from moorage.decide.running.snapshot import RunSnapshot
from moorage.decide.running.waits import hold_back
from moorage.domain import limits
from moorage.domain.ids import digest
from moorage.domain.nouns import Run
from moorage.domain.reasons import Reason, reason

LIVE_FIELDS = frozenset({"labels", "annotations"})
"""What of a spec may change while its run lives; the digest is of everything else."""


def run_digest(spec: Mapping[str, Any]) -> str:
    """The digest by which a spec is recognised as the one that a run has already."""
    return digest({key: value for key, value in spec.items() if key not in LIVE_FIELDS})


def create_run(
    draft: Draft,
    uid: str,
    namespace: str,
    name: str,
    spec: Mapping[str, Any],
    *,
    restarted_from: str | None = None,
    scheduled_by: str | None = None,
) -> Run:
    """Add a new run to the draft.

    Args:
        spec: the normalised document; one with a `schedule` makes runs and never has workers of its own.
        restarted_from: uid of the finished run that it repeats.
        scheduled_by: uid of the run whose schedule made it.
    """
    schedule: Mapping[str, Any] | None = spec.get("schedule")
    row = Run(
        uid=uid,
        namespace=namespace,
        name=name,
        labels=dict(spec.get("labels") or {}),
        annotations=dict(spec.get("annotations") or {}),
        spec=dict(spec),
        priority=int(spec.get("priority") or 0),
        queued_at=draft.now,
        digest=run_digest(spec),
        restarted_from=restarted_from,
        scheduled_by=scheduled_by,
        schedule=_first_due(schedule, draft.now) if schedule else None,
    )
    return draft.create(row, waiting_reason(row) or reason("run.created"))


def with_workers(draft: Draft, run: Run, ids: Ids) -> None:
    """Make the workers of a run that was just added to the draft, if that depends on nothing else.

    It does on the fleet (`total_gpus`), on other runs (`after`), and of a large run only the first would be made.
    """
    groups = run.spec.get("groups") or ()
    if run.schedule is not None or run.spec.get("after") or any(g.get("total_gpus") is not None for g in groups):
        return
    array: Mapping[str, Any] = run.spec.get("array") or {}
    if sum(int(array.get("count") or group.get("count") or 1) for group in groups) > limits.AT_ONCE:
        return
    snapshot = RunSnapshot(now=draft.now, run=run)
    if plan_workers(draft, snapshot, ids):
        hold_back(draft, snapshot, Policy.of(run))


def waiting_reason(run: Run) -> Reason | None:
    """What a run with a schedule waits for; None for any other, and where no time is due any more."""
    next_at = (run.schedule or {}).get("next_at")
    if next_at is None:
        return None
    asked: Mapping[str, Any] = run.spec["schedule"]
    return reason("run.scheduled", next_at=next_at, cron=asked["cron"], timezone=asked["timezone"])


def _first_due(schedule: Mapping[str, Any], now: float) -> dict[str, Any]:
    return {"next_at": next_due(schedule["cron"], schedule["timezone"], now), "last_at": None, "made": ()}

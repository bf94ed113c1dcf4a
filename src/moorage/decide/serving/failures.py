"""Stage 2: failures are counted, back-off is set, and a deployment that never served fails for good.

First crash, or the first after ten minutes of running: replaced at once; then 10 s doubling to 5 min. A fatal failure
is never answered at once. Ten minutes in which everything wanted runs set the count to 0. A revision that has served
keeps its deployment `created`, whatever fails later.
"""

from collections.abc import Sequence

from moorage.decide.decision import Draft
from moorage.decide.serving.phase import desired_replicas
from moorage.decide.serving.replicas import Failure
from moorage.decide.serving.rollout.closing import end_candidate
from moorage.decide.serving.rollout.roles import candidate_beside, counters_of, live_replicas, serving_uid
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.failures import FailReason
from moorage.domain.nouns import Deployment, Replica, Revision
from moorage.domain.reasons import reason
from moorage.domain.states import DeploymentStatus, RevisionState

BACKOFF_S = 10.0
BACKOFF_MAX_S = 300.0
RESET_AFTER_S = 600.0
"""Running this long makes the next failure count as the first."""


def backoff_s(failures_in_row: int, *, fatal: bool) -> float:
    """Seconds to wait before the replacement of the n-th failure in a row."""
    if failures_in_row <= 1:
        return BACKOFF_S if fatal else 0.0
    return float(min(BACKOFF_S * 2.0 ** min(failures_in_row - 2, 10), BACKOFF_MAX_S))


def count(draft: Draft, snapshot: ServingSnapshot, failures: Sequence[Failure]) -> None:
    """Write each failure into the row that counts for its revision; of one that is not wanted any more none counts."""
    deployment = snapshot.deployment
    for failure in failures:
        current = counters_of(draft, deployment, failure.replica.revision)
        if current is None:
            continue
        long_run = failure.ran_s is not None and failure.ran_s >= RESET_AFTER_S
        in_row = 1 if long_run else current.failures_in_row + 1
        wait_s = backoff_s(in_row, fatal=failure.fatal)
        retry_at = draft.now + wait_s if wait_s else None
        draft.set(
            current,
            failures_in_row=in_row,
            failed_at=draft.now,
            last_failure=dict(failure.replica.last_failure or {}),
            retry_at=retry_at,
            fatal_since_ran=current.fatal_since_ran or failure.fatal,
            not_ready=_not_ready(current, failure),
        )
        serves = isinstance(current, Deployment)
        if serves and retry_at is not None and _goes_on(draft, draft.row(deployment)):
            draft.because(deployment, reason("deploy.retry", at=retry_at, n=in_row, last=failure.reason.message))
    if failures:
        _fail_wake(draft, deployment)


def _goes_on(draft: Draft, deployment: Deployment) -> bool:
    """Whether there will be a next try: one that failed fatally and never served fails for good with its last replica,
    unless that one is ready before.
    """
    if deployment.status is not DeploymentStatus.CREATED:
        return False
    doomed = deployment.fatal_since_ran and not deployment.initial_scale_reached
    return not doomed or any(r.routed for r in draft.of(Replica))


def _not_ready(counters: Deployment | Revision, failure: Failure) -> tuple[int, ...]:
    """Ordinals whose last replica was not ready in time; the next one there for which that holds is fatal."""
    ordinal = failure.replica.ordinal
    others = tuple(n for n in counters.not_ready if n != ordinal)
    return (*others, ordinal) if failure.fail_reason is FailReason.NOT_READY_IN_TIME else others


def forgive(draft: Draft, snapshot: ServingSnapshot) -> None:
    """Everything wanted has run for ten minutes: the next failure is the first."""
    deployment = draft.row(snapshot.deployment)
    if not deployment.failures_in_row or deployment.status is not DeploymentStatus.CREATED:
        return
    serving = serving_uid(deployment)
    live = [r for r in live_replicas(draft, serving) if r.stopping is None] if serving else []
    if len(live) < desired_replicas(deployment) or not all(r.routed for r in live):
        return
    since = max((r.ready_at for r in live if r.ready_at is not None), default=draft.now)
    if draft.now >= since + RESET_AFTER_S:
        draft.set(deployment, failures_in_row=0)
    else:
        draft.look_again(since + RESET_AFTER_S)


def _fail_wake(draft: Draft, deployment: Deployment) -> None:
    current = draft.row(deployment)
    if current.waking is not None and not any(r.routed for r in draft.of(Replica)):
        draft.set(deployment, wake_failures=current.wake_failures + 1)


def fail_for_good(draft: Draft, snapshot: ServingSnapshot) -> None:
    """A revision of which nothing can come any more; with the first one its deployment fails, in the same change."""
    deployment = draft.row(snapshot.deployment)
    if deployment.status is not DeploymentStatus.CREATED or deployment.deleting:
        return
    candidate = candidate_beside(draft, deployment)
    if candidate is not None and _spent(draft, candidate, candidate.uid):
        why = reason("revision.failed", why=_last_message(candidate), replica=_last_replica(draft, candidate))
        end_candidate(draft, deployment, candidate, "failed_fatal", why)
    serving = serving_uid(deployment)
    if serving is None or not _spent(draft, deployment, serving):
        return
    message = _last_message(deployment)
    why = reason("deploy.failed_fatal", replica=_last_replica(draft, deployment) or "-", reason=message)
    draft.step(deployment, DeploymentStatus.FAILED, "failed_fatal", why, retry_at=None, waking=None, hold=None)
    for revision in draft.of(Revision):
        if revision.state in (RevisionState.CANDIDATE, RevisionState.PROVISIONING):
            draft.step(revision, RevisionState.FAILED, "failed_fatal", reason("revision.failed", why=message))


def _spent(draft: Draft, counters: Deployment | Revision, revision: str) -> bool:
    """A replica failed fatally, no other of the revision lives, and it never reached its initial scale."""
    return counters.fatal_since_ran and not counters.initial_scale_reached and not live_replicas(draft, revision)


def _last_message(counters: Deployment | Revision) -> str:
    last = dict(counters.last_failure or {})
    return str(dict(last.get("reason") or {}).get("message", "a replica failed"))


def _last_replica(draft: Draft, counters: Deployment | Revision) -> str | None:
    uid = dict(counters.last_failure or {}).get("replica")
    return next((r.name for r in draft.of(Replica) if r.uid == uid), uid)

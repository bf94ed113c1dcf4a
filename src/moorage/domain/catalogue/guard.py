"""Reasons of a release decision: what rejects a candidate, what makes it wait, what lets it pass; and a posted score.

`metric`, `active`, `candidate` and `limit` are the decision's own fields; the numbers are in the metric's unit.
"""

from moorage.domain.catalogue.entry import by_person, failed, progress, waiting
from moorage.domain.reason_types import ReasonType

_EXPLAIN = "`moor rollout X explain` shows the evidence; mend the candidate, then apply it again."


def _regression(code: str, what: str, advice: str = _EXPLAIN) -> ReasonType:
    return failed(
        code,
        what + ": {candidate} against {active} of the active revision (limit {limit})",
        "metric",
        "active",
        "candidate",
        "limit",
        optional=("interval",),
        advice=advice,
    )


_COMPARED = ("metric", "active", "candidate", "limit")

REJECT = (
    failed(
        "candidate_not_ready",
        "The candidate has no ready replica[: {why}]",
        optional=("why", *_COMPARED),
        advice="See the candidate's replicas in `moor rollout X`; mend what keeps them from being ready.",
    ),
    failed(
        "compatibility_mismatch",
        "The candidate does not list what its spec declares: expected {expected}, listed {listed}",
        "expected",
        "listed",
        optional=_COMPARED,
        advice="Make the model id and aliases of the spec and those of the server the same.",
    ),
    _regression("error_rate_regression", "More requests fail"),
    _regression("ttft_regression", "The first token comes later"),
    _regression("latency_regression", "Requests take longer"),
    _regression("output_throughput_regression", "Fewer tokens a second"),
    _regression("quality_regression", "The quality measure {metric} is worse"),
)

WAIT = (
    waiting(
        "insufficient_requests",
        "Too few requests to compare[: {candidate} on the candidate, {active} on the active, {limit} needed]"
        "[: {alone} on the candidate, while the active one is stopped to make room for it, {limit} needed]"
        "[ to tell whether it is worse in {suspected}]",
        optional=("alone", "suspected", *_COMPARED),
        advice="Send it traffic, or give `rollout.guard.synthetic` a file of requests; both count.",
    ),
    waiting(
        "ttft_unavailable",
        "The candidate has no time to the first token yet",
        optional=_COMPARED,
        advice="Only streamed answers have one: send streamed requests.",
    ),
    waiting(
        "evidence_unavailable",
        "The evidence is not there yet[: {metric}]",
        optional=_COMPARED,
        advice="See in `moor rollout X` which gateways report.",
    ),
    waiting(
        "quality_unavailable",
        "The quality measure[ {metric}] was not posted yet",
        optional=_COMPARED,
        advice="Post the score of both revisions (`moor evidence`), or take `rollout.guard.quality` out of the spec.",
    ),
    waiting(
        "synthetic_unproven",
        "The synthetic request fails on the active revision too, so that it proves nothing[: {error}]",
        optional=("error", *_COMPARED),
        advice="Mend the synthetic request: it must work on the active revision.",
    ),
)

ACCEPT = (
    progress("within_policy", "Every measure is within the policy", optional=_COMPARED),
    progress("guard_disabled", "The release guard is switched off", optional=_COMPARED),
    progress("guard_not_applicable", "Nothing can be measured here, so the guard does not apply", optional=_COMPARED),
    progress("no_baseline", "Ready, and there is no serving revision to compare with", optional=_COMPARED),
)

VERDICTS = (*REJECT, *WAIT, *ACCEPT)
"""In the order of a verdict: any rejection rejects, else any wait waits, else it is accepted."""

SCORED = by_person(
    "revision.scored",
    "{metric} is {value}, from {samples} samples[, as {by} says]",
    "metric",
    "value",
    "samples",
    optional=("by",),
)

ENTRIES = (*VERDICTS, SCORED)

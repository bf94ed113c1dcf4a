"""The release guard: (policy, evidence, facts) in, ACCEPT, WAIT or REJECT with reasons out. Pure.

1. grounds to reject: not ready; not what its spec declares; a measure that is worse and proven to be
2. grounds to wait: too few requests; a measure that only the candidate lacks, or that is worse and not proven yet
3. any rejection rejects with all of them; else any wait waits with all of them; else it is accepted

A measure that is beyond its limit without proof waits for more requests, up to `Policy.proof_requests` on each side;
with so many and still no proof it does not count. What is compared and what proves it: `measures` and `bounds`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from moorage.decide.serving.evidence import Seen
from moorage.decide.serving.guard import measures
from moorage.decide.serving.guard.decision import Ground, GuardDecision, Inputs, Verdict
from moorage.decide.serving.guard.measures import QUALITY, Measure, Standing
from moorage.decide.serving.guard.policy import Facts, Policy
from moorage.domain.catalogue import CATALOGUE
from moorage.domain.reasons import reason, render


def judge(policy: Policy, active: Seen | None, candidate: Seen, facts: Facts) -> GuardDecision:
    """Whether the candidate may take over.

    Args:
        policy: what it may be worse by.
        active: what was seen of the active revision; None: there is none that serves, nothing to compare with.
        candidate: what was seen of the candidate.
        facts: what is known beside that.
    """
    kept, active = active, _baseline(policy, active, candidate, facts)
    compared = _compared(policy, active, candidate, facts)
    rejects = tuple(_rejections(policy, compared, facts))
    waits = () if rejects else tuple(_waits(policy, active, candidate, compared, facts))
    if rejects:
        verdict, grounds = Verdict.REJECT, rejects
    elif waits:
        verdict, grounds = Verdict.WAIT, waits
    else:
        verdict, grounds = Verdict.ACCEPT, (_ground(_accepted(policy, active, facts)),)
    wanted = _wanted(policy, active, candidate, compared, facts) if verdict is Verdict.WAIT else 0
    return GuardDecision(verdict, grounds, policy, kept, candidate, facts, compared, wanted)


def replay(kept: Mapping[str, Any]) -> dict[str, Any]:
    """A stored decision worked out again from its own inputs; equal to it, byte for byte, in canonical JSON.

    What was kept beside the judgement (its id, the baseline, the time) is passed through.
    """
    inputs = Inputs.from_wire(kept)
    return {**kept, **judge(inputs.policy, inputs.active, inputs.candidate, inputs.facts).to_wire()}


def _baseline(policy: Policy, active: Seen | None, candidate: Seen, facts: Facts) -> Seen | None:
    """What the candidate is held against.

    One that was stopped for the candidate counts with what was seen of it before, if that is enough; else as one of
    which as many requests were seen and none failed, so that the candidate's own failures decide.
    """
    if not facts.baseline_stopped:
        return active
    if active is not None and active.requests >= policy.minimum_requests:
        return active
    return Seen(requests=candidate.requests, quality=active.quality if active is not None else {})


def _compared(policy: Policy, active: Seen | None, candidate: Seen, facts: Facts) -> tuple[Measure, ...]:
    """Nothing where there is nothing to compare, or the requests are too few to look at."""
    if active is None or not policy.enabled:
        return ()
    scored = measures.quality(policy, active, candidate)
    posted = (scored,) if scored is not None else ()
    if not facts.applicable:
        return posted
    if _too_few(policy, active, candidate):
        return (*posted, *_proven_early(policy, active, candidate, facts))
    return (*measures.requests(policy, active, candidate), *posted)


def _proven_early(policy: Policy, active: Seen, candidate: Seen, facts: Facts) -> Iterator[Measure]:
    """Alone, with requests held, a candidate whose failures prove enough already is not asked any further."""
    failing = measures.error_rate(policy, active, candidate)
    if facts.baseline_stopped and failing.standing is Standing.REGRESSED:
        yield failing


def _too_few(policy: Policy, active: Seen, candidate: Seen) -> bool:
    return min(active.requests, candidate.requests) < policy.minimum_requests


def _rejections(policy: Policy, compared: tuple[Measure, ...], facts: Facts) -> Iterator[Ground]:
    if not facts.candidate_ready:
        yield _ground("candidate_not_ready")
    if policy.enabled and facts.not_listed:
        yield _ground("compatibility_mismatch", expected=list(facts.not_listed), listed=list(facts.listed))
    for measure in compared:
        if measure.standing is Standing.REGRESSED:
            yield _regression(measure)


def _waits(
    policy: Policy, active: Seen | None, candidate: Seen, compared: tuple[Measure, ...], facts: Facts
) -> Iterator[Ground]:
    if active is None or not policy.enabled:
        return
    if facts.applicable and facts.synthetic_unproven:
        yield _ground("synthetic_unproven", error=facts.synthetic_error)
    if facts.applicable and _too_few(policy, active, candidate):
        yield _too_few_ground(active, candidate, policy.minimum_requests, facts)
    lacking = any(m.standing is Standing.MISSING and m.regression != QUALITY for m in compared)
    if candidate.requests and candidate.errors == candidate.requests and not lacking:
        yield _ground("evidence_unavailable", metric="latency_p95")  # no answer of it was ever good
    suspected = ", ".join(m.metric for m in compared if m.standing is Standing.SUSPECTED and m.regression != QUALITY)
    for measure in compared:
        if measure.standing is Standing.MISSING:
            yield _missing(measure)
        elif measure.standing is Standing.SUSPECTED:
            yield from _unproven(policy, active, candidate, measure, facts=facts, suspected=suspected)


def _missing(measure: Measure) -> Ground:
    known = {"metric": measure.metric, "active": measure.active, "candidate": measure.candidate}
    if measure.metric == "ttft_p95":
        return _ground("ttft_unavailable", **known)
    code = "quality_unavailable" if measure.regression == QUALITY else "evidence_unavailable"
    return _ground(code, **known)


def _unproven(
    policy: Policy, active: Seen, candidate: Seen, measure: Measure, *, facts: Facts, suspected: str
) -> Iterator[Ground]:
    """A difference that may be luck: quality waits for a score of more samples, the others for so many requests.

    Args:
        suspected: all metrics that wait for requests; each of them has a reason, and all of these the same sentence.
    """
    if measure.regression == QUALITY:
        yield _ground(
            "quality_unavailable",
            metric=measure.metric,
            active=measure.active,
            candidate=measure.candidate,
            limit=measure.limit,
        )
    elif min(active.requests, candidate.requests) < policy.proof_requests:
        needed = _next_look(policy, active, candidate)
        yield _too_few_ground(active, candidate, needed, facts, metric=measure.metric, suspected=suspected)


def _too_few_ground(
    active: Seen, candidate: Seen, needed: int, facts: Facts, *, metric: str | None = None, suspected: str | None = None
) -> Ground:
    more = {"metric": metric, "suspected": suspected}
    if facts.baseline_stopped:
        return _ground("insufficient_requests", **more, alone=candidate.requests, limit=needed)
    counts = {"active": active.requests, "candidate": candidate.requests, "limit": needed}
    return _ground("insufficient_requests", **more, **counts)


def _next_look(policy: Policy, active: Seen, candidate: Seen) -> int:
    """Half as many requests again as there are: looking after each one would find luck more often."""
    seen = min(active.requests, candidate.requests)
    return min(max(seen + (seen + 1) // 2, policy.minimum_requests), policy.proof_requests)


def _wanted(policy: Policy, active: Seen | None, candidate: Seen, compared: tuple[Measure, ...], facts: Facts) -> int:
    """Requests on each side with which more is known; 0: requests change nothing."""
    if active is None or not policy.enabled or not facts.applicable:
        return 0
    if _too_few(policy, active, candidate):
        return policy.minimum_requests
    ours = [m for m in compared if m.regression != QUALITY]
    lacking = any(m.standing in (Standing.MISSING, Standing.SUSPECTED) for m in ours)
    return _next_look(policy, active, candidate) if lacking else 0


def _accepted(policy: Policy, active: Seen | None, facts: Facts) -> str:
    if not policy.enabled:
        return "guard_disabled"
    if active is None:
        return "no_baseline"
    return "within_policy" if facts.applicable else "guard_not_applicable"


def _regression(measure: Measure) -> Ground:
    return _ground(
        measure.regression,
        metric=measure.metric,
        active=measure.active,
        candidate=measure.candidate,
        limit=measure.limit,
        interval=measure.bound,
    )


def _ground(code: str, **params: Any) -> Ground:
    checked = reason(code, **params)
    metric = checked.params.get("metric")
    shown = {name: _shown(metric, name, value) for name, value in checked.params.items()}
    return Ground(code, checked.params, render(CATALOGUE[code], shown), checked.advice)


def _shown(metric: str | None, name: str, value: Any) -> Any:
    """A number of a measure as a person reads it."""
    if not isinstance(value, float) or name not in ("active", "candidate", "limit"):
        return value
    if metric in ("ttft_p95", "latency_p95"):
        return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
    if metric == "error_rate":
        return f"{value * 100:.3g} %"
    return f"{value:.4g} tokens/s" if metric == "output_throughput" else f"{value:.4g}"

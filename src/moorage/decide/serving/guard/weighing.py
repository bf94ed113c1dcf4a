"""From what is kept of two revisions to one judgement: like is compared with like.

A candidate of strategy `none` meets only the requests that are sent to it, while the active revision serves clients
whose requests may be ten times as long; their times say nothing about each other. So times and throughput are compared
among clients' requests where both revisions had enough of them, else among the synthetic ones, which both got alike.
Failures are counted over everything: a request that failed a client is no less one for being of another kind.

Called by the rollout for each of its looks, and by the sender of synthetic requests.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from moorage.decide.serving.evidence import SYNTHETIC, Seen, together
from moorage.decide.serving.guard.decision import GuardDecision
from moorage.decide.serving.guard.judge import judge
from moorage.decide.serving.guard.policy import Facts, Policy
from moorage.domain.histogram import total

Kept = Mapping[str, Mapping[str, Any]]
"""`Revision.evidence`: source -> `Seen.to_wire()`; the synthetic source has further fields, which `facts_of` reads."""


def weigh(
    policy: Policy, active: Kept | None, candidate: Kept, *, candidate_ready: bool, applicable: bool
) -> GuardDecision:
    """The judgement on what is kept of two revisions.

    Args:
        active, candidate: their `evidence`; active None: there is no serving revision to compare with.
        candidate_ready: it has a ready replica.
        applicable: as `Facts.applicable`; `decide.serving.synthetic.applicable` tells it.
    """
    facts = facts_of(active, candidate, candidate_ready=candidate_ready, applicable=applicable)
    if all(_lived(side).requests >= policy.minimum_requests for side in (active or {}, candidate)):
        facts = replace(facts, synthetic_unproven=False)  # none of them is needed
    if active is None:
        return judge(policy, None, together(_seen(candidate.values())), facts)
    return judge(policy, *comparable(policy, active, candidate), facts)


def comparable(policy: Policy, active: Kept, candidate: Kept) -> tuple[Seen, Seen]:
    """What counts of each: all requests and failures, and the times of one kind of requests."""
    sides = (active, candidate)
    lived = [_lived(side) for side in sides]
    sent = [Seen.from_wire(side.get(SYNTHETIC) or {}) for side in sides]
    whole = [together((one, other)) for one, other in zip(lived, sent, strict=True)]
    if all(total(side.latency_us) >= policy.minimum_requests for side in lived):
        kind = lived
    elif all(side.latency_us for side in sent):
        kind = sent
    else:
        kind = whole
    first, second = (
        replace(w, ttft_us=k.ttft_us, latency_us=k.latency_us, throughput_milli=k.throughput_milli)
        for w, k in zip(whole, kind, strict=True)
    )
    return first, second


def facts_of(active: Kept | None, candidate: Kept, *, candidate_ready: bool, applicable: bool) -> Facts:
    """The facts beside the counts, as the sender of synthetic requests left them (`unproven`, `listed`)."""
    sent = (active or {}).get(SYNTHETIC) or {}
    asked = candidate.get(SYNTHETIC) or {}
    return Facts(
        candidate_ready=candidate_ready,
        applicable=applicable,
        synthetic_unproven=bool(sent.get("unproven")),
        synthetic_error=sent.get("unproven") or None,
        not_listed=tuple(asked.get("not_listed") or ()),
        listed=tuple(asked.get("listed") or ()),
    )


def _lived(side: Kept) -> Seen:
    """What clients met, and what was posted from outside."""
    return together(_seen(kept for source, kept in side.items() if source != SYNTHETIC))


def _seen(kept: Iterable[Mapping[str, Any]]) -> Iterable[Seen]:
    return tuple(Seen.from_wire(one) for one in kept)

"""What of the evidence of two revisions is compared: like with like.

A candidate of strategy `none` meets only the requests that are sent to it, while the active revision serves clients
whose requests may be ten times as long; their times say nothing about each other. Where clients reach both, times and
throughput are compared among clients' requests as soon as both revisions had enough of them, before that among those
that were sent, which both got alike. Failures then count over everything: a request that failed a client is no less
one for being of another kind. Called by the rollout for each of its looks.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from moorage.decide.serving.evidence import SYNTHETIC, Seen, compared
from moorage.domain.histogram import total

Kept = Mapping[str, Mapping[str, Any]]
"""`Revision.evidence`: source -> `Seen.to_wire()`."""


def comparable(active: Kept, candidate: Kept, strategy: str, minimum: int) -> tuple[Seen, Seen]:
    """What counts of each.

    Args:
        strategy: of the rollout, or `window`, as `evidence.compared` has it.
        minimum: requests on each side that make clients' requests enough.
    """
    whole = compared(active, strategy), compared(candidate, strategy)
    if strategy in ("none", "window"):
        return whole
    kind = _of_one_kind((active, candidate), whole, minimum)
    return _with_times(whole[0], kind[0]), _with_times(whole[1], kind[1])


def _of_one_kind(sides: tuple[Kept, Kept], whole: tuple[Seen, Seen], minimum: int) -> tuple[Seen, ...]:
    clients = tuple(compared(side, "window") for side in sides)
    if all(total(one.latency_us) >= minimum for one in clients):
        return clients
    sent = tuple(Seen.from_wire(side.get(SYNTHETIC) or {}) for side in sides)
    return sent if all(one.latency_us for one in sent) else whole


def _with_times(seen: Seen, times: Seen) -> Seen:
    return replace(seen, ttft_us=times.ttft_us, latency_us=times.latency_us, throughput_milli=times.throughput_milli)

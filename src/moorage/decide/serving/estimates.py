"""How long whoever is refused had better wait: the seconds of `Retry-After`, by what was seen.

Here: sums over what an endpoint's state has measured, and whose turn was told already. Not here: the measuring
(`routing`), the answers (`refusals`).

A wait that the control plane tells (it knows when the next start is due) goes before every estimate.
"""

from typing import Final

from moorage.decide.serving.routes import EndpointState

LEAST_S: Final = 1.0
MOST_S: Final = 120.0
COLD_S: Final = 5.0
"""Of an endpoint that was never seen to wake."""
LENGTHS_MAX: Final = 16
"""Turns that are told ahead at most, in lengths of the queue: who asks again at once, over and over, takes no more."""
WEIGHT: Final = 0.1
"""Of the newest service time in their mean."""


def within(seconds: float) -> float:
    """What may be told."""
    return min(MOST_S, max(LEAST_S, seconds))


def drained(ahead: int, service_s: float, places: int) -> float:
    """When a place is free for one that stands behind `ahead` others."""
    return within((ahead + 1) * service_s / places) if places > 0 else COLD_S


def places(endpoint: EndpointState) -> int:
    """Requests that its open replicas may have in flight together."""
    targets = endpoint.targets if endpoint.split is None else endpoint.split.targets
    return endpoint.route.limits.max_in_flight * sum(not target.aside for target in targets)


def of_queue(endpoint: EndpointState, now: float) -> float:
    """After a refusal because too many wait, or waited too long: the next turn that nobody was told yet."""
    told = endpoint.route.retry_after_s
    if told:
        return told
    free = places(endpoint) if endpoint.route.mode == "serve" else 0
    service_s = endpoint.service_s
    if service_s is None:
        return LEAST_S if free else of_wake(endpoint, now)
    least_s = drained(len(endpoint.waiting), service_s, free) if free else of_wake(endpoint, now)
    return _in_turn(endpoint, now, least_s, service_s / (free or endpoint.route.limits.max_in_flight))


def _in_turn(endpoint: EndpointState, now: float, least_s: float, each_s: float) -> float:
    """A flood that is refused in one moment must not come back in one, only to be refused again.

    Args:
        each_s: from one place that becomes free to the next.
    """
    limits = endpoint.route.limits
    last_s = least_s + LENGTHS_MAX * (limits.max_queue + limits.max_in_flight) * each_s
    turn_s = min(max(least_s, endpoint.promised_at - now), last_s)
    endpoint.promised_at = now + turn_s + each_s
    return within(turn_s)


def of_wake(endpoint: EndpointState, now: float) -> float:
    """Until a cold endpoint serves: the time that it took last, less what has passed of this one."""
    told = endpoint.route.retry_after_s
    if told:
        return told
    if endpoint.wake_s is None:
        return COLD_S
    passed = now - endpoint.cold_at if endpoint.cold_at is not None else 0.0
    return within(endpoint.wake_s - passed)


def measure_service(endpoint: EndpointState, took_s: float) -> None:
    """Take one more service time into the mean."""
    mean = endpoint.service_s
    endpoint.service_s = took_s if mean is None else mean + WEIGHT * (took_s - mean)

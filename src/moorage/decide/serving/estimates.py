"""How long whoever is refused had better wait: the seconds of `Retry-After`, by what was seen.

Here: sums over what an endpoint's state has measured. Not here: the measuring (`routing`), the answers (`refusals`).

A wait that the control plane tells (it knows when the next start is due) goes before every estimate.
"""

from typing import Final

from moorage.decide.serving.routes import EndpointState

LEAST_S: Final = 1.0
MOST_S: Final = 120.0
COLD_S: Final = 5.0
"""Of an endpoint that was never seen to wake."""
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
    """After a refusal because too many wait, or waited too long."""
    told = endpoint.route.retry_after_s
    if told:
        return told
    free = places(endpoint) if endpoint.route.mode == "serve" else 0
    if not free:
        return of_wake(endpoint, now)
    if endpoint.service_s is None:
        return LEAST_S
    return drained(len(endpoint.waiting), endpoint.service_s, free)


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

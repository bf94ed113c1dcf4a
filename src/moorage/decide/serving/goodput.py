"""How many requests a second one replica bears within its SLO, and whether that is known well enough to scale by.

A measurement is one stable window at one size, with every replica ready, with at least `REQUESTS` requests and under
load: an idle replica tells what is asked of it, not what it bears. Where a percentile was above its target, the rate
counts for less in the same proportion. It acts once an earlier measurement of the same revision came to the same
within `COMPARABLE`; a worse one acts at once, a better one once it was seen twice. Pure; called by `autoscale`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.decide.serving.snapshot import Load

REQUESTS = 20
"""Fewest requests of a measurement (the lifecycle contract §7)."""

AT_LOAD = 0.5
"""Of `target_in_flight`, in flight or held for each replica, from which on it is under load."""

MEASURED = "slo/"
"""How the id begins under which gateways count latencies for this alone; no release decision reads them."""

COMPARABLE = 0.25
"""By how much two measurements may differ and still confirm each other."""


@dataclass(frozen=True, slots=True)
class Slo:
    """Targets in seconds; None: not asked for."""

    ttft_p95_s: float | None
    latency_p95_s: float | None

    @staticmethod
    def of(asked: Mapping[str, Any] | None) -> "Slo | None":
        """From `scaling.slo`; None where nothing is asked."""
        ttft, latency = (asked or {}).get("ttft_p95"), (asked or {}).get("latency_p95")
        if ttft is None and latency is None:
            return None
        return Slo(None if ttft is None else float(ttft), None if latency is None else float(latency))


@dataclass(frozen=True, slots=True)
class Bench:
    """The circumstances of a measurement.

    Args:
        revision: which revision served.
        replicas: so many, all of them ready; 0: not all are.
        steady_s: for so long it has had this size.
        window_s: over so long is measured.
        at_load: `target_in_flight`.
    """

    revision: str
    replicas: int
    steady_s: float
    window_s: float
    at_load: float


def measure(kept: Mapping[str, Any] | None, slo: Slo, load: Load, bench: Bench, now: float) -> dict[str, Any] | None:
    """What is kept from now on: {revision, at, last, per_replica, samples}; None: there is nothing new."""
    known = kept if kept is not None and kept.get("revision") == bench.revision else None
    if not _is_measurable(load, bench) or (known is not None and now < float(known["at"]) + bench.window_s):
        return None
    excess = _excess(slo, load)
    if excess is None:
        return None
    found = load.rate / bench.replicas / max(excess, 1.0)
    return {
        "revision": bench.revision,
        "at": now,
        "last": found,
        "per_replica": _confirmed(known, found, within=excess <= 1.0),
        "samples": load.samples,
    }


def qualified(kept: Mapping[str, Any] | None, revision: str) -> tuple[float | None, str | None]:
    """Requests a second for each replica, or why there is nothing to go by yet."""
    if kept is None or kept.get("revision") != revision:
        return None, f"no {REQUESTS} requests under load were measured at one size yet"
    if kept.get("per_replica") is None:
        return None, "an earlier measurement that came to the same is missing"
    return float(kept["per_replica"]), None


def _is_measurable(load: Load, bench: Bench) -> bool:
    watched = load.stable_s >= bench.window_s and bench.steady_s >= bench.window_s
    if bench.replicas < 1 or not watched or load.samples < REQUESTS or load.rate <= 0:
        return False
    return load.stable >= AT_LOAD * bench.at_load * bench.replicas


def _excess(slo: Slo, load: Load) -> float | None:
    """How far the worse of the two is above its target, as a factor; None: one that is asked for was not seen."""
    found: list[float] = []
    for target, seen in ((slo.ttft_p95_s, load.ttft_p95_s), (slo.latency_p95_s, load.latency_p95_s)):
        if target is None:
            continue
        if seen is None:
            return None
        found.append(seen / target)
    return max(found)


def _confirmed(known: Mapping[str, Any] | None, found: float, *, within: bool) -> float | None:
    if known is None:
        return None
    last, before = float(known["last"]), known.get("per_replica")
    if before is not None and not within:
        return found
    twice = min(found, last) if abs(found - last) <= COMPARABLE * max(found, last) else None
    if before is None or twice is None:
        return twice if before is None else float(before)
    return max(float(before), twice)

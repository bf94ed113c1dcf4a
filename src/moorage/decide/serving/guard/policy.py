"""The release guard's policy and the facts beside the evidence: the inputs of a judgement that are not measured."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

PROOF_REQUESTS = 200
"""Requests on each side up to which a difference that is seen but not proven is waited with; beyond it does not count.
At 200 a doubled p95 is proven for latencies that scatter as much as their mean, 5 % errors against none as well
(docs/decisions/0024): what is still not proven then is small or rare, and would hold a rollout until its deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a candidate may be worse by, `rollout.guard` of the spec; exactly so much worse passes.

    Args:
        enabled: False accepts whatever is ready.
        minimum_requests: on each side, before anything is compared.
        ttft_percent, latency_percent: how much later the 95th percentile may come, per cent.
        error_rate: how much more of the requests may fail, as a share (0.01: one in a hundred).
        throughput_percent: how much fewer tokens a second the median answer may have, per cent.
        quality: name of the measure that is posted from outside; None: none is asked for.
        quality_max_drop: how much lower that may be.
    """

    enabled: bool = True
    minimum_requests: int = 20
    ttft_percent: float = 15.0
    latency_percent: float = 15.0
    error_rate: float = 0.01
    throughput_percent: float = 20.0
    quality: str | None = None
    quality_max_drop: float = 0.01

    @classmethod
    def of(cls, guard: Mapping[str, Any] | None) -> "Policy":
        """Of a normalised `rollout.guard`; None or a missing field means the default."""
        given = dict(guard or {})
        quality = given.get("quality") or {}
        usual = cls()
        return cls(
            enabled=bool(given.get("enabled", usual.enabled)),
            minimum_requests=int(given.get("minimum_requests", usual.minimum_requests)),
            ttft_percent=float(given.get("ttft_percent", usual.ttft_percent)),
            latency_percent=float(given.get("latency_percent", usual.latency_percent)),
            error_rate=float(given.get("error_rate", usual.error_rate)),
            throughput_percent=float(given.get("throughput_percent", usual.throughput_percent)),
            quality=quality.get("name"),
            quality_max_drop=float(quality.get("max_drop", usual.quality_max_drop)),
        )

    @property
    def proof_requests(self) -> int:
        """Requests on each side after which an unproven difference is waited with no longer."""
        return max(PROOF_REQUESTS, 2 * self.minimum_requests)

    def to_wire(self) -> dict[str, Any]:
        """As it is stored with the decision."""
        return asdict(self)

    @classmethod
    def from_wire(cls, kept: Mapping[str, Any]) -> "Policy":
        """From what `to_wire` made; what a later version adds is left out."""
        given: dict[str, Any] = {f.name: kept[f.name] for f in fields(cls) if f.name in kept}
        return cls(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of the two revisions beside the measurements.

    Args:
        candidate_ready: it has a ready replica.
        applicable: its requests can be measured at all: clients may reach it (header, canary, mirror), or there is
            something to send (`synthetic.source_of`).
        synthetic_unproven: the requests that are sent fail on the active revision too.
        synthetic_error: how they fail.
        not_listed: of what the candidate's spec declares (model id, aliases), what its server does not list.
        listed: what it lists instead.
        baseline_stopped: the active revision was stopped to make room for the candidate: it cannot be asked.
    """

    candidate_ready: bool = True
    applicable: bool = True
    synthetic_unproven: bool = False
    synthetic_error: str | None = None
    not_listed: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    baseline_stopped: bool = False

    def to_wire(self) -> dict[str, Any]:
        """As it is stored with the decision."""
        kept = {**asdict(self), "not_listed": list(self.not_listed), "listed": list(self.listed)}
        if not self.baseline_stopped:  # as decisions were kept that know nothing of it
            del kept["baseline_stopped"]
        return kept

    @classmethod
    def from_wire(cls, kept: Mapping[str, Any]) -> "Facts":
        """From what `to_wire` made."""
        given: dict[str, Any] = {f.name: kept[f.name] for f in fields(cls) if f.name in kept}
        for name in ("not_listed", "listed"):
            given[name] = tuple(given.get(name) or ())
        return cls(**given)

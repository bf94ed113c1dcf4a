"""What the guard decided, with everything it decided on, so that the same answer can be worked out again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from moorage.decide.serving.evidence import Seen
from moorage.decide.serving.guard.measures import Measure, Standing
from moorage.decide.serving.guard.policy import Facts, Policy

RULES = 1
"""Raised when the same inputs would be judged differently."""


class Verdict(StrEnum):
    """What becomes of the candidate."""

    ACCEPT = "ACCEPT"
    WAIT = "WAIT"
    REJECT = "REJECT"


@dataclass(frozen=True, slots=True)
class Ground:
    """One reason of a decision.

    Args:
        code: of the catalogue.
        params: as the catalogue has them, numbers in the metric's unit.
        message: the sentence, numbers with their unit.
        advice: what to do about it.
    """

    code: str
    params: Mapping[str, Any]
    message: str
    advice: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """{code, metric, active, candidate, limit, message} and what else it has."""
        shown = {name: self.params.get(name) for name in ("metric", "active", "candidate", "limit")}
        more = {name: value for name, value in self.params.items() if name not in shown}
        advice = {"advice": self.advice} if self.advice else {}
        return {"code": self.code, **shown, **more, "message": self.message, **advice}


@dataclass(frozen=True, slots=True)
class GuardDecision:
    """One judgement.

    Args:
        reasons: any rejection rejects with all rejections, else any wait waits with all waits, else it is accepted.
        policy, active, candidate, facts: what it was made on; `active` None: there is no baseline.
        measures: every comparison, also those that passed.
        wanted: requests on each side with which the guard would know more; 0: no more are needed.
    """

    verdict: Verdict
    reasons: tuple[Ground, ...]
    policy: Policy
    active: Seen | None
    candidate: Seen
    facts: Facts
    measures: tuple[Measure, ...] = ()
    wanted: int = 0

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of the reasons, in order."""
        return tuple(ground.code for ground in self.reasons)

    @property
    def outcome(self) -> tuple[str, tuple[tuple[str, str | None], ...]]:
        """Verdict, and (code, metric) of each reason: a decision with the same ones is not news."""
        return str(self.verdict), tuple((g.code, g.params.get("metric")) for g in self.reasons)

    @property
    def not_applicable(self) -> tuple[str, ...]:
        """Metrics that were not compared, since the active revision does not have them."""
        return tuple(m.metric for m in self.measures if m.standing is Standing.NOT_APPLICABLE)

    def to_wire(self) -> dict[str, Any]:
        """As it is stored; `replay` works out the same from it."""
        return {
            "rules": RULES,
            "verdict": str(self.verdict),
            "reasons": [ground.to_wire() for ground in self.reasons],
            "measures": [measure.to_wire() for measure in self.measures],
            "not_applicable": list(self.not_applicable),
            "wanted": self.wanted,
            "policy": self.policy.to_wire(),
            "evidence": {
                "active": self.active.to_wire() if self.active is not None else None,
                "candidate": self.candidate.to_wire(),
            },
            "facts": self.facts.to_wire(),
        }


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a stored decision was made on."""

    policy: Policy
    active: Seen | None
    candidate: Seen
    facts: Facts = field(default_factory=Facts)

    @classmethod
    def from_wire(cls, kept: Mapping[str, Any]) -> "Inputs":
        """From what `GuardDecision.to_wire` made."""
        evidence = kept["evidence"]
        active = evidence.get("active")
        return cls(
            policy=Policy.from_wire(kept["policy"]),
            active=Seen.from_wire(active) if active is not None else None,
            candidate=Seen.from_wire(evidence["candidate"]),
            facts=Facts.from_wire(kept.get("facts") or {}),
        )


def same_outcome(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two stored decisions say the same: verdict, codes and metrics; numbers alone are no news."""
    return _outcome(one) == _outcome(other)


def _outcome(kept: Mapping[str, Any]) -> tuple[Any, ...]:
    return kept["verdict"], tuple((r["code"], r.get("metric")) for r in kept["reasons"])

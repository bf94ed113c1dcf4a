"""The release guard: a pure function of policy, evidence and facts. `judge` decides, `replay` works it out again.

Called by the rollout (`decide/serving/rollout`), by the views where a decision is explained, and by the sender of
synthetic requests, which asks what is still missing. It writes nothing and knows no rows.
"""

from moorage.decide.serving.guard.decision import GuardDecision, Verdict, same_outcome
from moorage.decide.serving.guard.judge import judge, replay
from moorage.decide.serving.guard.policy import Facts, Policy
from moorage.decide.serving.guard.weighing import comparable

__all__ = ["Facts", "GuardDecision", "Policy", "Verdict", "comparable", "judge", "replay", "same_outcome"]

"""The requests that the control plane sends itself while two revisions are compared: which ones, and how many still.

Both revisions get the same ones, so that clients need not bring the traffic that a comparison needs. Pure; sent by
`moorage.control.synthetic`, which keeps what came of them in `Revision.evidence["synthetic"]`: the counts of a `Seen`,
and beside them `unproven` (of the active revision: how every request failed so far), `listed` and `not_listed` (of the
candidate: what its server lists, and what of its spec is not among it).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moorage.decide.serving.evidence import SYNTHETIC, Seen, together
from moorage.decide.serving.guard.decision import GuardDecision
from moorage.decide.serving.guard.policy import Facts, Policy
from moorage.domain.nouns import Deployment, Revision

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"

BUILT_IN = (
    "Say hello in one short sentence.",
    "Name three colours.",
    "What is seven times eight? Answer with the number.",
    "Write one sentence about the sea.",
    "List the days of the week.",
    "Explain in two sentences why the sky is blue.",
    "Translate 'good morning' into French.",
    "Count from one to ten.",
)
"""Prompts of different length, sent as chat; answers are cut at `BUILT_IN_TOKENS`."""

BUILT_IN_TOKENS = 48
"""Enough for a rate to be measured, and some seconds at most on a slow machine."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to a server: POST `path` with a JSON body; `model` is filled in for each revision where absent."""

    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Missing:
    """Requests still to send to each of the two."""

    active: int = 0
    candidate: int = 0

    def __bool__(self) -> bool:
        return self.active > 0 or self.candidate > 0


def asks_of(deployment: Deployment, candidate: Revision) -> tuple[Ask, ...]:
    """What is sent in turn: the `synthetic` file, else `ready.request`, else the built-in set where `model.id` is set.

    Empty: there is nothing to send, so that what no client brings cannot be measured.
    """
    given = _guard(deployment).get("synthetic")
    if given and not isinstance(given, str):
        return tuple(Ask(str(one["path"]), dict(one["body"])) for one in given)
    ready = dict(dict(candidate.spec.get("runtime") or {}).get("ready") or {}).get("request")
    if ready:
        return (Ask(str(ready["path"]), dict(ready.get("body") or {})),)
    if dict(candidate.spec.get("model") or {}).get("id"):
        return tuple(_chat(prompt) for prompt in BUILT_IN)
    return ()


def _chat(prompt: str) -> Ask:
    said = [{"role": "user", "content": prompt}]
    return Ask(CHAT, {"messages": said, "max_tokens": BUILT_IN_TOKENS, "temperature": 0})


def body_for(ask: Ask, revision: Revision) -> dict[str, Any]:
    """The body as this revision's server is sent it: with the model that it lists, unless the request names one."""
    model = dict(revision.spec.get("model") or {}).get("id")
    named = {"model": model} if model and "model" not in ask.body else {}
    return {**named, **ask.body}


def applicable(deployment: Deployment, candidate: Revision) -> bool:
    """Whether the guard can measure anything: clients may reach the candidate, or there is something to send to it."""
    strategy = dict(deployment.spec.get("rollout") or {}).get("strategy", "none")
    return strategy != "none" or bool(asks_of(deployment, candidate))


def facts_of(deployment: Deployment, baseline: Revision | None, candidate: Revision, *, candidate_ready: bool) -> Facts:
    """The guard's facts, from rows.

    Args:
        baseline: the active revision; None where it has nothing ready.
        candidate_ready: the candidate has a ready replica.
    """
    sent = kept(baseline) if baseline is not None else {}
    asked = kept(candidate)
    minimum = Policy.of(_guard(deployment)).minimum_requests
    needed = baseline is not None and min(lived(baseline).requests, lived(candidate).requests) < minimum
    unproven = str(sent["unproven"]) if needed and sent.get("unproven") else None
    return Facts(
        candidate_ready=candidate_ready,
        applicable=applicable(deployment, candidate),
        synthetic_unproven=unproven is not None,
        synthetic_error=unproven,
        not_listed=tuple(asked.get("not_listed") or ()),
        listed=tuple(asked.get("listed") or ()),
    )


def missing(decision: GuardDecision, active: Revision, candidate: Revision) -> Missing:
    """What a waiting decision still lacks, to be sent to both alike.

    As many to each as the one that clients asked less lacks: the times of requests that were sent are compared among
    each other, so both sides need the same ones. An active revision that was stopped for its
    candidate is asked nothing.
    """
    if not decision.wanted:
        return Missing()
    if decision.facts.baseline_stopped:
        return Missing(candidate=max(decision.wanted - decision.candidate.requests, 0))
    clients = min(lived(active).requests, lived(candidate).requests)
    wanted = max(decision.wanted - clients, 0)
    return Missing(*(max(wanted - Seen.from_wire(kept(side)).requests, 0) for side in (active, candidate)))


def kept(revision: Revision) -> Mapping[str, Any]:
    """What the sender left about a revision."""
    return dict(revision.evidence.get(SYNTHETIC) or {})


def lived(revision: Revision) -> Seen:
    """What clients met at a revision."""
    return together(Seen.from_wire(part) for source, part in revision.evidence.items() if source != SYNTHETIC)


def not_listed(revision: Revision, listed: Sequence[str]) -> tuple[str, ...]:
    """What of the model id and aliases that its spec declares its server does not list."""
    model = dict(revision.spec.get("model") or {})
    declared = (model.get("id"), *(model.get("aliases") or ()))
    return tuple(str(name) for name in declared if name and name not in listed)


def _guard(deployment: Deployment) -> Mapping[str, Any]:
    return dict(dict(deployment.spec.get("rollout") or {}).get("guard") or {})

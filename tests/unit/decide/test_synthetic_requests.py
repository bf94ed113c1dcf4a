"""Which requests the control plane sends itself, and how many: the missing ones, to both revisions alike."""

from typing import Any

import pytest

from moorage.decide.serving import synthetic
from moorage.decide.serving.evidence import SYNTHETIC, Seen
from moorage.decide.serving.guard import Facts, Policy, comparable, judge
from moorage.domain.nouns import Deployment, Revision

LINES = [{"path": "/v1/completions", "body": {"prompt": "a"}}, {"path": "/v1/completions", "body": {"prompt": "b"}}]
READY = {"path": "/generate", "body": {"text": "x"}}


def deployment(strategy: str = "none", lines: Any = None) -> Deployment:
    return Deployment(uid="dep-1", name="d", spec={"rollout": {"strategy": strategy, "guard": {"synthetic": lines}}})


def revision(
    number: int = 2, evidence: dict[str, Any] | None = None, *, model: str | None = "gemma", ready: Any = None
) -> Revision:
    spec = {"model": {"id": model, "aliases": ["g"]}, "runtime": {"ready": {"request": ready}}}
    return Revision(uid=f"rev-{number}", number=number, spec=spec, evidence=evidence or {})


def sent(count: int, **more: Any) -> dict[str, Any]:
    return {**Seen(requests=count, latency_us={100: count} if count else {}).to_wire(), **more}


def wanted(active: Revision, candidate: Revision, strategy: str = "none") -> synthetic.Missing:
    sides = comparable(active.evidence, candidate.evidence, strategy, 20)
    return synthetic.missing(judge(Policy(), *sides, Facts()), active, candidate)


def test_the_file_comes_first_then_the_readiness_request_then_the_built_in_set() -> None:
    assert [a.body for a in synthetic.asks_of(deployment(lines=LINES), revision(ready=READY))] == [
        {"prompt": "a"},
        {"prompt": "b"},
    ]
    assert synthetic.asks_of(deployment(), revision(ready=READY)) == (synthetic.Ask("/generate", {"text": "x"}),)
    built_in = synthetic.asks_of(deployment(), revision())
    assert {ask.path for ask in built_in} == {"/v1/chat/completions"}
    assert len(built_in) == len(synthetic.BUILT_IN)


def test_without_any_of_them_nothing_is_sent_and_the_guard_does_not_apply() -> None:
    bare = revision(model=None)
    assert synthetic.asks_of(deployment(), bare) == ()
    facts = synthetic.facts_of(deployment(), revision(1), bare, candidate_ready=True)
    assert judge(Policy(), Seen(), Seen(), facts).codes == ("guard_not_applicable",)


@pytest.mark.parametrize("strategy", ["header", "canary", "mirror"])
def test_where_clients_may_come_it_waits_for_them_rather_than_not_to_apply(strategy: str) -> None:
    facts = synthetic.facts_of(deployment(strategy), revision(1), revision(model=None), candidate_ready=True)
    assert judge(Policy(), Seen(), Seen(), facts).codes == ("insufficient_requests",)


def test_each_revision_is_asked_for_the_model_that_it_lists() -> None:
    ask = synthetic.Ask("/v1/completions", {"prompt": "a"})
    assert synthetic.body_for(ask, revision(model="gemma-2"))["model"] == "gemma-2"
    named = synthetic.Ask("/v1/completions", {"prompt": "a", "model": "mine"})
    assert synthetic.body_for(named, revision())["model"] == "mine"
    assert "model" not in synthetic.body_for(ask, revision(model=None))


def test_without_clients_the_minimum_is_sent_to_both() -> None:
    assert wanted(revision(1), revision()) == synthetic.Missing(20, 20)
    assert wanted(revision(1, {SYNTHETIC: sent(20)}), revision(2, {SYNTHETIC: sent(7)})) == synthetic.Missing(0, 13)
    assert not wanted(revision(1, {SYNTHETIC: sent(20)}), revision(2, {SYNTHETIC: sent(20)}))


def test_clients_of_the_active_alone_spare_neither_side_a_request() -> None:
    busy = revision(1, {"g/1/e": sent(500)})
    assert wanted(busy, revision()) == synthetic.Missing(20, 20)
    assert wanted(busy, revision(), "canary") == synthetic.Missing(20, 20)


def test_what_clients_asked_of_both_is_not_sent_again() -> None:
    active, candidate = revision(1, {"g/1/e": sent(500)}), revision(2, {"g/1/e": sent(12)})
    assert wanted(active, candidate, "canary") == synthetic.Missing(8, 8)
    assert not wanted(active, revision(2, {"g/1/e": sent(20)}), "canary")


def test_a_difference_that_is_not_proven_is_worth_more_requests() -> None:
    worse = {**sent(19), "requests": 20, "errors": 1}
    assert wanted(revision(1, {SYNTHETIC: sent(20)}), revision(2, {SYNTHETIC: worse})) == synthetic.Missing(10, 10)


def test_a_request_that_fails_on_the_active_too_makes_the_decision_wait_only_while_it_is_needed() -> None:
    broken = revision(1, {SYNTHETIC: sent(0, unproven="HTTP 404")})
    facts = synthetic.facts_of(deployment(), broken, revision(), candidate_ready=True)
    assert "synthetic_unproven" in judge(Policy(), Seen(), Seen(), facts).codes
    served = revision(1, {SYNTHETIC: sent(0, unproven="HTTP 404"), "g/1/e": sent(40)})
    facts = synthetic.facts_of(deployment("canary"), served, revision(2, {"g/1/e": sent(40)}), candidate_ready=True)
    assert not facts.synthetic_unproven


def test_what_the_server_lists_is_held_against_the_spec() -> None:
    assert synthetic.not_listed(revision(), ["gemma", "g", "more"]) == ()
    assert synthetic.not_listed(revision(), ["other"]) == ("gemma", "g")
    assert synthetic.not_listed(revision(model=None), []) == ("g",)
    lists = revision(2, {SYNTHETIC: sent(0, listed=["other"], not_listed=["gemma", "g"])})
    facts = synthetic.facts_of(deployment(), revision(1), lists, candidate_ready=True)
    assert judge(Policy(), Seen(), Seen(), facts).codes == ("compatibility_mismatch",)

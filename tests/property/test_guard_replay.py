"""The release guard over any evidence: replay gives the same bytes, and equal or better is never rejected."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.decide.serving.evidence import Seen
from moorage.decide.serving.guard import Facts, Policy, judge, replay
from tests.examples import examples

COUNTS = st.dictionaries(st.integers(0, 400), st.integers(1, 3000), max_size=12)
SHARES = st.floats(0.0, 1.0, allow_nan=False)
PERCENTS = st.floats(0.0, 1000.0, allow_nan=False)


@st.composite
def sides(draw: st.DrawFn) -> Seen:
    requests = draw(st.integers(0, 5000))
    return Seen(
        requests=requests,
        errors=draw(st.integers(0, requests)),
        client_gone=draw(st.integers(0, 50)),
        ttft_us=draw(COUNTS),
        latency_us=draw(COUNTS),
        throughput_milli=draw(COUNTS),
        quality=draw(
            st.dictionaries(
                st.sampled_from(["eval", "other"]),
                st.tuples(st.floats(-100, 100, allow_nan=False), st.integers(1, 900)),
                max_size=2,
            )
        ),
    )


POLICIES = st.builds(
    Policy,
    enabled=st.sampled_from([True, True, True, False]),
    minimum_requests=st.integers(1, 300),
    ttft_percent=PERCENTS,
    latency_percent=PERCENTS,
    error_rate=SHARES,
    throughput_percent=st.floats(0.0, 100.0),
    quality=st.sampled_from([None, "eval"]),
    quality_max_drop=SHARES,
)
NAMES = st.lists(st.text(max_size=8), max_size=2).map(tuple)
FACTS = st.builds(
    Facts,
    candidate_ready=st.booleans(),
    applicable=st.booleans(),
    synthetic_unproven=st.booleans(),
    synthetic_error=st.none() | st.text(max_size=20),
    not_listed=NAMES,
    listed=NAMES,
)


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@settings(max_examples=examples(100), deadline=None)
@given(POLICIES, st.none() | sides(), sides(), FACTS)
def test_a_stored_decision_replays_to_the_same_bytes(
    policy: Policy, active: Seen | None, candidate: Seen, facts: Facts
) -> None:
    kept = {**judge(policy, active, candidate, facts).to_wire(), "id": "gd-1", "baseline": "rev-1", "at": 1.25}
    stored = canonical(kept)
    assert canonical(replay(json.loads(stored))) == stored


@settings(max_examples=examples(80), deadline=None)
@given(POLICIES, sides())
def test_an_equal_revision_is_never_rejected_and_never_suspected(policy: Policy, side: Seen) -> None:
    decision = judge(policy, side, side, Facts())
    assert decision.verdict != "REJECT"
    assert not [m for m in decision.measures if m.standing in ("suspected", "regressed")]


@settings(max_examples=examples(80), deadline=None)
@given(POLICIES, sides(), st.integers(1, 60))
def test_a_faster_revision_is_not_rejected_for_its_times(policy: Policy, side: Seen, steps: int) -> None:
    quicker = {max(index - steps, 0): 0 for index in side.latency_us}
    for index, count in side.latency_us.items():
        quicker[max(index - steps, 0)] += count
    decision = judge(policy, side, replace(side, latency_us=quicker), Facts())
    assert "latency_regression" not in decision.codes


@settings(max_examples=examples(80), deadline=None)
@given(POLICIES, sides(), sides(), FACTS)
def test_nothing_is_accepted_as_within_policy_without_its_requests(
    policy: Policy, active: Seen, candidate: Seen, facts: Facts
) -> None:
    decision = judge(policy, active, candidate, facts)
    if decision.codes == ("within_policy",):
        assert min(active.requests, candidate.requests) >= policy.minimum_requests
        assert facts.candidate_ready
        assert not facts.not_listed
        assert candidate.errors < candidate.requests

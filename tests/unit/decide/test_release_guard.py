"""The release guard: each code by a case that produces it, and what small or uneven samples may and may not decide."""

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from moorage.decide.serving.evidence import SYNTHETIC, Seen
from moorage.decide.serving.guard import Facts, GuardDecision, Policy, comparable, judge, replay, same_outcome
from moorage.decide.serving.rollout.verdict import said
from moorage.domain.catalogue import guard as catalogue
from moorage.domain.histogram import index_of

POLICY = Policy()
READY = Facts()


def counted(values: Iterable[float]) -> dict[int, int]:
    out: dict[int, int] = {}
    for value in values:
        index = index_of(round(value))
        out[index] = out.get(index, 0) + 1
    return out


def spread(middle_ms: float, count: int, width: float = 0.2) -> list[float]:
    """`count` times in microseconds, evenly spread about a middle."""
    return [middle_ms * 1000 * (1 - width / 2 + width * i / max(count - 1, 1)) for i in range(count)]


def seen(
    count: int = 20, *, ms: float = 100.0, ttft: float | None = 20.0, rate: float | None = 50.0, errors: int = 0
) -> Seen:
    good = count - errors
    return Seen(
        requests=count,
        errors=errors,
        ttft_us=counted(spread(ttft, good)) if ttft else {},
        latency_us=counted(spread(ms, good)) if ms else {},
        throughput_milli=counted(spread(rate, good)) if rate else {},
    )


def quality(value: float, samples: int = 500) -> Seen:
    return replace(seen(), quality={"eval": (value, samples)})


SCORED = Policy(quality="eval")
LISTLESS = Facts(not_listed=("gemma",), listed=("other",))

CASES: dict[str, tuple[str, GuardDecision]] = {
    "candidate_not_ready": ("REJECT", judge(POLICY, seen(), seen(), Facts(candidate_ready=False))),
    "compatibility_mismatch": ("REJECT", judge(POLICY, seen(), seen(), LISTLESS)),
    "error_rate_regression": ("REJECT", judge(POLICY, seen(), seen(errors=10), READY)),
    "ttft_regression": ("REJECT", judge(POLICY, seen(), seen(ttft=30.0), READY)),
    "latency_regression": ("REJECT", judge(POLICY, seen(), seen(ms=150.0), READY)),
    "output_throughput_regression": ("REJECT", judge(POLICY, seen(), seen(rate=25.0), READY)),
    "quality_regression": ("REJECT", judge(SCORED, quality(0.93), quality(0.80), READY)),
    "insufficient_requests": ("WAIT", judge(POLICY, seen(), seen(19), READY)),
    "ttft_unavailable": ("WAIT", judge(POLICY, seen(), seen(ttft=None), READY)),
    "evidence_unavailable": ("WAIT", judge(POLICY, seen(), seen(rate=None), READY)),
    "quality_unavailable": ("WAIT", judge(SCORED, quality(0.93), seen(), READY)),
    "synthetic_unproven": ("WAIT", judge(POLICY, seen(0), seen(0), Facts(synthetic_unproven=True))),
    "within_policy": ("ACCEPT", judge(POLICY, seen(), seen(), READY)),
    "guard_disabled": ("ACCEPT", judge(Policy(enabled=False), seen(0), seen(0), LISTLESS)),
    "guard_not_applicable": ("ACCEPT", judge(POLICY, seen(0), seen(0), Facts(applicable=False))),
    "no_baseline": ("ACCEPT", judge(POLICY, None, seen(0), READY)),
}


@pytest.mark.parametrize("code", CASES)
def test_each_code_is_produced_by_its_case(code: str) -> None:
    verdict, decision = CASES[code]
    assert decision.verdict == verdict
    assert code in decision.codes


def test_every_code_of_the_catalogue_has_a_case() -> None:
    assert set(CASES) == {entry.code for entry in catalogue.VERDICTS}


@pytest.mark.parametrize("code", CASES)
def test_a_decision_is_worked_out_again_byte_for_byte(code: str) -> None:
    kept = {**CASES[code][1].to_wire(), "id": "gd-1", "at": 12.5}
    stored = json.loads(json.dumps(kept))
    assert json.dumps(replay(stored), sort_keys=True) == json.dumps(kept, sort_keys=True)


def test_what_is_exactly_at_the_limit_passes() -> None:
    active = Seen(requests=100, errors=2, latency_us={index_of(15): 98}, ttft_us={index_of(10): 98})
    same = replace(active, errors=3)
    loose = Policy(latency_percent=20.0, error_rate=0.01)
    at_the_limit = replace(same, latency_us={index_of(18): 97})
    assert judge(loose, active, at_the_limit, READY).codes == ("within_policy",)
    assert judge(SCORED, quality(0.93), quality(0.92), READY).codes == ("within_policy",)


def test_a_rejection_rejects_with_all_rejections_and_hides_the_waits() -> None:
    decision = judge(SCORED, quality(0.93), seen(ms=200.0, ttft=None, errors=12), READY)
    assert decision.verdict == "REJECT"
    assert decision.codes == ("error_rate_regression", "latency_regression")


def test_a_wait_waits_with_all_waits() -> None:
    decision = judge(SCORED, quality(0.93), seen(ttft=None, rate=None), READY)
    assert decision.codes == ("ttft_unavailable", "evidence_unavailable", "quality_unavailable")


def test_no_data_is_never_a_pass() -> None:
    for candidate in (Seen(), Seen(client_gone=500), seen(19)):
        assert judge(POLICY, seen(), candidate, READY).verdict == "WAIT"
    assert judge(POLICY, Seen(), seen(), READY).verdict == "WAIT"


def test_a_candidate_that_never_answered_well_is_not_accepted_because_the_active_one_did_not_either() -> None:
    broken = Seen(requests=40, errors=40)
    assert judge(POLICY, broken, broken, READY).codes == ("evidence_unavailable",)


def test_what_clients_gave_up_is_no_failure() -> None:
    assert judge(POLICY, seen(), replace(seen(), client_gone=15), READY).codes == ("within_policy",)


def test_a_single_failure_against_none_waits_for_more_and_does_not_reject() -> None:
    decision = judge(POLICY, seen(), seen(errors=1), READY)
    assert decision.codes == ("insufficient_requests",)
    assert (decision.reasons[0].params["metric"], decision.wanted) == ("error_rate", 30)


def test_thirty_per_cent_of_failures_against_none_are_proven_by_forty_requests() -> None:
    assert judge(POLICY, seen(40), seen(40, errors=12), READY).codes == ("error_rate_regression",)


def test_a_difference_that_200_requests_do_not_prove_does_not_count() -> None:
    assert judge(POLICY, seen(199), seen(199, errors=3), READY).verdict == "WAIT"
    assert judge(POLICY, seen(200), seen(200, errors=3), READY).codes == ("within_policy",)


def test_one_slow_answer_does_not_reject() -> None:
    slow_one = replace(seen(), latency_us=counted([*spread(100, 18), 900_000, 900_000]))
    decision = judge(POLICY, seen(), slow_one, READY)
    assert (decision.verdict, decision.codes) == ("WAIT", ("insufficient_requests",))


def test_what_waits_for_more_requests_than_the_spec_asks_for_says_why_and_says_it_once() -> None:
    late, first = (counted([*spread(ms, 18), 900_000, 900_000]) for ms in (100, 20))
    decision = judge(POLICY, seen(), replace(seen(), latency_us=late, ttft_us=first), READY)
    assert {ground.params["metric"] for ground in decision.reasons} == {"ttft_p95", "latency_p95"}
    assert said(decision) == (
        "Too few requests to compare: 20 on the candidate, 20 on the active, 30 needed to tell whether it is worse in "
        "ttft_p95, latency_p95"
    )


def test_a_failing_active_does_not_hold_a_better_candidate_back() -> None:
    assert judge(POLICY, seen(errors=15), seen(), READY).codes == ("within_policy",)


def test_a_metric_that_neither_has_is_listed_and_does_not_count() -> None:
    decision = judge(POLICY, seen(ttft=None, rate=None), seen(ttft=None, rate=None), READY)
    assert decision.codes == ("within_policy",)
    assert decision.not_applicable == ("ttft_p95", "output_throughput")


def test_a_metric_that_only_the_candidate_has_is_not_compared() -> None:
    assert judge(POLICY, seen(ttft=None), seen(), READY).codes == ("within_policy",)


def test_a_drop_in_quality_that_few_samples_do_not_prove_waits() -> None:
    assert judge(SCORED, quality(0.93, 30), quality(0.88, 30), READY).codes == ("quality_unavailable",)


def test_a_score_that_is_no_share_counts_as_posted() -> None:
    assert judge(SCORED, quality(71.0), quality(70.5), READY).codes == ("quality_regression",)
    assert judge(SCORED, quality(71.0), quality(71.5), READY).codes == ("within_policy",)


def test_quality_is_asked_for_also_where_requests_cannot_be_measured() -> None:
    beside = Facts(applicable=False)
    assert judge(SCORED, quality(0.93), seen(0), beside).codes == ("quality_unavailable",)
    assert judge(SCORED, quality(0.93), quality(0.93), beside).codes == ("guard_not_applicable",)


def test_messages_have_units() -> None:
    reasons = CASES["latency_regression"][1].reasons
    assert reasons[0].message.startswith("Requests take longer: 16")
    assert " ms against 10" in reasons[0].message
    assert " %" in CASES["error_rate_regression"][1].reasons[0].message
    assert "tokens/s" in CASES["output_throughput_regression"][1].reasons[0].message


def test_numbers_alone_are_no_news() -> None:
    one, other = judge(POLICY, seen(), seen(5), READY), judge(POLICY, seen(), seen(6), READY)
    assert same_outcome(one.to_wire(), other.to_wire())
    assert not same_outcome(one.to_wire(), CASES["within_policy"][1].to_wire())


def weighed(active: dict[str, Seen], candidate: dict[str, Seen], strategy: str = "canary") -> GuardDecision:
    before, after = ({source: part.to_wire() for source, part in side.items()} for side in (active, candidate))
    return judge(POLICY, *comparable(before, after, strategy, POLICY.minimum_requests), READY)


def test_clients_of_the_active_are_not_compared_with_requests_that_were_sent_to_the_candidate() -> None:
    sent, slow = seen(20, ms=300.0), seen(20, ms=600.0)
    quick_clients, slow_clients = seen(500, ms=100.0), seen(500, ms=2000.0)
    for strategy in ("none", "canary"):
        even = weighed({"g/1/e": quick_clients, SYNTHETIC: sent}, {SYNTHETIC: sent}, strategy)
        assert even.codes == ("within_policy",)
        worse = weighed({"g/1/e": slow_clients, SYNTHETIC: sent}, {SYNTHETIC: slow}, strategy)
        assert "latency_regression" in worse.codes


def test_where_clients_met_both_their_times_count_and_not_those_that_were_sent() -> None:
    sent = seen(20, ms=100.0)
    decision = weighed({"g/1/e": seen(40), SYNTHETIC: sent}, {"g/1/e": seen(40, ms=200.0), SYNTHETIC: sent})
    assert "latency_regression" in decision.codes


def test_failures_count_whoever_met_them() -> None:
    sent = seen(20)
    decision = weighed({"g/1/e": seen(15), SYNTHETIC: sent}, {"g/1/e": seen(15, errors=15), SYNTHETIC: sent})
    assert decision.codes == ("error_rate_regression",)


def test_more_failures_than_requests_are_no_reason_to_break() -> None:
    odd = Seen(requests=20, errors=25)
    assert judge(POLICY, seen(), odd, READY).codes[0] == "error_rate_regression"

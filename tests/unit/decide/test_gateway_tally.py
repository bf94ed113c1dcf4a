"""What counts as evidence of a revision, and what does not."""

import pytest

from moorage.decide.serving.tally import Comparison
from moorage.domain.histogram import index_of


def ended(outcome: str, status: int = 200, tokens: int = 0) -> Comparison:
    seen = Comparison(since=1.0)
    seen.ended(outcome, status, sent_at=1.0, first_at=1.25, ended_at=3.0, tokens=tokens)
    return seen


def test_an_answer_counts_with_its_times() -> None:
    seen = ended("ok", tokens=10)
    assert (seen.requests, seen.errors) == (1, 0)
    assert seen.ttft_us == {index_of(250_000): 1}
    assert seen.latency_us == {index_of(2_000_000): 1}
    assert seen.throughput_milli == {index_of(5_000): 1}


@pytest.mark.parametrize(("outcome", "status"), [("ok", 500), ("ok", 503), ("cut", 200), ("upstream_error", 502)])
def test_a_failure_of_the_server_is_an_error_without_times(outcome: str, status: int) -> None:
    seen = ended(outcome, status)
    assert (seen.requests, seen.errors, seen.ttft_us, seen.latency_us) == (1, 1, {}, {})


def test_a_clients_fault_is_no_error_of_the_server() -> None:
    seen = ended("ok", 404)
    assert (seen.requests, seen.errors) == (1, 0)


def test_a_client_that_leaves_is_neither_a_request_nor_an_error() -> None:
    seen = ended("client_gone")
    assert (seen.requests, seen.errors, seen.client_gone) == (0, 0, 1)


def test_a_request_that_its_own_bytes_ended_says_nothing() -> None:
    seen = ended("refused", 408)
    assert (seen.requests, seen.errors, seen.client_gone, seen.changes) == (0, 0, 0, 0)


def test_a_connect_that_failed_is_no_answer() -> None:
    seen = Comparison(since=1.0)
    seen.unreachable()
    assert (seen.requests, seen.errors) == (1, 1)

"""How long a synthetic request may take: ten times the active revision's slowest, so that one that hangs is told."""

from typing import Any

import pytest

from moorage.control.synthetic import ALONE_LIMIT_S, FIRST_LIMIT_S, LIMIT_MIN_S, Comparison, Side
from moorage.decide.serving.synthetic import Missing
from moorage.domain.histogram import index_of
from moorage.domain.nouns import Deployment, Revision


def limit_s(slowest_s: float | None, **gateway: Any) -> float:
    kept = {} if slowest_s is None else {"latency_us": {"5": 3, str(index_of(round(slowest_s * 1e6))): 1}}
    active = Side(Revision(uid="a", evidence={"synthetic": kept}), ("h:1",))
    deployment = Deployment(uid="d", spec={"gateway": gateway})
    return Comparison("e", deployment, active, Side(Revision(uid="c"), ("h:2",)), (), Missing()).limit_s


def test_before_anything_is_known_it_may_take_long() -> None:
    assert limit_s(None) == pytest.approx(FIRST_LIMIT_S)


def test_a_quick_server_is_given_the_least_limit() -> None:
    assert limit_s(0.05) == LIMIT_MIN_S


def test_a_slow_one_is_given_ten_times_its_slowest_answer() -> None:
    assert 50.0 <= limit_s(5.0, first_byte_timeout=600.0) <= 54.0


def test_no_request_may_take_longer_than_a_clients() -> None:
    assert limit_s(5.0, first_byte_timeout=3.0) == 3.0
    assert limit_s(None, first_byte_timeout=7.0) == 7.0


def test_a_candidate_that_is_alone_is_not_waited_with_for_long_since_requests_are_held() -> None:
    sides = (Side(Revision(uid="a"), ()), Side(Revision(uid="c"), ("h:2",)))
    assert Comparison("e", Deployment(uid="d"), *sides, (), Missing(), alone=True).limit_s == ALONE_LIMIT_S

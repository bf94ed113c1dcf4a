"""What a replica bears within its SLO: measured under load, confirmed by another measurement, and forgotten with the
revision it was measured on."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.decide.serving.goodput import Bench, Slo, measure, qualified
from moorage.decide.serving.snapshot import Load

SLO = Slo(ttft_p95_s=0.5, latency_p95_s=None)
BENCH = Bench("rev-1", replicas=2, steady_s=400.0, window_s=300.0, at_load=8.0)
LOAD = Load(stable=12.0, stable_s=300.0, rate=20.0, ttft_p95_s=0.4, samples=6000)


def first(load: Load = LOAD, bench: Bench = BENCH) -> dict[str, Any] | None:
    return measure(None, SLO, load, bench, 1000.0)


@pytest.mark.parametrize(
    ("load", "bench"),
    [
        (replace(LOAD, samples=19), BENCH),
        (replace(LOAD, stable=7.9), BENCH),
        (replace(LOAD, stable_s=299.0), BENCH),
        (replace(LOAD, ttft_p95_s=None), BENCH),
        (LOAD, replace(BENCH, replicas=0)),
        (LOAD, replace(BENCH, steady_s=299.0)),
    ],
    ids=["too few", "idle", "not watched", "not seen", "not all ready", "size changed"],
)
def test_what_is_no_measurement_of_a_loaded_replica_counts_for_nothing(load: Load, bench: Bench) -> None:
    assert first() is not None, "the same is one otherwise"
    assert first(load, bench) is None


def test_one_measurement_alone_qualifies_nothing_and_a_comparable_second_does() -> None:
    one = first()
    assert qualified(None, "rev-1") == (None, "no 20 requests under load were measured at one size yet")
    assert qualified(one, "rev-1") == (None, "an earlier measurement that came to the same is missing")
    assert measure(one, SLO, LOAD, BENCH, 1299.0) is None, "the same stretch of time confirms nothing"
    apart = measure(one, SLO, replace(LOAD, rate=30.0), BENCH, 1300.0)
    assert qualified(apart, "rev-1")[0] is None
    near = measure(one, SLO, replace(LOAD, rate=22.0), BENCH, 1300.0)
    assert qualified(near, "rev-1") == (10.0, None)


def test_of_what_misses_its_target_the_rate_counts_for_less_and_acts_at_once() -> None:
    known = measure(first(), SLO, LOAD, BENCH, 1300.0)
    slow = measure(known, SLO, replace(LOAD, ttft_p95_s=1.0), BENCH, 1600.0)
    assert qualified(known, "rev-1")[0] == 10.0
    assert qualified(slow, "rev-1")[0] == 5.0


def test_a_lighter_load_later_proves_no_less() -> None:
    known = measure(first(), SLO, LOAD, BENCH, 1300.0)
    light = measure(known, SLO, replace(LOAD, rate=12.0, stable=8.0), BENCH, 1600.0)
    assert qualified(light, "rev-1")[0] == 10.0


def test_another_revision_begins_anew() -> None:
    known = measure(first(), SLO, LOAD, BENCH, 1300.0)
    assert qualified(known, "rev-2")[0] is None
    other = measure(known, SLO, LOAD, replace(BENCH, revision="rev-2"), 1301.0)
    assert other is not None
    assert qualified(other, "rev-2")[0] is None

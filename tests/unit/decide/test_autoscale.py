"""The size that a load asks for: upwards at once, downwards only on what was watched, and why it is held."""

import pytest

from moorage.decide.serving.autoscale import Choice, Facts, Policy, choose, wake_size
from moorage.decide.serving.snapshot import Load

NOW = 10_000.0
POLICY = Policy(low=1, high=6, unit=8.0, up_after_s=5.0, down_after_s=300.0)


def load(urgent: float, *, stable: float | None = None, peak: float | None = None, watched_s: float = 300.0) -> Load:
    stable = urgent if stable is None else stable
    highest = max(urgent, stable) if peak is None else peak
    return Load(stable=stable, urgent=urgent, stable_s=watched_s, urgent_s=min(watched_s, 5.0), peak=highest)


def chosen(of: Load, desired: int, **facts: object) -> Choice:
    known = {"since": NOW - 1000.0, **facts}
    return choose(POLICY, of, Facts(desired, **known), NOW)  # type: ignore[arg-type]  # fields of Facts


@pytest.mark.parametrize(
    ("urgent", "desired", "to"),
    [(8.0, 1, 1), (8.8, 1, 1), (8.9, 1, 2), (17.7, 1, 3), (40.0, 2, 5), (48.0, 5, 6), (1000.0, 3, 6)],
)
def test_it_grows_to_what_the_urgent_window_asks_for_beyond_the_tolerance(urgent: float, desired: int, to: int) -> None:
    choice = chosen(load(urgent), desired)
    assert choice.desired == to
    assert choice.reason.code == ("scale.up" if to > desired else "scale.at_min")


@pytest.mark.parametrize(("lasting", "to"), [(0.0, 1), (7.2, 1), (7.3, 2), (14.4, 2), (21.6, 3), (21.7, 4), (32.0, 4)])
def test_it_shrinks_only_to_a_size_that_the_lasting_load_leaves_room_in(lasting: float, to: int) -> None:
    choice = chosen(load(lasting), 4)
    assert (choice.desired, choice.reason.code) == (to, "scale.down" if to < 4 else "scale.steady")


def test_one_burst_within_the_window_holds_the_size() -> None:
    choice = chosen(load(1.0, stable=4.0, peak=30.0), 4)
    assert (choice.desired, choice.reason.code) == (4, "scale.held_stability")
    assert choice.until is not None
    assert choice.until > NOW


def test_a_leader_that_has_not_watched_the_window_never_scales_down_and_says_until_when() -> None:
    for watched_s in (0.0, 10.0, 299.9):
        choice = chosen(load(0.0, watched_s=watched_s), 4)
        assert (choice.desired, choice.reason.code) == (4, "scale.held_stability")
        assert choice.until == pytest.approx(max(NOW + 300.0 - watched_s, NOW + 1.0))
    assert chosen(load(0.0), 4).reason.code == "scale.down"


def test_a_load_that_has_not_lasted_the_urgent_window_is_waited_with() -> None:
    choice = chosen(load(40.0, watched_s=2.0), 1)
    assert (choice.desired, choice.reason.code, choice.until) == (1, "scale.held_stability", NOW + 3.0)


def test_it_changes_at_most_once_an_interval() -> None:
    up = chosen(load(40.0), 2, since=NOW - 4.0)
    down = chosen(load(0.0), 2, since=NOW - 4.0)
    assert (up.desired, up.reason.code, up.until) == (2, "scale.held_cooldown", NOW + 1.0)
    assert (down.desired, down.reason.code, down.until) == (2, "scale.held_cooldown", NOW + 1.0)


def test_what_it_grew_for_is_kept_for_the_whole_window() -> None:
    held = chosen(load(0.0), 4, grew_at=NOW - 299.0)
    assert (held.desired, held.reason.code, held.until) == (4, "scale.held_cooldown", NOW + 1.0)
    assert chosen(load(0.0), 4, grew_at=NOW - 300.0).reason.code == "scale.down"
    assert chosen(load(60.0), 4, grew_at=NOW - 10.0).reason.code == "scale.up", "growing again is not held"


def test_the_limits_hold_whatever_was_decided_before_and_whatever_the_load() -> None:
    assert chosen(load(500.0), 6).reason.code == "scale.at_max"
    assert chosen(load(0.0), 1).reason.code == "scale.at_min"
    lowered, raised = chosen(load(0.0, watched_s=0.0), 9), chosen(load(0.0), 0)
    assert (lowered.desired, lowered.reason.code) == (6, "scale.at_max")
    assert (raised.desired, raised.reason.code) == (1, "scale.at_min")


@pytest.mark.parametrize(
    ("least", "told"),
    [(0, "At its minimum of 1 while it is awake"), (1, "At its minimum of 1"), (2, "At its minimum of 2")],
)
def test_what_may_sleep_is_not_said_to_have_a_minimum_of_one(least: int, told: str) -> None:
    policy = Policy.of({"replicas": {"min": least, "max": 4}})
    assert choose(policy, load(0.0), Facts(policy.low, since=NOW - 1000.0), NOW).reason.message == told
    assert choose(policy, load(0.0), Facts(0, since=NOW - 1000.0), NOW).reason.message == told


def test_without_room_it_asks_for_no_more_and_says_what_it_waits_for() -> None:
    choice = chosen(load(40.0), 2, no_room="no machine has a free GPU")
    assert (choice.desired, choice.reason.code) == (2, "scale.no_capacity")
    assert choice.reason.params["why"] == "no machine has a free GPU"
    assert chosen(load(14.0), 2, no_room="full").reason.code == "scale.no_capacity"
    assert chosen(load(0.0), 2, no_room="full").desired == 1, "what nobody needs is not waited for"


def test_a_wake_begins_with_the_size_that_waits_for_it() -> None:
    assert [wake_size(POLICY, held) for held in (0, 1, 8, 9, 40, 1000)] == [1, 1, 1, 2, 5, 6]


def test_with_an_slo_the_rate_decides_once_goodput_is_qualified_and_until_then_it_says_so() -> None:
    busy = Load(
        stable=8.0, urgent=8.0, peak=8.0, stable_s=300.0, urgent_s=5.0, rate=35.0, urgent_rate=35.0, peak_rate=35.0
    )
    known = chosen(busy, 1, per_replica=10.0)
    assert (known.desired, known.reason.code) == (4, "scale.up")
    assert "within its SLO" in known.reason.message
    waiting = chosen(busy, 1, unqualified="no 20 requests under load were measured at one size yet")
    assert (waiting.desired, waiting.reason.code) == (1, "scale.unqualified")
    grows = chosen(load(40.0), 1, unqualified="nothing measured")
    assert (grows.desired, grows.reason.code) == (5, "scale.up")
    assert "its SLO does not act yet: nothing measured" in grows.reason.message

"""Safety of the autoscaler's choice, whatever the load; and replays of arrivals, where it keeps up and never swings."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.control.load import Ring
from moorage.decide.serving.autoscale import TOLERANCE, Choice, Facts, Policy, choose
from moorage.decide.serving.snapshot import Load
from tests.examples import examples

NOW = 100_000.0

levels = st.floats(0.0, 500.0)
spans = st.floats(0.0, 300.0)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    low = draw(st.integers(1, 20))
    return Policy(low=low, high=low + draw(st.integers(0, 40)), unit=draw(st.floats(0.5, 50.0)))


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Whatever was seen: the highest stretch is at least what each window has now."""
    stable, urgent = draw(levels), draw(levels)
    rate, urgent_rate = draw(levels), draw(levels)
    return Load(
        stable=stable,
        urgent=urgent,
        stable_s=draw(spans),
        urgent_s=draw(st.floats(0.0, 5.0)),
        peak=max(stable, urgent) + draw(levels),
        peak_left_s=draw(spans),
        rate=rate,
        urgent_rate=urgent_rate,
        peak_rate=max(rate, urgent_rate) + draw(levels),
    )


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    return Facts(
        desired=draw(st.integers(0, 70)),
        since=NOW - draw(st.floats(0.0, 1000.0)),
        grew_at=NOW - draw(st.floats(0.0, 1000.0)),
        no_room=draw(st.none() | st.just("no machine has a free GPU")),
        per_replica=draw(st.none() | st.floats(0.01, 100.0)),
    )


def chosen(policy: Policy, load: Load, known: Facts) -> Choice:
    return choose(policy, load, known, NOW)


@settings(max_examples=examples(200))
@given(policies(), loads(), facts())
def test_it_is_never_outside_its_limits(policy: Policy, load: Load, known: Facts) -> None:
    assert policy.low <= chosen(policy, load, known).desired <= policy.high


@settings(max_examples=examples(200))
@given(policies(), loads(), facts())
def test_it_never_shrinks_while_the_urgent_window_asks_for_more(policy: Policy, load: Load, known: Facts) -> None:
    known = replace(known, desired=policy.clamp(known.desired))
    urgent, unit = (load.urgent_rate, known.per_replica) if known.per_replica else (load.urgent, policy.unit)
    if urgent > known.desired * unit * (1.0 + TOLERANCE) * 1.001:
        assert chosen(policy, load, known).desired >= known.desired


@settings(max_examples=examples(200))
@given(policies(), loads(), facts())
def test_it_never_shrinks_on_what_was_not_watched(policy: Policy, load: Load, known: Facts) -> None:
    known = replace(known, desired=policy.clamp(known.desired))
    if load.stable_s < policy.down_after_s:
        assert chosen(policy, load, known).desired >= known.desired


@settings(max_examples=examples(200))
@given(policies(), loads(), facts(), st.floats(0.0, 100.0))
def test_more_load_never_makes_it_smaller(policy: Policy, load: Load, known: Facts, more: float) -> None:
    heavier = replace(
        load,
        stable=load.stable + more,
        urgent=load.urgent + more,
        peak=load.peak + more,
        rate=load.rate + more,
        urgent_rate=load.urgent_rate + more,
        peak_rate=load.peak_rate + more,
    )
    assert chosen(policy, heavier, known).desired >= chosen(policy, load, known).desired


@settings(max_examples=examples(200))
@given(policies(), loads(), facts())
def test_what_it_chose_it_does_not_take_back_on_the_same_load(policy: Policy, load: Load, known: Facts) -> None:
    first = chosen(policy, load, known)
    again = chosen(policy, load, replace(known, desired=first.desired, since=NOW - 1000.0, grew_at=NOW - 1000.0))
    settled = chosen(policy, load, replace(known, desired=again.desired, since=NOW - 1000.0, grew_at=NOW - 1000.0))
    assert settled.desired == again.desired


# Replays: Poisson arrivals, each served for a while, by as many replicas as are ready


@dataclass
class Replay:
    """Requests that come at a rate, are held while all replicas are full, and take `service_s` once they are let in."""

    policy: Policy
    rate: Callable[[float], float]
    service_s: float = 4.0
    start_s: float = 30.0
    """until a new replica is ready"""
    most: int = 16
    """requests that one replica takes at once"""
    seed: int = 7
    sizes: list[tuple[float, int]] = field(default_factory=list)
    held: dict[float, int] = field(default_factory=dict)

    def run(self, seconds: float, tick_s: float = 1.0) -> "Replay":
        draw, ring = random.Random(self.seed), Ring(1.0, 300, 0.0)
        desired, since, grew_at, ready, waiting = self.policy.low, 0.0, -math.inf, self.policy.low, 0
        starting: list[float] = []
        running: list[float] = []
        for step in range(int(seconds / tick_s)):
            now = step * tick_s
            came = _poisson(draw, self.rate(now) * tick_s)
            running = [end for end in running if end > now]
            ready += sum(at <= now for at in starting)
            starting = [at for at in starting if at > now]
            waiting += came
            let_in = min(waiting, max(0, ready * self.most - len(running)))
            running += [now + self.service_s * draw.uniform(0.5, 1.5) for _ in range(let_in)]
            waiting -= let_in
            self.held[now] = waiting
            ring.put(now, float(waiting + len(running)), float(came))
            size = choose(self.policy, _seen(ring, self.policy, now), Facts(desired, since, grew_at), now).desired
            if size != desired:
                gone = max(0, desired - size)
                starting = [*starting, *[now + self.start_s] * (size - desired)][: None if size > desired else -gone]
                ready = min(ready, size)
                grew_at = now if size > desired else grew_at
                desired, since = size, now
                self.sizes.append((now, size))
        return self

    def between(self, begin: float, end: float) -> list[int]:
        """Sizes decided on within."""
        return [size for at, size in self.sizes if begin <= at < end]


def _seen(ring: Ring, policy: Policy, now: float) -> Load:
    urgent, urgent_rate, urgent_s = ring.mean(policy.up_after_s, now)
    stable, rate, stable_s = ring.mean(policy.down_after_s, now)
    peak, peak_rate, ended = ring.peak(policy.up_after_s, now)
    return Load(
        stable=stable,
        urgent=urgent,
        stable_s=stable_s,
        urgent_s=urgent_s,
        rate=rate,
        urgent_rate=urgent_rate,
        peak=max(peak, urgent),
        peak_rate=max(peak_rate, urgent_rate),
        peak_left_s=max(0.0, ended + policy.down_after_s - now),
    )


def _poisson(draw: random.Random, mean: float) -> int:
    limit, product, count = math.exp(-mean), draw.random(), 0
    while product > limit:
        product *= draw.random()
        count += 1
    return count


POLICY = Policy(low=1, high=12, unit=8.0, up_after_s=5.0, down_after_s=300.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_steady_load_settles_and_is_left_alone(seed: int) -> None:
    """10 a second for 4 s each are 40 at once: five replicas, and chance asks for a few more at times."""
    replay = Replay(POLICY, lambda _: 10.0, seed=seed).run(3600.0)
    assert len(replay.between(300.0, 3600.0)) <= 6
    assert 5 <= replay.sizes[-1][1] <= 9


def test_a_step_is_caught_up_with_in_one_urgent_window_and_given_back_after_one_stable_window() -> None:
    replay = Replay(POLICY, lambda at: 12.0 if 600.0 <= at < 1800.0 else 0.5).run(3000.0)
    grown = replay.between(600.0, 630.0)
    assert grown, "it grows within half a minute of the step"
    assert max(replay.between(600.0, 700.0)) >= 6
    assert replay.held[700.0] == 0, "nothing waits any more once they are ready"
    back = [at for at, size in replay.sizes if at > 1800.0 and size == 1]
    assert back
    assert back[0] - 1800.0 <= 300.0 + 4 * POLICY.up_after_s + 6.0
    assert not [s for s in replay.between(600.0 + 300.0, 1800.0) if s < 5], "never below the load while it lasts"


def test_bursts_that_come_again_within_the_window_make_it_swing_no_more_than_once() -> None:
    """A burst of 20 s each four minutes: what it grew for stays."""
    replay = Replay(POLICY, lambda at: 10.0 if at % 240.0 < 20.0 else 1.0).run(3600.0)
    downs = sum(after < before for (_, before), (_, after) in zip(replay.sizes, replay.sizes[1:], strict=False))
    assert downs <= 3
    assert len(replay.sizes) <= 12


def test_a_day_that_rises_and_falls_is_followed_with_few_changes() -> None:
    day_s = 7200.0
    replay = Replay(POLICY, lambda at: 9.0 * (1.0 - math.cos(2.0 * math.pi * at / day_s))).run(day_s)
    turns = [size for _, size in replay.sizes]
    assert max(turns) >= 9
    assert len(turns) <= 40
    assert replay.sizes[-1][1] <= 4

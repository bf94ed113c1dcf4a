"""Limits hold over all gateways together, whatever is cut off, lost, late, restarted or changed meanwhile."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.decide.serving.slices import HOLD_S, IN_FLIGHT, filled, shared_out
from moorage.gateway.spending import REQUESTS
from tests.examples import examples
from tests.many_gateways import WINDOW_S, Lowered, World


@pytest.mark.parametrize("resource", [REQUESTS, IN_FLIGHT])
@settings(max_examples=examples(120))
@given(seed=st.integers(0, 2**32))
def test_gateways_together_never_admit_more_than_the_limit(resource: str, seed: int) -> None:
    world = World(seed, resource)
    for _ in range(1500):
        world.step()


@pytest.mark.parametrize("resource", [REQUESTS, IN_FLIGHT])
@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32))
def test_a_gateway_that_asks_alone_gets_the_whole_limit_within_bounded_time(resource: str, seed: int) -> None:
    world = World(seed, resource)
    for _ in range(300):
        world.step()
    for gateway in world.gateways:  # heal: whatever was cut off is back, whatever died stays dead but one
        gateway.cut_off = False
    lone = world.gateways[0]
    if not lone.alive:
        lone.start(world.now)
    world.busy, world.pace, world.faults = 30.0, 1.0, False
    until = world.now + HOLD_S + 2 * WINDOW_S + 60.0
    while world.now < until and lone.limit.share != world.most:
        world.step(asking=[lone])
    assert lone.limit.share == world.most


@pytest.mark.parametrize("resource", [REQUESTS, IN_FLIGHT])
@settings(max_examples=examples(150))
@given(seed=st.integers(0, 2**32), lower=st.integers(1, 400))
def test_a_lowered_limit_holds_from_the_moment_at_which_the_last_gateway_has_heard_of_it(
    resource: str, seed: int, lower: int
) -> None:
    world = Lowered(seed, resource, lower)
    for _ in range(200):
        world.step()
    world.lower_it()
    while not world.take_tables():
        world.step()
    world.limits = [(0.0, lower)]
    world.admitted, world.former = [], {permit for _, _, permit in world.running}
    until = world.now + 100.0
    while world.now < until:
        world.step()


@given(amount=st.integers(0, 1000), caps=st.lists(st.integers(0, 300), max_size=8))
def test_sharing_gives_no_more_than_there_is_and_nobody_more_than_asked(amount: int, caps: list[int]) -> None:
    found = filled(amount, caps)
    assert sum(found) == min(amount, sum(caps))
    assert all(has <= cap for has, cap in zip(found, caps, strict=True))
    short = [has for has, cap in zip(found, caps, strict=True) if has < cap]
    assert max(short, default=0) - min(short, default=0) <= 1
    assert all(has <= min(short) + 1 for has in found) if short else True


@given(limit=st.integers(0, 500), needs=st.lists(st.integers(0, 500), min_size=1, max_size=6))
def test_whoever_needs_no_more_than_its_equal_part_gets_it(limit: int, needs: list[int]) -> None:
    found = shared_out(limit, limit, needs, limit // len(needs))
    assert sum(found) <= limit
    part = limit // len(needs)
    assert all(has >= min(need, part) for has, need in zip(found, needs, strict=True))

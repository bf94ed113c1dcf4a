"""Retry-After says what was seen; a flood at one endpoint costs nobody else; bad answers in a row, case by case."""

import pytest

from moorage.decide.serving import estimates
from moorage.decide.serving.queueing import Queue, Waiter
from moorage.decide.serving.routes import (
    FAILED,
    NEUTRAL,
    OK,
    SERVER_ERROR,
    Generation,
    Hold,
    Limits,
    Refuse,
    RouteSpec,
    Serve,
    TargetSpec,
)
from moorage.decide.serving.routing import Router


def router_with(*routes: RouteSpec) -> Router:
    router = Router(1, 0.0)
    router.control(True, 0.0)
    router.apply(Generation("s", 1), routes, 0.0)
    return router


def serving(replicas: int = 1, **limits: object) -> RouteSpec:
    specs = tuple(TargetSpec(f"r{n}", "1", "h", n + 1) for n in range(replicas))
    return RouteSpec("m", "serve", targets=specs, limits=Limits(**limits))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ahead", "service_s", "places", "told"),
    [(0, 10.0, 1, 10.0), (9, 4.0, 8, 5.0), (0, 0.01, 16, 1.0), (1000, 60.0, 2, 120.0), (3, 1.0, 0, 5.0)],
)
def test_a_queue_drains_at_its_places_divided_by_the_service_time_and_the_answer_is_bounded(
    ahead: int, service_s: float, places: int, told: float
) -> None:
    assert estimates.drained(ahead, service_s, places) == told


def test_who_finds_the_queue_full_is_told_when_a_place_will_be_free_by_the_service_times_seen() -> None:
    router = router_with(serving(max_in_flight=2, max_queue=3))
    endpoint = router.find("m")
    first = router.arrive(endpoint, "first", 0.0)
    assert isinstance(first, Serve)
    router.done(endpoint, first.target, 8.0, sent_at=0.0)
    decisions = [router.arrive(endpoint, n, 8.0) for n in range(6)]
    assert isinstance(decisions[5], Refuse)
    assert decisions[5].retry_after_s == 4 * 8.0 / 2


def test_those_who_are_refused_in_one_moment_are_told_turns_that_follow_each_other() -> None:
    router = router_with(serving(max_in_flight=2, max_queue=3))
    endpoint = router.find("m")
    first = router.arrive(endpoint, "first", 0.0)
    assert isinstance(first, Serve)
    router.done(endpoint, first.target, 8.0, sent_at=0.0)
    refused = [d for n in range(9) if isinstance(d := router.arrive(endpoint, n, 8.0), Refuse)]
    assert [d.retry_after_s for d in refused] == [16.0, 20.0, 24.0, 28.0]
    later = router.arrive(endpoint, "later", 38.0)
    assert isinstance(later, Refuse)
    assert later.retry_after_s == 16.0, "those turns are over, and nobody else was told one"


def test_who_asks_again_and_again_moves_the_turns_of_others_by_so_many_lengths_of_the_queue_at_most() -> None:
    router = router_with(serving(max_in_flight=4, max_queue=6))
    endpoint = router.find("m")
    first = router.arrive(endpoint, "first", 0.0)
    assert isinstance(first, Serve)
    router.done(endpoint, first.target, 1.0, sent_at=0.0)
    for n in range(10):
        router.arrive(endpoint, n, 1.0)
    for n in range(10_000):
        router.arrive(endpoint, ("again", n), 1.0)
    other = router.arrive(endpoint, "other", 1.0)
    assert isinstance(other, Refuse)
    assert other.retry_after_s == 7 / 4 + estimates.LENGTHS_MAX * 10 / 4


def test_a_cold_endpoint_tells_what_is_left_of_the_time_that_it_took_to_wake_last() -> None:
    router = router_with(RouteSpec("m", "asleep", limits=Limits(max_queue=1, queue_timeout_s=100.0)))
    endpoint = router.find("m")
    router.arrive(endpoint, "a", 10.0)
    full = router.arrive(endpoint, "b", 11.0)
    assert isinstance(full, Refuse)
    assert full.retry_after_s == estimates.COLD_S, "never seen to wake"
    (released,) = router.apply(Generation("s", 2), [serving(max_queue=1)], 50.0) or []
    router.done(endpoint, released[1].target, 51.0)  # type: ignore[union-attr]
    router.apply(Generation("s", 3), [RouteSpec("m", "asleep", limits=Limits(max_queue=1))], 60.0)
    router.arrive(endpoint, "c", 100.0)
    full = router.arrive(endpoint, "d", 130.0)
    assert isinstance(full, Refuse)
    assert full.retry_after_s == 40.0 - 30.0


def test_what_the_control_plane_tells_goes_before_every_estimate() -> None:
    router = router_with(RouteSpec("m", "starting", limits=Limits(max_queue=0), retry_after_s=77.0))
    refused = router.arrive(router.find("m"), "a", 0.0)
    assert isinstance(refused, Refuse)
    assert refused.retry_after_s == 77.0


@pytest.mark.parametrize(("outcome", "least"), [(FAILED, 5), (SERVER_ERROR, 10), (NEUTRAL, None), (OK, None)])
def test_so_many_bad_answers_in_a_row_put_a_replica_aside(outcome: int, least: int | None) -> None:
    router = router_with(serving(2))
    endpoint = router.find("m")
    target = endpoint.targets[0]
    for count in range(1, 21):
        target.in_flight += 1
        endpoint.in_flight += 1
        router.done(endpoint, target, 1.0, outcome, sent_at=0.5)
        assert target.aside == (least is not None and count >= least)


def test_one_good_answer_between_bad_ones_begins_the_row_anew_and_the_only_replica_is_kept() -> None:
    router = router_with(serving(1))
    endpoint = router.find("m")
    for outcome in [FAILED] * 4 + [OK] + [FAILED] * 40:
        decision = router.arrive(endpoint, "x", 1.0)
        assert isinstance(decision, Serve)
        router.done(endpoint, decision.target, 1.0, outcome, sent_at=1.0)
    assert not decision.target.aside
    assert decision.target.ejections == 0


class Counted:
    """A token that counts how often anything looks at it."""

    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return id(self)


def looks(step) -> int:  # type: ignore[no-untyped-def]
    before = Counted.looks
    step()
    return Counted.looks - before


@pytest.mark.parametrize("held", [10, 5000])
def test_each_step_costs_the_same_however_many_wait(held: int) -> None:
    limits = Limits(max_in_flight=1, max_queue=held, queue_timeout_s=1e6)
    cold = RouteSpec("cold", "asleep", limits=limits)
    router = router_with(cold, serving(2, max_in_flight=1, max_queue=held, queue_timeout_s=1e6))
    flooded, warm = router.find("cold"), router.find("m")
    tokens = [Counted() for _ in range(held)]
    for token in tokens:
        assert isinstance(router.arrive(flooded, token, 0.0), Hold)
    assert looks(lambda: router.arrive(flooded, Counted(), 0.0)) <= 1, "one too many is refused at once"
    assert looks(lambda: router.sweep(1.0)) == 0, "nobody is late"
    assert looks(lambda: router.cancelled(flooded, tokens[held // 2])) < 10
    first = router.arrive(warm, "w", 1.0)
    assert isinstance(first, Serve)
    assert looks(lambda: router.done(warm, first.target, 2.0)) == 0
    assert looks(lambda: router.apply(Generation("s", 2), [cold, warm.route], 3.0)) == 0


@pytest.mark.parametrize("held", [10, 5000])
def test_a_failed_connect_and_a_free_place_cost_the_same_however_many_wait(held: int) -> None:
    queue = Queue()
    for _ in range(held):
        queue.add(Waiter(Counted(), 1e6))
    assert looks(lambda: queue.add_first(Waiter(Counted(), 5.0))) < 10
    assert looks(lambda: queue.went(queue.head(0))) < 10  # type: ignore[arg-type]
    assert looks(lambda: queue.late(5.0)) < 10
    assert len(queue.late(1e6)) == held
    assert not queue.waiting

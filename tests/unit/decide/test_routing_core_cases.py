"""The routing core, case by case; `now` is a number."""

from moorage.decide.serving.routes import Generation, Held, Hold, Limits, Refuse, RouteSpec, Serve, TargetSpec
from moorage.decide.serving.routing import CONTROL_GRACE_S, EJECT_MAX_S, EJECT_MIN_S, Router


def replicas(count: int, **kw: int) -> tuple[TargetSpec, ...]:
    return tuple(TargetSpec(f"r{n}", "rev", "h", n + 1, **kw) for n in range(count))


def router_with(*routes: RouteSpec) -> Router:
    router = Router(1, 0.0)
    router.control(True, 0.0)
    assert router.apply(Generation("s", 1), routes, 0.0) is not None
    return router


def test_a_bare_name_means_the_default_namespace_and_a_full_name_any() -> None:
    router = router_with(RouteSpec("m", "serve"), RouteSpec("m", "serve", namespace="team"))
    assert router.find("m").key == ("default", "m")
    assert router.find("team/m").key == ("team", "m")
    assert router.find("default/m") is router.find("m")


def test_a_bare_name_of_two_other_namespaces_is_nobodys() -> None:
    router = router_with(RouteSpec("m", "serve", namespace="a"), RouteSpec("m", "serve", namespace="b"))
    assert router.find("m") is None
    assert router_with(RouteSpec("m", "serve", namespace="a")).find("m").key == ("a", "m")


def test_an_alias_never_takes_the_name_of_an_endpoint() -> None:
    router = router_with(RouteSpec("a", "serve", aliases=("b", "c")), RouteSpec("b", "serve"))
    assert router.find("b").route.name == "b"
    assert router.find("default/b").route.name == "b"
    assert router.find("c").route.name == "a"


def test_requests_spread_evenly_over_equal_replicas() -> None:
    router = router_with(RouteSpec("m", "serve", targets=replicas(4), limits=Limits(max_in_flight=100)))
    endpoint = router.find("m")
    for token in range(200):
        assert isinstance(router.arrive(endpoint, token, 0.0), Serve)
    counts = [target.in_flight for target in endpoint.targets]
    assert max(counts) - min(counts) <= 6


def test_unequal_weights_share_the_traffic_in_their_proportion() -> None:
    targets = (
        *replicas(1, weight=90),
        TargetSpec("canary", "rev-2", "h", 9, weight=10),
        TargetSpec("off", "r", "h", 10, weight=0),
    )
    router = router_with(RouteSpec("m", "serve", targets=targets, limits=Limits(max_in_flight=10_000)))
    endpoint = router.find("m")
    for token in range(2000):
        router.arrive(endpoint, token, 0.0)
    shares = {target.spec.replica: target.in_flight for target in endpoint.targets}
    assert set(shares) == {"r0", "canary"}
    assert 100 < shares["canary"] < 300


def test_the_least_loaded_of_two_is_chosen_and_a_full_one_never() -> None:
    router = router_with(RouteSpec("m", "serve", targets=replicas(2), limits=Limits(max_in_flight=3, max_queue=1)))
    endpoint = router.find("m")
    decisions = [router.arrive(endpoint, token, 0.0) for token in range(8)]
    assert [type(d) for d in decisions] == [Serve] * 6 + [Hold, Refuse]
    assert [t.in_flight for t in endpoint.targets] == [3, 3]
    assert (decisions[7].status, decisions[7].code) == (429, "queue_full")
    assert decisions[7].retry_after_s
    released = router.done(endpoint, endpoint.targets[0], 1.0)
    assert [(token, type(d)) for token, d in released] == [(6, Serve)]


def test_failures_of_one_moment_count_once_and_back_off_doubles_to_its_limit() -> None:
    router = router_with(RouteSpec("m", "serve", targets=replicas(1)))
    target = router.find("m").targets[0]
    for _ in range(10):
        router.eject(target, 5.0)
    assert (target.failures, target.ejected_until) == (1, 5.0 + EJECT_MIN_S)
    for _ in range(20):
        router.eject(target, target.ejected_until)
    router.eject(target, now := target.ejected_until)
    assert target.ejected_until - now == EJECT_MAX_S


def test_a_replica_put_aside_gets_one_probe_and_all_traffic_after_it_connected() -> None:
    router = router_with(RouteSpec("m", "serve", targets=replicas(1)))
    endpoint = router.find("m")
    target = endpoint.targets[0]
    router.eject(target, 0.0)
    assert isinstance(router.arrive(endpoint, "a", 0.0), Hold)
    assert isinstance(router.arrive(endpoint, "b", 0.0), Hold)
    assert [token for token, _ in router.retry(endpoint, EJECT_MIN_S)] == ["a"]
    assert router.retry(endpoint, EJECT_MIN_S) == []
    assert [token for token, _ in router.connected(endpoint, target, EJECT_MIN_S)] == ["b"]


def test_a_request_whose_connect_failed_waits_at_the_front_with_its_first_deadline() -> None:
    router = router_with(
        RouteSpec("m", "serve", targets=replicas(1), limits=Limits(max_in_flight=1, queue_timeout_s=10.0))
    )
    endpoint = router.find("m")
    first = router.arrive(endpoint, "first", 0.0)
    assert isinstance(first, Serve)
    assert isinstance(router.arrive(endpoint, "second", 1.0), Hold)
    assert isinstance(router.connect_failed(endpoint, first.target, Held("first", 10.0), 2.0), Hold)
    assert {token: waiter.deadline for token, waiter in endpoint.waiting.items()} == {"first": 10.0, "second": 11.0}
    assert endpoint.queue.head(0).token == "first"
    target = endpoint.targets[0]
    router.eject(target, 9.99)
    late = router.sweep(10.0)
    assert [(token, decision.code) for token, decision in late] == [("first", "queue_timeout")]


def test_a_cold_endpoint_holds_through_a_restart_of_the_control_plane_and_refuses_beyond() -> None:
    router = router_with(RouteSpec("cold", "asleep"), RouteSpec("warm", "serve", targets=replicas(1)))
    router.control(False, 100.0)
    assert isinstance(router.arrive(router.find("cold"), 1, 100.0 + CONTROL_GRACE_S), Hold)
    refused = router.arrive(router.find("cold"), 2, 100.1 + CONTROL_GRACE_S)
    assert isinstance(refused, Refuse)
    assert refused.retry_after_s
    assert isinstance(router.arrive(router.find("warm"), 3, 1000.0), Serve)
    router.control(True, 1000.0)
    assert isinstance(router.arrive(router.find("cold"), 4, 1000.0), Hold)


def test_a_lower_generation_is_ignored_and_another_incarnation_is_taken() -> None:
    router = router_with(RouteSpec("m", "serve"))
    assert router.apply(Generation("s", 1), [], 0.0) is None
    assert router.apply(Generation("s", 0), [], 0.0) is None
    assert router.find("m") is not None
    assert router.apply(Generation("t", 0), [], 0.0) == []
    assert router.find("m") is None


def test_an_endpoint_that_left_keeps_its_counts_until_its_requests_end() -> None:
    router = router_with(RouteSpec("m", "serve", targets=replicas(1)))
    endpoint = router.find("m")
    served = router.arrive(endpoint, 1, 0.0)
    assert isinstance(served, Serve)
    router.apply(Generation("s", 2), [], 0.0)
    assert [e.in_flight for e in router.endpoints()] == [1]
    router.done(endpoint, served.target, 0.0)
    router.apply(Generation("s", 3), [], 0.0)
    assert list(router.endpoints()) == []


def test_a_replica_that_comes_back_under_another_worker_starts_clean() -> None:
    router = router_with(RouteSpec("m", "serve", targets=(TargetSpec("r", "1", "h", 1, worker="w1"),)))
    router.eject(router.find("m").targets[0], 0.0)
    router.apply(
        Generation("s", 2), [RouteSpec("m", "serve", targets=(TargetSpec("r", "1", "h", 1, worker="w2"),))], 0.0
    )
    assert router.find("m").targets[0].failures == 0

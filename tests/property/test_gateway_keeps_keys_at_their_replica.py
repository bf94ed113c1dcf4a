"""The same key goes to the same replica while that has room; replicas that come and go move only their own keys."""

import gc

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.decide.serving import affinity
from moorage.decide.serving.picking import Picks
from moorage.decide.serving.routes import (
    EndpointState,
    Generation,
    Limits,
    RevisionState,
    RouteSpec,
    Serve,
    TargetSpec,
    TargetState,
)
from moorage.decide.serving.routing import Router
from tests.examples import examples

KEYS = st.lists(st.binary(min_size=1, max_size=12), min_size=1, max_size=40, unique=True)


def router_of(names: list[str], max_in_flight: int = 1000) -> Router:
    router = Router(5, 0.0)
    route_to(router, names, 1, max_in_flight)
    return router


def route_to(router: Router, names: list[str], number: int, max_in_flight: int = 1000) -> None:
    specs = tuple(TargetSpec(name, "1", "h", 1, weight=1 + len(name)) for name in names)
    limits = Limits(max_in_flight=max_in_flight, affinity="session")
    router.apply(Generation("s", number), [RouteSpec("m", "serve", targets=specs, limits=limits)], 0.0)


def home(router: Router, key: bytes) -> str:
    endpoint = router.find("m")
    decision = router.arrive(endpoint, object(), 0.0, affinity=key)
    assert isinstance(decision, Serve)
    router.done(endpoint, decision.target, 0.0)
    return decision.target.spec.replica


@settings(max_examples=examples(60), deadline=None)
@given(keys=KEYS, names=st.lists(st.integers(0, 99), min_size=2, max_size=8, unique=True))
def test_a_replica_that_comes_or_goes_moves_only_its_own_keys(keys: list[bytes], names: list[int]) -> None:
    all_of_them = [f"r{n}" for n in names]
    router = router_of(all_of_them)
    before = {key: home(router, key) for key in keys}
    assert before == {key: home(router_of(list(reversed(all_of_them))), key) for key in keys}, "in every gateway alike"
    route_to(router, all_of_them[1:], 2)
    without = {key: home(router, key) for key in keys}
    gone = all_of_them[0]
    assert all(without[key] == before[key] for key in keys if before[key] != gone)
    route_to(router, all_of_them, 3)
    assert {key: home(router, key) for key in keys} == before


def test_keys_are_spread_evenly() -> None:
    router = router_of([f"replica-{n}" for n in range(5)])
    homes = [home(router, b"session-%d" % n) for n in range(2000)]
    assert all(300 < homes.count(f"replica-{n}") < 500 for n in range(5))


def test_the_hash_is_the_same_in_every_process() -> None:
    assert affinity.number_of(b"session-1") == 12459036657078585774
    assert affinity.score(1, 2) == 487617019471545679


@settings(max_examples=examples(60), deadline=None)
@given(replicas=st.integers(1, 6), keys=st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_no_replica_gets_more_than_a_quarter_above_the_mean_and_each_request_is_served(
    replicas: int, keys: list[int]
) -> None:
    router = router_of([f"r{n}" for n in range(replicas)], max_in_flight=10)
    endpoint = router.find("m")
    for count, key in enumerate(keys):
        decision = router.arrive(endpoint, object(), 0.0, affinity=b"%d" % key)
        assert isinstance(decision, Serve) == (count < replicas * 10)
        opened = [target for target in endpoint.targets if target.in_flight < 10]
        if isinstance(decision, Serve) and len(opened) == replicas:
            assert decision.target.in_flight <= affinity.bound(endpoint.in_flight - 1, replicas)


@settings(max_examples=examples(40), deadline=None)
@given(key=st.binary(min_size=1, max_size=8))
def test_a_key_comes_back_to_its_replica_once_that_connects_again(key: bytes) -> None:
    router = router_of(["a", "b", "c"])
    first = home(router, key)
    target = next(t for t in router.find("m").targets if t.spec.replica == first)
    router.eject(target, 0.0)
    assert home(router, key) != first
    router.connected(router.find("m"), target, 0.0)
    assert home(router, key) == first


def chosen_plainly(targets: list[TargetState], number: int, now: float, limit: int) -> TargetState | None:
    """Of those that are open and within their bound the one with the highest score, all of them looked at each time."""
    opened = [target for target in targets if target.open_to(now, limit)]
    if not opened:
        return None
    most = affinity.bound(sum(target.in_flight for target in opened), len(opened))
    return max((t for t in opened if t.in_flight < most), key=lambda t: affinity.score(number, t.number))


REPLICA = st.tuples(st.integers(0, 12), st.sampled_from(["open"] * 6 + ["aside", "probing", "later"]))


@settings(max_examples=examples(300), deadline=None)
@given(loads=st.lists(REPLICA, min_size=2, max_size=7), keys=st.lists(st.binary(max_size=4), min_size=1, max_size=6))
def test_the_remembered_order_chooses_as_all_scores_would(loads: list[tuple[int, str]], keys: list[bytes]) -> None:
    router = router_of([f"r{n}" for n in range(len(loads))], max_in_flight=10)
    endpoint = router.find("m")
    picks = Picks(1)
    for _ in range(2):
        for target, (in_flight, state) in zip(endpoint.targets, loads, strict=True):
            target.in_flight, target.aside = in_flight, state != "open"
            target.probing, target.ejected_until = state == "probing", 9.0 if state == "later" else 1.0
        for key in [*keys, *keys]:
            expected = chosen_plainly(endpoint.targets, affinity.number_of(key), 5.0, 10)
            assert picks.pick(endpoint, 5.0, 10, key) is expected
            if expected is not None:
                expected.in_flight += 1
        loads.reverse()
        route_to(router, [f"s{n}" for n in range(len(loads))], 2)  # others in their place, of the same number


def orders_in(picks: Picks) -> int:
    return sum(len(orders.by_key) for orders in picks._orders.values())


def test_orders_of_many_keys_are_not_kept_for_ever() -> None:
    router = router_of(["a", "b"])
    picks = Picks(1)
    for number in range(10_000):
        if number % 3000 == 2999:
            route_to(router, ["a", "b", f"c{number}"], number)
        picks.pick(router.find("m"), 0.0, 10, b"%d" % number)
        assert orders_in(picks) == picks._count <= 4096


def replicas_kept(picks: Picks) -> set[str]:
    """The replicas that it holds on to."""
    return {
        target.spec.replica
        for orders in picks._orders.values()
        for targets in (orders.targets, *orders.by_key.values())
        for target in targets
    }


def test_orders_of_replicas_that_a_table_leaves_out_are_dropped_with_it_and_others_stay() -> None:
    router = Router(5, 0.0)

    def table(number: int, names: dict[str, list[str]]) -> None:
        """Deployments with their replicas, the first of each of another revision."""
        router.apply(
            Generation("s", number),
            [
                RouteSpec(
                    name,
                    "serve",
                    targets=tuple(TargetSpec(r, "1" if at else "2", "h", 1) for at, r in enumerate(replicas)),
                )
                for name, replicas in names.items()
            ],
            0.0,
        )

    def live() -> list[EndpointState | RevisionState]:
        return [each for state in router.endpoints() for each in (state, *state.revisions.values())]

    picks = Picks(1)
    table(1, {"m": ["a", "b", "c"], "n": ["d", "e"]})
    for each in live():
        for key in (b"1", b"2"):
            picks.pick(each, 0.0, 10, key)
    assert replicas_kept(picks) == {"a", "b", "c", "d", "e"}
    unchanged = picks._orders[router.find("n")]
    table(2, {"m": ["a"], "n": ["d", "e"]})
    picks.keep(live())
    assert replicas_kept(picks) == {"d", "e"}, "m and the revision that it has no more had others"
    assert picks._orders[router.find("n")] is unchanged
    assert orders_in(picks) == picks._count == 2
    table(3, {"m": ["a"]})
    picks.keep(live())
    assert replicas_kept(picks) == set()
    assert picks._count == 0


def test_a_replica_that_a_table_leaves_out_is_held_by_nothing_though_no_request_follows() -> None:
    router = router_of(["gone-a", "gone-b", "stays"])
    for number in range(50):
        home(router, b"%d" % number)
    route_to(router, ["stays", "comes"], 2)
    gc.collect()
    held = {each.spec.replica for each in gc.get_objects() if type(each) is TargetState}
    assert not held & {"gone-a", "gone-b"}

"""Endpoints that people made: weights hold at every moment, and a name that is known is never answered 404."""

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.decide.serving.binding import BindingSpec
from moorage.decide.serving.routes import EndpointState, Generation, Hold, Limits, Refuse, RouteSpec, Serve, TargetSpec
from moorage.decide.serving.routing import Router
from tests.examples import examples

WEIGHTS = st.lists(st.integers(0, 100), min_size=1, max_size=5)
MODES = st.sampled_from(["serve", "asleep", "failed", "stopped"])


def table(modes: dict[str, str]) -> list[RouteSpec]:
    target = (TargetSpec("r", "1", "h", 1),)
    return [RouteSpec(n, m, targets=target if m == "serve" else (), limits=Limits()) for n, m in modes.items()]


def bound(*routes: tuple[str, int]) -> BindingSpec:
    return BindingSpec("e1", "chat", routes=routes)


@settings(max_examples=examples(100), deadline=None)
@given(weights=WEIGHTS, turns=st.integers(1, 300), tables=st.integers(1, 20))
def test_each_deployment_gets_its_share_of_any_first_turns_over_all_changes_of_the_table(
    weights: list[int], turns: int, tables: int
) -> None:
    router = Router(1, 0.0)
    modes = {f"d{n}": "serve" for n in range(len(weights))}
    spec = bound(*[(f"d{n}", weight) for n, weight in enumerate(weights)])
    drawn = dict.fromkeys(modes, 0)
    total = sum(weights)
    for turn in range(1, turns + 1):
        if turn % tables == 1 or tables == 1:
            assert router.apply(Generation("s", turn), table(modes), 0.0, [spec]) == []
        binding = router.bound("chat")
        assert binding is not None
        answer = binding.draw()
        if not total:
            assert isinstance(answer, Refuse)
            assert (answer.status, answer.code) == (503, "endpoint_unbound")
            continue
        assert isinstance(answer, EndpointState)
        drawn[answer.route.name] += 1
        for n, weight in enumerate(weights):
            assert weight or not drawn[f"d{n}"]
            assert abs(drawn[f"d{n}"] - turn * weight / total) < max(1.01, len(weights) / 2)


@settings(max_examples=examples(100), deadline=None)
@given(
    modes=st.dictionaries(st.sampled_from(["a", "b", "c"]), MODES),
    weights=st.fixed_dictionaries({name: st.integers(0, 3) for name in "abc"}),
)
def test_one_that_can_serve_is_drawn_while_there_is_one_and_else_an_error_is_told_that_is_no_404(
    modes: dict[str, str], weights: dict[str, int]
) -> None:
    router = Router(1, 0.0)
    router.control(True, 0.0)
    router.apply(Generation("s", 1), table(modes), 0.0, [bound(*weights.items())])
    able = [name for name, mode in modes.items() if weights[name] and mode in ("serve", "asleep")]
    assert router.find("chat") is None
    for token in range(8):
        binding = router.bound("default/chat")
        assert binding is not None
        drawn = binding.draw()
        if isinstance(drawn, EndpointState):
            assert weights[drawn.route.name]
            decision = router.arrive(drawn, token, 0.0, bound="chat")
            assert isinstance(decision, Serve | Hold) == bool(able)
        else:
            decision = drawn
            assert not [name for name in modes if weights[name]]
        if isinstance(decision, Refuse):
            assert decision.status == 503


def test_who_waits_by_a_bound_name_is_told_to_retry_when_the_deployment_goes_and_never_404() -> None:
    router = Router(1, 0.0)
    router.control(True, 0.0)
    router.apply(Generation("s", 1), table({"a": "asleep"}), 0.0, [bound(("a", 1))])
    endpoint = router.find("a")
    assert isinstance(router.arrive(endpoint, "bound", 0.0, bound="chat"), Hold)
    assert isinstance(router.arrive(endpoint, "own", 0.0), Hold)
    told = dict(router.apply(Generation("s", 2), [], 1.0, [bound(("a", 1))]) or [])
    assert (told["bound"].status, told["bound"].code, told["own"].status) == (503, "endpoint_rebound", 404)


def test_what_runs_goes_on_when_its_endpoint_is_bound_elsewhere() -> None:
    router = Router(1, 0.0)
    both = table({"a": "serve", "b": "serve"})
    router.apply(Generation("s", 1), both, 0.0, [bound(("a", 1))])
    decision = router.arrive(router.bound("chat").draw(), "x", 0.0, bound="chat")
    assert isinstance(decision, Serve)
    assert router.apply(Generation("s", 2), both, 1.0, [bound(("b", 1))]) == []
    assert router.bound("chat").draw() is router.find("b")
    assert decision.target.in_flight == 1
    assert router.done(router.find("a"), decision.target, 2.0) == ()


def test_a_deployments_own_endpoint_goes_before_one_that_people_made_and_a_bare_name_means_the_default_namespace() -> (
    None
):
    router = Router(1, 0.0)
    specs = [
        bound(("a", 1)),
        BindingSpec("e2", "a", routes=(("a", 1),)),
        BindingSpec("e3", "chat", "team", (("x", 1),)),
    ]
    router.apply(Generation("s", 1), table({"a": "serve"}), 0.0, specs)
    assert router.find("a") is not None
    assert router.bound("a") is None
    assert router.bound("chat").spec.uid == "e1"
    assert router.bound("team/chat").spec.uid == "e3"
    assert sorted(binding.public_id for binding in router.bindings()) == ["chat", "team/chat"]
    router.apply(Generation("s", 2), table({"a": "serve"}), 0.0, [])
    assert router.bound("chat") is None

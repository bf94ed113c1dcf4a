"""Whatever people do to deployments and endpoints, no endpoint loses its last answer to a delete."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.decide import endpoints
from moorage.decide.endpoints import EndpointIntent, KnownEndpoint, drawn, namings, passed_over, routes_of
from moorage.domain.changes import Create, Remove, Update
from moorage.domain.errors import Conflict, InvalidSpec
from moorage.domain.nouns import Deployment, Endpoint
from moorage.domain.states import DeploymentStatus
from moorage.wire.spec import document, normalise
from tests.examples import examples, phases

NAMES = ("a", "b", "c")
WEIGHTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 3), min_size=1, max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("bind"), st.sampled_from(("x", "y")), WEIGHTS),
        st.tuples(st.sampled_from(("make", "delete", "fail", "mend")), st.sampled_from(NAMES), st.none()),
        st.tuples(st.just("drop"), st.sampled_from(("x", "y")), st.none()),
    ),
    max_size=25,
)


class Ids:
    def __init__(self) -> None:
        self.count = 0

    def new(self, kind: str) -> str:
        self.count += 1
        return f"ep-{self.count}"


class World:
    """Rows by name, changed only by what the decisions ask for."""

    def __init__(self) -> None:
        self.ids = Ids()
        self.deployments = {name: Deployment(uid=f"dep-{name}", name=name) for name in NAMES}
        self.endpoints: dict[str, Endpoint] = {}

    def answering(self, row: Endpoint) -> list[str]:
        return [n for n, w in routes_of(row.spec) if w and passed_over(self.deployments.get(n)) is None]

    def bind(self, name: str, weights: dict[str, int]) -> None:
        routes = [{"deployment": n, "weight": w} for n, w in weights.items()]
        try:
            spec = normalise(document({"kind": "Endpoint", "name": name, "routes": routes}))
            known = KnownEndpoint(self.endpoints.get(name), self.deployments)
            outcome = endpoints.apply(EndpointIntent("default", name, spec), known, self.ids, 1.0, actor="person:p")
        except InvalidSpec:
            assert not any(weights.values()) or not weights.keys() <= self.deployments.keys()
            return
        assert outcome.answer["changed"] is (outcome.change is not None)
        for write in outcome.change.writes if outcome.change else ():
            if isinstance(write, Create):
                assert isinstance(write.row, Endpoint)
                self.endpoints[name] = write.row
            elif isinstance(write, Update) and write.kind == "Endpoint":
                before = self.endpoints[name]
                self.endpoints[name] = replace(before, version=before.version + 1, **write.fields)
        assert routes_of(self.endpoints[name].spec) == list(weights.items())
        again = endpoints.apply(
            EndpointIntent("default", name, spec),
            KnownEndpoint(self.endpoints[name], self.deployments),
            self.ids,
            1.0,
            actor="person:p",
        )
        assert again.change is None, "the same again changes nothing"

    def delete(self, name: str) -> None:
        row = self.deployments.get(name)
        if row is None:
            return
        before = {e.name: self.answering(e) for e in self.endpoints.values()}
        held = namings(row, self.endpoints.values(), self.deployments)
        try:
            endpoints.refuse_to_strand(row, held)
        except Conflict:
            assert [name] in before.values()
            return
        del self.deployments[name]
        for endpoint in self.endpoints.values():
            assert bool(self.answering(endpoint)) is bool(before[endpoint.name]), "a delete took the last answer"

    def drop(self, name: str) -> None:
        row = self.endpoints.pop(name, None)
        if row is not None:
            writes = endpoints.delete(row, self.deployments, 1.0, actor="person:p").change.writes  # type: ignore[union-attr]
            assert [w.uid for w in writes if isinstance(w, Remove)] == [row.uid]

    def status(self, name: str, status: DeploymentStatus) -> None:
        if name in self.deployments:
            self.deployments[name] = replace(self.deployments[name], status=status)


@settings(max_examples=examples(100), phases=phases())
@given(STEPS)
def test_a_delete_never_takes_the_last_answer_of_an_endpoint(
    steps: list[tuple[str, str, dict[str, int] | None]],
) -> None:
    world = World()
    for what, name, weights in steps:
        if what == "bind":
            world.bind(name, weights or {})
        elif what == "make":
            world.deployments.setdefault(name, Deployment(uid=f"dep-{name}", name=name))
        elif what == "delete":
            world.delete(name)
        elif what == "drop":
            world.drop(name)
        else:
            world.status(name, DeploymentStatus.FAILED if what == "fail" else DeploymentStatus.CREATED)


@given(WEIGHTS, st.sets(st.sampled_from(NAMES)))
def test_requests_are_drawn_for_what_can_answer_and_for_all_of_weight_where_nothing_can(
    weights: dict[str, int], over: set[str]
) -> None:
    named = {name for name, weight in weights.items() if weight}
    found = drawn(weights, over)
    assert set(found) == (named - over or named)
    assert len(found) == len(set(found))

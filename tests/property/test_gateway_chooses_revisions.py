"""Shares hold at every prefix, a request that names a revision goes to no other, and a bad candidate harms nobody."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moorage.decide.serving.among import COPIES_MAX
from moorage.decide.serving.routes import (
    Generation,
    Held,
    Hold,
    Limits,
    Refuse,
    RevisionSpec,
    RouteSpec,
    Serve,
    TargetSpec,
)
from moorage.decide.serving.routing import Router
from moorage.decide.serving.shares import Portion
from tests.examples import examples

LIMITS = Limits(max_in_flight=2, max_queue=3, queue_timeout_s=5.0)
ACTIVE = RevisionSpec("rev-a", 3)
NO_SHARE = st.sampled_from(
    [
        RevisionSpec("rev-b", 4, "next", "candidate", "share", 0.0),
        RevisionSpec("rev-b", 4, "next", "candidate", "header", 0.0),
        RevisionSpec("rev-b", 4, "next", "candidate", "mirror", 100.0),
        RevisionSpec("rev-b", 4, "next", "candidate", "mirror", 33.3),
    ]
)


def route(candidate: RevisionSpec | None, active: int, others: int, mode: str = "serve") -> RouteSpec:
    targets = [TargetSpec(f"a{n}", "rev-a", "h", n + 1) for n in range(active)]
    if candidate is not None:
        targets += [TargetSpec(f"b{n}", "rev-b", "h", n + 100) for n in range(others)]
    revisions = (ACTIVE,) if candidate is None else (ACTIVE, candidate)
    return RouteSpec("m", mode, targets=tuple(targets), limits=LIMITS, revisions=revisions)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 5.0, 10.0, 25.0, 33.3, 50.0, 99.9, 100.0]), max_size=300))
@settings(max_examples=examples(60), deadline=None)
def test_at_any_prefix_the_turns_are_within_one_of_the_exact_share(shares: list[float]) -> None:
    portion, turns, exact = Portion(), 0, Fraction(0)
    for share in shares:
        turns += portion.turn(share)
        exact += Fraction(str(share)) / 100
        assert abs(turns - exact) <= Fraction(1, 2)


@given(
    share=st.sampled_from([1.0, 5.0, 10.0, 33.3, 50.0]),
    events=st.lists(st.sampled_from(["ask", "ask", "ask", "end", "table", "named"]), min_size=1, max_size=200),
)
@settings(max_examples=examples(40), deadline=None)
def test_a_canary_gets_its_share_whatever_else_happens(share: float, events: list[str]) -> None:
    router = Router(1, 0.0)
    candidate = RevisionSpec("rev-b", 4, role="candidate", share=share)
    router.apply(Generation("s", 1), [route(candidate, 2, 1)], 0.0)
    endpoint, asked, running = router.find("m"), 0, []
    for number, event in enumerate(events):
        if event == "table":
            router.apply(Generation("s", number + 2), [route(candidate, 1 + number % 3, 1)], 0.0)
        elif event == "end" and running:
            running += [each.target for _, each in router.done(endpoint, running.pop(0), 0.0)]
        elif event in ("ask", "named"):
            decision = router.arrive(endpoint, number, 0.0, "3" if event == "named" else None)
            asked += event == "ask"
            if isinstance(decision, Serve):
                running.append(decision.target)
        traffic = endpoint.revisions["rev-b"].traffic
        served = sum(target.spec.revision == "rev-b" for target in running)
        assert served <= LIMITS.max_in_flight
        turns = endpoint.split.turns
        assert abs(turns - asked * Fraction(str(share)) / 100) <= Fraction(1, 2)
        assert traffic.passed_over <= turns


class BadCandidate(RuleBasedStateMachine):
    """Two gateways get the same requests; one of them has a candidate with which anything may happen."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.plain, self.beside = Router(7, 0.0), Router(7, 0.0)
        for router in (self.plain, self.beside):
            router.control(True, 0.0)
        self.number = self.tokens = 0
        self.candidate = RevisionSpec("rev-b", 4, "next", "candidate", "mirror", 100.0)
        self.running: dict[int, tuple[object, object]] = {}
        self.held: set[int] = set()
        self.named: dict[str, object] = {}
        self.named_held: set[str] = set()
        self.copies: list[object] = []
        self.table(self.candidate, 1, 2, "serve")

    def endpoints(self):  # type: ignore[no-untyped-def]
        return self.plain.find("m"), self.beside.find("m")

    def both(self, token: int, one: object, other: object) -> None:
        """The same for the client, and never by the candidate."""
        assert type(one) is type(other), (one, other)
        self.held.discard(token)
        self.running.pop(token, None)
        if isinstance(one, Serve) and isinstance(other, Serve):
            assert other.target.spec.revision == "rev-a"
            assert one.target.spec.replica == other.target.spec.replica
            self.running[token] = (one.target, other.target)
            if other.copy is not None:
                assert other.copy.spec.revision == "rev-b"
                self.copies.append(other.copy)
        elif isinstance(one, Hold):
            self.held.add(token)
        elif isinstance(one, Refuse) and isinstance(other, Refuse):
            assert (one.status, one.code) == (other.status, other.code)

    def released(self, ones, others) -> None:  # type: ignore[no-untyped-def]
        rest = [(token, decision) for token, decision in others if isinstance(token, int)]
        for token, decision in others:
            if isinstance(token, str):
                self.of_named(token, decision)
        assert [token for token, _ in ones] == [token for token, _ in rest]
        for (token, one), (_, other) in zip(ones, rest, strict=True):
            self.both(token, one, other)

    def of_named(self, token: str, decision: object) -> None:
        self.named_held.discard(token)
        self.named.pop(token, None)
        if isinstance(decision, Serve):
            assert decision.target.spec.revision == "rev-b", "it named the candidate"
            self.named[token] = decision.target
        elif isinstance(decision, Hold):
            self.named_held.add(token)

    @rule(
        candidate=NO_SHARE, active=st.integers(0, 1), others=st.integers(0, 2), mode=st.sampled_from(["serve", "hold"])
    )
    def table(self, candidate: RevisionSpec, active: int, others: int, mode: str) -> None:
        self.number += 1
        self.candidate = candidate
        generation = Generation("s", self.number)
        ones = self.plain.apply(generation, [route(None, active, 0, mode)], self.now)
        others_ = self.beside.apply(generation, [route(candidate, active, others, mode)], self.now)
        self.released(ones, others_)

    @rule()
    def arrive(self) -> None:
        self.tokens += 1
        plain, beside = self.endpoints()
        self.both(
            self.tokens,
            self.plain.arrive(plain, self.tokens, self.now),
            self.beside.arrive(beside, self.tokens, self.now),
        )

    @rule(word=st.sampled_from(["4", "next", "rev-b"]))
    def one_names_the_candidate(self, word: str) -> None:
        self.tokens += 1
        token = f"n{self.tokens}"
        decision = self.beside.arrive(self.endpoints()[1], token, self.now, word)
        if isinstance(decision, Refuse) and self.candidate.by != "header" and self.endpoints()[1].route.mode == "serve":
            assert (decision.status, decision.code) == (404, "revision_not_found")
        self.of_named(token, decision)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), fails=st.booleans())
    def ends(self, data: st.DataObject, fails: bool) -> None:
        token = data.draw(st.sampled_from(sorted(self.running)))
        (plain, beside), (one, other) = self.endpoints(), self.running[token]
        if fails:
            held = Held(token, self.now + 1.0)
            self.both(
                token,
                self.plain.connect_failed(plain, one, held, self.now),
                self.beside.connect_failed(beside, other, held, self.now),
            )
            return
        del self.running[token]
        self.released(self.plain.done(plain, one, self.now), self.beside.done(beside, other, self.now))

    @precondition(lambda self: self.named)
    @rule(data=st.data(), fails=st.booleans())
    def a_named_one_ends(self, data: st.DataObject, fails: bool) -> None:
        token = data.draw(st.sampled_from(sorted(self.named)))
        target, beside = self.named.pop(token), self.endpoints()[1]
        if fails:
            self.of_named(token, self.beside.connect_failed(beside, target, Held(token, self.now + 1.0, "4"), self.now))
        else:
            self.released([], self.beside.done(beside, target, self.now))

    @precondition(lambda self: self.copies)
    @rule(fails=st.booleans())
    def a_copy_ends(self, fails: bool) -> None:
        target = self.copies.pop(0)
        self.beside.copy_ended(self.endpoints()[1], target)
        if fails:
            self.beside.eject(target, self.now)

    @rule(seconds=st.floats(0, 3))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.released(self.plain.sweep(self.now), self.beside.sweep(self.now))

    @invariant()
    def counts_agree(self) -> None:
        plain, beside = self.endpoints()
        assert set(plain.waiting) == self.held
        assert set(beside.waiting) == self.held | self.named_held
        assert set(beside.named) == self.named_held
        assert beside.in_flight == len(self.running) + len(self.named)
        assert beside.copies == len(self.copies) <= COPIES_MAX
        for target in (*beside.targets, *beside.leaving):
            assert 0 <= target.in_flight <= LIMITS.max_in_flight


TestABadCandidateChangesNothingForClientsThatNameNone = BadCandidate.TestCase
TestABadCandidateChangesNothingForClientsThatNameNone.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None
)

"""Whatever replicas answer: bad answers alone leave at least half of them open, and what answers well comes back."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moorage.decide.serving.ejection import BARRED_MAX_S
from moorage.decide.serving.routes import (
    FAILED,
    NEUTRAL,
    OK,
    SERVER_ERROR,
    Generation,
    Limits,
    RouteSpec,
    Serve,
    TargetSpec,
)
from moorage.decide.serving.routing import Router
from tests.examples import examples

OUTCOMES = st.sampled_from([OK, FAILED, FAILED, FAILED, FAILED, SERVER_ERROR, NEUTRAL])


class Answers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.number = 0
        self.router = Router(11, 0.0)
        self.router.control(True, 0.0)
        self.running: list[tuple[object, float]] = []
        self.apply(3)

    @property
    def endpoint(self):  # type: ignore[no-untyped-def]
        return self.router.find("m")

    @rule(replicas=st.integers(1, 5))
    def apply(self, replicas: int) -> None:
        self.number += 1
        specs = tuple(TargetSpec(f"r{n}", "1", "h", n + 1) for n in range(replicas))
        route = RouteSpec("m", "serve", targets=specs, limits=Limits(max_in_flight=8, max_queue=0))
        self.router.apply(Generation("s", self.number), [route], self.now)

    @rule()
    def arrive(self) -> None:
        decision = self.router.arrive(self.endpoint, object(), self.now)
        if isinstance(decision, Serve):
            target = decision.target
            if target.aside:
                assert self.now >= target.ejected_until
                assert not [t for t, sent in self.running if t is target and sent >= target.ejected_until], "one probe"
            self.running.append((target, self.now))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), outcome=OUTCOMES)
    def ends(self, data: st.DataObject, outcome: int) -> None:
        target, sent_at = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        was, until = target.barred, target.ejected_until
        self.router.done(self.endpoint, target, self.now, outcome, sent_at=sent_at)
        if was and sent_at < until:
            assert (target.barred, target.ejected_until) == (was, until), "what was sent before tells nothing new"
        elif was and outcome == OK:
            assert not target.barred
        elif not was and target.barred:
            assert outcome in (FAILED, SERVER_ERROR)
        assert target.ejected_until <= self.now + BARRED_MAX_S

    @rule(data=st.data())
    def connect_fails(self, data: st.DataObject) -> None:
        self.router.eject(data.draw(st.sampled_from(self.endpoint.targets)), self.now)

    @rule(data=st.data())
    def connects(self, data: st.DataObject) -> None:
        self.router.connected(self.endpoint, data.draw(st.sampled_from(self.endpoint.targets)), self.now)

    @rule(seconds=st.floats(0, 5))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def at_least_half_are_open_save_those_that_cannot_be_reached(self) -> None:
        targets = self.endpoint.targets
        opened = sum(not target.aside for target in targets)
        reached = sum(not target.failures for target in targets)
        assert opened >= min((len(targets) + 1) // 2, reached)
        assert all(target.aside == bool(target.failures or target.barred) for target in targets)

    def teardown(self) -> None:
        """All replicas are well again: each is open after one more request that it answers."""
        for target, sent_at in self.running:
            self.router.done(self.endpoint, target, self.now, OK, sent_at=sent_at)
        self.running.clear()
        for target in self.endpoint.targets:
            self.router.connected(self.endpoint, target, self.now)
        self.now += BARRED_MAX_S
        for _ in range(200):
            decision = self.router.arrive(self.endpoint, object(), self.now)
            assert isinstance(decision, Serve)
            self.router.done(self.endpoint, decision.target, self.now, OK, sent_at=self.now)
        assert not any(target.aside for target in self.endpoint.targets)


TestAnswers = Answers.TestCase
TestAnswers.settings = settings(max_examples=examples(60), stateful_step_count=60, deadline=None)

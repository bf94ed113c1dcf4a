"""Whatever arrives, fails, ends or changes: no replica is overfilled, queues are bounded, each request ends once."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moorage.decide.serving.routes import Generation, Held, Hold, Limits, Refuse, RouteSpec, Serve, TargetSpec
from moorage.decide.serving.routing import Router
from tests.examples import examples

MODES = st.sampled_from(["serve", "serve", "serve", "hold", "asleep", "starting", "failed", "stopped"])
LIMITS = Limits(max_in_flight=2, max_queue=3, queue_timeout_s=5.0)


class Traffic(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.router = Router(7, self.now)
        self.router.control(True, self.now)
        self.number = 0
        self.tokens = 0
        self.wake_failures = 0
        self.deadlines: dict[int, float] = {}
        self.held: set[int] = set()
        self.running: dict[int, object] = {}
        self.ended: set[int] = set()
        self.apply("serve", 2)

    @property
    def endpoint(self):  # type: ignore[no-untyped-def]
        return self.router.find("m")

    def settle(self, token: int, decision: object) -> None:
        assert token not in self.ended
        if isinstance(decision, Serve):
            assert token not in self.running
            assert self.endpoint.route.mode == "serve"
            self.held.discard(token)
            self.running[token] = decision.target
        elif isinstance(decision, Hold):
            self.running.pop(token, None)
            self.held.add(token)
        else:
            assert isinstance(decision, Refuse)
            assert decision.status != 404, "the name is known"
            self.running.pop(token, None)
            self.held.discard(token)
            self.ended.add(token)

    def release(self, releases) -> None:  # type: ignore[no-untyped-def]
        for token, decision in releases:
            assert token in self.held
            self.settle(token, decision)

    @rule(mode=MODES, replicas=st.integers(0, 3))
    def apply(self, mode: str, replicas: int) -> None:
        self.number += 1
        specs = tuple(TargetSpec(f"r{n}", "1", "h", n + 1) for n in range(replicas))
        route = RouteSpec("m", mode, targets=specs, limits=LIMITS, wake_failures=self.wake_failures)
        releases = self.router.apply(Generation("s", self.number), [route], self.now)
        assert releases is not None
        self.release(releases)

    @rule()
    def wake_fails(self) -> None:
        self.wake_failures += 1
        before = set(self.held)
        self.apply("asleep", 0)
        assert before <= self.ended

    @rule()
    def an_old_table_changes_nothing(self) -> None:
        route = self.endpoint.route
        assert self.router.apply(Generation("s", self.number), [], self.now) is None
        assert self.endpoint.route is route

    @rule()
    def arrive(self) -> None:
        self.tokens += 1
        token = self.tokens
        self.deadlines[token] = self.now + LIMITS.queue_timeout_s
        full = len(self.endpoint.waiting) >= LIMITS.max_queue
        decision = self.router.arrive(self.endpoint, token, self.now)
        assert not (full and isinstance(decision, Hold))
        if isinstance(decision, Hold):
            assert decision.first == (not self.held)
        self.settle(token, decision)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.running)))
        target = self.running.pop(token)
        self.ended.add(token)
        self.release(self.router.done(self.endpoint, target, self.now))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def connect_fails(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.running)))
        target = self.running[token]
        decision = self.router.connect_failed(self.endpoint, target, Held(token, self.deadlines[token]), self.now)
        self.running.pop(token)
        if isinstance(decision, Serve):
            assert decision.target is not target, "a refused connect goes elsewhere first"
        self.settle(token, decision)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def connects(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.running)))
        self.release(self.router.connected(self.endpoint, self.running[token], self.now))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.held)))
        self.router.cancelled(self.endpoint, token)
        self.held.discard(token)
        self.ended.add(token)

    @rule(seconds=st.floats(0, 3))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.release(self.router.sweep(self.now))
        assert all(self.deadlines[token] > self.now for token in self.held)

    @invariant()
    def counts_agree(self) -> None:
        endpoint = self.endpoint
        assert set(endpoint.waiting) == self.held
        assert endpoint.in_flight == len(self.running)
        for target in endpoint.targets:
            mine = sum(1 for each in self.running.values() if each is target)
            assert target.in_flight == mine <= LIMITS.max_in_flight

    @invariant()
    def the_queue_is_bounded(self) -> None:
        # Requests that lost their replica return to the queue although it is full: they were let in before.
        assert len(self.held) <= LIMITS.max_queue + LIMITS.max_in_flight * 3 * 2

    @invariant()
    def nobody_is_both_ended_and_here(self) -> None:
        assert not self.ended & (self.held | set(self.running))

    def teardown(self) -> None:
        """Heal: everything that was let in comes to its one end."""
        self.now += 3.0
        self.apply("serve", 3)
        for _ in range(len(self.held) + len(self.running) + 5):
            for token, target in list(self.running.items()):
                self.release(self.router.connected(self.endpoint, target, self.now))
                self.running.pop(token)
                self.ended.add(token)
                self.release(self.router.done(self.endpoint, target, self.now))
            self.release(self.router.retry(self.endpoint, self.now))
        assert self.ended == set(range(1, self.tokens + 1))


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)

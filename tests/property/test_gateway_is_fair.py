"""Between tenants: nobody's flood delays another, and the queue's places are shared; within one, first come first."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moorage.decide.serving.queueing import Queue, Waiter
from moorage.decide.serving.routes import (
    Generation,
    Held,
    Hold,
    Limits,
    Refuse,
    RouteSpec,
    Serve,
    TargetSpec,
)
from moorage.decide.serving.routing import Router
from tests.examples import examples

TENANTS = ("", "a", "b", "c")
LIMITS = Limits(max_in_flight=2, max_queue=6, queue_timeout_s=9.0)


class Tenants(RuleBasedStateMachine):
    """One endpoint of two replicas; the model is plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.router = Router(3, 0.0)
        self.router.control(True, 0.0)
        specs = tuple(TargetSpec(f"r{n}", "1", "h", n + 1) for n in range(2))
        self.router.apply(Generation("s", 1), [RouteSpec("m", "serve", targets=specs, limits=LIMITS)], 0.0)
        self.endpoint = self.router.find("m")
        self.tokens = 0
        self.whose: dict[int, str] = {}
        self.lines: dict[str, list[int]] = {tenant: [] for tenant in TENANTS}
        self.deadlines: dict[int, float] = {}
        self.running: dict[int, object] = {}

    def held(self) -> int:
        return sum(map(len, self.lines.values()))

    def in_flight(self, tenant: str) -> int:
        return sum(self.whose[token] == tenant for token in self.running)

    def released(self, releases) -> None:  # type: ignore[no-untyped-def]
        for token, decision in releases:
            tenant = self.whose[token]
            if isinstance(decision, Serve):
                least = min(self.in_flight(each) for each, line in self.lines.items() if line)
                assert self.in_flight(tenant) == least, "who has least in flight goes first"
                assert self.lines[tenant].pop(0) == token, "within a tenant, who came first"
                self.running[token] = decision.target
            else:
                self.lines[tenant].remove(token)

    @rule(tenant=st.sampled_from(TENANTS))
    def arrive(self, tenant: str) -> None:
        self.tokens += 1
        token = self.tokens
        self.whose[token] = tenant
        self.deadlines[token] = self.now + LIMITS.queue_timeout_s
        before = self.held()
        decision = self.router.arrive(self.endpoint, token, self.now, tenant=tenant)
        most = max(map(len, self.lines.values()))
        if isinstance(decision, Serve):
            assert not before, "a new one never goes before those that wait"
            self.running[token] = decision.target
        elif isinstance(decision, Refuse):
            assert (decision.status, decision.code) == (429, "queue_full")
            assert before >= LIMITS.max_queue
            waiting = sum(bool(line) or each == tenant for each, line in self.lines.items())
            assert len(self.lines[tenant]) >= LIMITS.max_queue // waiting, "its share of the queue is its own"
        else:
            assert isinstance(decision, Hold)
            if decision.displaced is not None:
                lost, refusal = decision.displaced
                other = self.whose[lost]
                assert isinstance(refusal, Refuse)
                assert (refusal.status, bool(refusal.retry_after_s)) == (429, True)
                assert before >= LIMITS.max_queue
                assert other != tenant
                assert len(self.lines[other]) == most
                assert self.lines[other].pop() == lost, "the newest of the tenant that holds most"
                assert len(self.lines[other]) >= len(self.lines[tenant]) + 1
            else:
                assert before < LIMITS.max_queue
            self.lines[tenant].append(token)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.running)))
        target = self.running.pop(token)
        self.released(self.router.done(self.endpoint, target, self.now, tenant=self.whose[token]))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def connect_fails(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.running)))
        target = self.running.pop(token)
        tenant = self.whose[token]
        held = Held(token, self.deadlines[token], tenant=tenant)
        decision = self.router.connect_failed(self.endpoint, target, held, self.now)
        if isinstance(decision, Serve):
            self.running[token] = decision.target
        elif isinstance(decision, Hold):
            self.lines[tenant].insert(0, token)

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(t for line in self.lines.values() for t in line)))
        self.router.cancelled(self.endpoint, token)
        self.lines[self.whose[token]].remove(token)

    @rule(seconds=st.floats(0, 4))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.released(self.router.sweep(self.now))
        assert all(self.deadlines[token] > self.now for line in self.lines.values() for token in line)

    @invariant()
    def counts_agree(self) -> None:
        queue = self.endpoint.queue
        assert set(queue.waiting) == {token for line in self.lines.values() for token in line}
        assert self.endpoint.in_flight == len(self.running)
        for tenant in TENANTS:
            assert queue.running(tenant, self.endpoint.in_flight) == self.in_flight(tenant)


TestTenants = Tenants.TestCase
TestTenants.settings = settings(max_examples=examples(60), stateful_step_count=50, deadline=None)


@settings(max_examples=examples(60), deadline=None)
@given(flood=st.integers(1, 40), others=st.integers(1, 6))
def test_a_tenant_with_one_request_waits_no_longer_than_one_turn_of_each_other_however_long_their_lines(
    flood: int, others: int
) -> None:
    queue = Queue()
    for n in range(flood):
        for tenant in range(others):
            queue.add(Waiter((tenant, n), 1.0, tenant=f"t{tenant}"))
    queue.add(Waiter("mine", 1.0, tenant="me"))
    served = []
    while "mine" not in served:
        waiter = queue.head(0)  # each ends before the next place is free
        assert waiter is not None
        queue.went(waiter)
        served.append(waiter.token)
    assert len(served) <= others + 1


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.sampled_from(["arrive", "serve"]), max_size=80))
def test_one_tenant_alone_is_served_in_the_order_of_its_coming(steps: list[str]) -> None:
    queue, came, went = Queue(), [], []
    for n, step in enumerate(steps):
        if step == "arrive":
            queue.add(Waiter(n, 1.0, tenant="only"))
            came.append(n)
        elif queue.waiting:
            waiter = queue.head(1)
            assert waiter is not None
            queue.went(waiter)
            went.append(waiter.token)
    assert went == came[: len(went)]

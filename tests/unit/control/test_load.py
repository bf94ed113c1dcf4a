"""What the windows of the autoscaler saw, from reports of gateways and a clock that is moved by hand."""

import pytest

from moorage.control.load import DEPLOYMENTS_MAX, Loads, Ring
from moorage.decide.serving.snapshot import Load
from moorage.domain.nouns import Deployment
from moorage.wire.routing import EndpointActivity, Evidence, GatewayReport


class HandClock:
    """Monotonic time that moves when it is told to."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


def deployment(uid: str = "dep-1", name: str = "gemma", **scaling: float) -> Deployment:
    spec = {"replicas": {"min": 1, "max": 4}, "scaling": {"up_after": 5.0, "down_after": 60.0, **scaling}}
    return Deployment(uid=uid, name=name, namespace="default", spec=spec, active_revision="rev-1")


class Watched:
    """One deployment, and gateways that report on it."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.loads = Loads(self.clock)
        self.row = deployment()
        self.of()

    def of(self, *, known: bool = True) -> Load:
        return self.loads.of(self.row, known=known)

    def report(
        self,
        in_flight: int,
        *,
        held: int = 0,
        requests: int = 0,
        gateway: str = "g",
        life: str = "1",
        evidence: tuple[Evidence, ...] = (),
    ) -> None:
        activity = EndpointActivity(name="gemma", in_flight=in_flight, held=held, requests=requests)
        self.loads.heard(GatewayReport(gateway=gateway, incarnation=life, endpoints=(activity,), evidence=evidence))

    def steady(self, seconds: int, in_flight: int, *, requests: int = 0, **more: int) -> None:
        """A report each second, as gateways send them while anything is in flight."""
        for n in range(seconds):
            self.report(in_flight, requests=requests * (n + 1), **more)  # type: ignore[arg-type]  # held
            self.clock.at += 1.0


def test_a_steady_level_is_the_mean_of_both_windows_whoever_reports_it() -> None:
    watched = Watched()
    for _ in range(70):
        watched.report(3, held=1)
        watched.report(2, gateway="h")
        watched.clock.at += 1.0
    load = watched.of()
    assert load.urgent == pytest.approx(6.0, rel=0.01)
    assert load.stable == pytest.approx(6.0, rel=0.02)
    assert load.peak == pytest.approx(6.0, rel=0.01)
    assert (load.urgent_s, load.stable_s) == (5.0, 60.0)


def test_a_level_goes_on_between_reports_and_ends_with_the_lease_of_a_silent_gateway() -> None:
    watched = Watched()
    watched.report(8)
    watched.clock.at += 10.0
    assert watched.of().urgent == pytest.approx(8.0)
    watched.clock.at += 25.0
    watched.of()
    watched.clock.at += 5.0
    assert watched.of().urgent == 0.0


def test_a_burst_is_in_the_urgent_window_at_once_and_in_the_highest_until_the_stable_one_is_over() -> None:
    watched = Watched()
    watched.steady(60, 1)
    watched.steady(5, 21)
    assert watched.of().urgent == pytest.approx(21.0, rel=0.05)
    watched.steady(30, 1)
    later = watched.of()
    assert later.urgent == pytest.approx(1.0, rel=0.05)
    assert later.peak == pytest.approx(21.0, rel=0.05)
    assert later.stable == pytest.approx((25 * 1 + 5 * 21 + 30 * 1) / 60, rel=0.1)
    assert later.peak_left_s == pytest.approx(30.0, abs=2.0)
    watched.steady(int(later.peak_left_s) + 6, 1)
    assert watched.of().peak == pytest.approx(1.0, rel=0.05)


def test_what_was_not_watched_is_told_and_counts_for_nothing_in_a_mean() -> None:
    watched = Watched()
    watched.report(10)
    watched.clock.at += 2.0
    load = watched.of()
    assert (load.urgent_s, load.stable_s) == (2.0, 2.0)
    assert load.urgent == pytest.approx(10.0)
    assert load.stable == pytest.approx(10.0)


def test_nothing_counts_as_watched_before_every_gateway_was_heard_and_after_a_leadership_began() -> None:
    watched = Watched()
    watched.steady(60, 2)
    assert watched.of().stable_s == 60.0
    assert watched.of(known=False).stable_s == 0.0
    watched.steady(20, 2)
    assert watched.of().stable_s == 20.0
    watched.loads.reset()
    assert watched.of().stable_s == 0.0


def test_requests_that_come_are_counted_and_not_those_that_end() -> None:
    """Five a second come and three are answered: what piles up was asked for as well."""
    watched = Watched()
    for n in range(61):
        watched.report(2 * n, requests=3 * n)
        watched.clock.at += 1.0
    load = watched.of()
    assert load.urgent_rate == pytest.approx(5.0, rel=0.1)
    assert load.rate == pytest.approx(5.0, rel=0.05)
    assert load.peak_rate == pytest.approx(5.0, rel=0.25)


def test_a_gateway_that_starts_again_begins_at_zero_and_takes_nothing_back() -> None:
    watched = Watched()
    watched.steady(30, 4, requests=2)
    before = watched.of().rate
    watched.report(0, requests=0, life="2")
    after = watched.of()
    assert after.rate == pytest.approx(before, rel=0.01)
    watched.clock.at += 5.0
    assert watched.of().urgent == 0.0


def test_latencies_are_those_of_the_window_and_of_the_revision_that_serves() -> None:
    watched = Watched()
    fast, slow = 200, 260  # buckets; the second is 14 times as slow
    told = {"evidence_id": "e", "deployment": "dep-1", "revision": "rev-1"}
    watched.report(1, evidence=(Evidence(**told, requests=900, ttft_us={slow: 900}, latency_us={slow: 900}),))
    assert watched.of().ttft_p95_s is None, "what came before it was watched is no part of the window"
    more = Evidence(**told, requests=1000, ttft_us={slow: 900, fast: 100}, latency_us={slow: 910, fast: 90})
    other = Evidence(evidence_id="e", deployment="dep-1", revision="rev-2", requests=50, ttft_us={slow: 50})
    watched.report(1, evidence=(more, other))
    load = watched.of()
    assert load.samples == 100
    assert load.ttft_p95_s is not None
    assert load.latency_p95_s is not None
    assert load.latency_p95_s > 10 * load.ttft_p95_s
    watched.clock.at += 120.0
    assert watched.of().samples == 0


def test_one_that_does_not_scale_is_not_watched_and_a_namesake_begins_anew() -> None:
    watched = Watched()
    watched.steady(60, 5)
    fixed = Deployment(uid="dep-1", name="gemma", spec={"replicas": {"min": 2, "max": 2}})
    assert watched.loads.of(fixed, known=True).stable_s == 0.0
    watched.of()
    watched.steady(60, 5)
    watched.row = deployment("dep-2")
    load = watched.of()
    assert (load.stable_s, load.urgent) == (0.0, 0.0)


def test_what_is_kept_is_bounded() -> None:
    loads = Loads(HandClock())
    for n in range(DEPLOYMENTS_MAX + 5):
        loads.of(deployment(f"dep-{n}", f"m{n}", down_after=1.0), known=True)
    assert len(loads._windows) == DEPLOYMENTS_MAX
    ring = Ring(0.1, 600, 0.0)
    ring.put(0.0, 1.0, 0.0)
    ring.advance(1e6)
    assert ring.mean(60.0, 1e6)[0] == pytest.approx(1.0, rel=0.01)
    assert ring.peak(5.0, 1e6)[0] == pytest.approx(1.0)

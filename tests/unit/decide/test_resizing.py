"""What an autoscaler's decision does to a deployment: replicas follow, the reason is kept when it changes, and sleep,
wake, rollouts and failures are not its business."""

from dataclasses import replace
from typing import Any

from moorage.decide.serving.snapshot import Load
from moorage.domain.nouns import Replica
from moorage.domain.states import DeploymentStatus, Phase, ReplicaStatus
from tests.serving_world import START, World, spec

SCALES: dict[str, Any] = {"replicas": {"min": 1, "max": 4, "initial": 1}}
SLEEPS: dict[str, Any] = {"replicas": {"min": 0, "max": 4, "initial": 1}, "scaling": {"idle_timeout": 60.0}}


def load(level: float, peak: float | None = None, watched_s: float = 300.0) -> Load:
    highest = level if peak is None else peak
    return Load(stable=level, urgent=level, stable_s=watched_s, urgent_s=min(watched_s, 5.0), peak=highest)


def served(**parts: Any) -> World:
    world = World()
    world.up(spec(**(parts or SCALES)))
    return world


def told(world: World) -> list[str]:
    """Codes of the deployment's scaling, oldest first."""
    return [c for c in world.codes if c.startswith("scale.")]


def scaled(world: World) -> tuple[int, str]:
    kept = world.deployment.scaling
    assert kept is not None
    return kept["desired"], kept["reason"]["code"]


def ask(world: World, of: Load, after_s: float = 10.0) -> None:
    world.advance(after_s)
    world.load = of
    world.settle()
    world.bring_up()


def test_replicas_follow_the_load_up_and_down_and_every_decision_is_in_the_history() -> None:
    world = served()
    ask(world, load(20.0))
    assert [r.routed for r in world.replicas] == [True, True, True]
    ask(world, load(0.0, peak=20.0))
    assert scaled(world) == (3, "scale.held_stability"), "held because the load was high within the window"
    ask(world, load(0.0), after_s=300.0)
    draining = [r for r in world.replicas if r.stopping is not None]
    assert len(draining) == 2
    assert all(not r.routed for r in draining)
    assert scaled(world) == (1, "scale.down")
    ask(world, load(0.0))
    assert told(world) == ["scale.at_min", "scale.up", "scale.held_stability", "scale.down", "scale.at_min"]


def test_what_does_not_change_is_not_written_again() -> None:
    world = served()
    for level in (1.0, 2.0, 3.0, 1.0):
        ask(world, load(level))
    assert told(world) == ["scale.at_min"]
    before = world.deployment.version
    ask(world, load(2.5))
    assert world.deployment.version == before


def test_it_is_decided_at_most_once_an_interval() -> None:
    world = served()
    ask(world, load(10.0))
    world.advance(1.0)
    world.load = load(30.0)
    assert world.settle().wake_at == world.now + 4.0
    assert world.deployment.scaling is not None
    assert world.deployment.scaling["desired"] == 2
    ask(world, load(30.0), after_s=4.0)
    assert world.deployment.scaling["desired"] == 4


def test_the_size_is_drained_and_never_cut_when_it_shrinks() -> None:
    world = served()
    ask(world, load(10.0))
    newest = max(world.replicas, key=lambda r: r.ordinal)
    world.in_flight = {newest.uid: 1}
    ask(world, load(0.5), after_s=400.0)
    row = world.rows[newest.uid]
    assert isinstance(row, Replica)
    assert row.stopping is not None
    assert row.status is ReplicaStatus.RUNNING, "its stream is still open"
    world.in_flight = {}
    world.settle()
    assert world.worker_of(row).stop is not None


def test_a_burst_at_a_cold_deployment_wakes_as_many_as_the_held_requests_ask_for() -> None:
    world = asleep()
    world.held = 1
    world.settle()
    assert len(world.replicas) == 1
    world.held = 20
    world.settle()
    assert (world.phase, world.deployment.wakes, len(world.replicas)) == (Phase.WAKING_UP, 1, 3)
    world.held = 5
    world.settle()
    assert len(world.replicas) == 3, "what was woken for is not taken back while it wakes"
    assert told(world)[-1] == "scale.up"


def asleep() -> World:
    world = served(**SLEEPS)
    world.idle_s = 61.0
    world.advance(61.0)
    world.settle()
    world.stops(world.worker)
    world.settle()
    assert world.phase is Phase.SCALED_TO_ZERO
    return world


def test_the_size_from_before_it_slept_is_over() -> None:
    world = served(**SLEEPS)
    ask(world, load(30.0))
    assert len(world.replicas) == 4
    world.idle_s = 61.0
    world.advance(61.0)
    world.settle()
    for replica in world.replicas:
        world.stops(world.worker_of(replica))
    world.settle()
    assert world.deployment.status is DeploymentStatus.PAUSED
    world.held = 1
    world.settle()
    assert [r.status for r in world.replicas] == [ReplicaStatus.PENDING]


def test_minimum_lowered_to_zero_under_live_traffic_keeps_the_replica_and_a_later_request_wakes_it() -> None:
    world = served(replicas={"min": 1, "max": 2, "initial": 1}, scaling={"idle_timeout": 60.0})
    world.in_flight = {world.replicas[0].uid: 2}
    world.load = load(2.0)
    world.settle()
    world.command("scale", low=0)
    for _ in range(40):
        world.advance(10.0)
        world.settle()
        assert [r.stopping for r in world.replicas] == [None], "it serves"
    world.in_flight, world.idle_s, world.load = {}, 61.0, load(0.0)
    world.advance(61.0)
    world.settle()
    world.stops(world.worker)
    world.settle()
    assert world.phase is Phase.SCALED_TO_ZERO
    world.held = 1
    world.settle()
    assert world.phase is Phase.WAKING_UP


def test_the_first_request_after_a_long_idle_time_wakes_at_once_whatever_any_window_says() -> None:
    world = asleep()
    world.advance(45 * 60.0)
    world.load, world.held = load(0.0), 1
    world.settle()
    assert world.phase is Phase.WAKING_UP


def test_a_deployment_that_crashes_is_not_made_larger_by_the_requests_that_wait_for_it() -> None:
    world = served()
    world.exits(world.worker, 1)
    world.load, world.held = load(50.0), 50
    world.settle()
    assert len(world.replicas) == 1
    assert told(world) == ["scale.at_min"]


def test_where_there_is_no_room_it_says_so_and_queues_no_more_than_it_asked_for() -> None:
    world = World(capacity={"cpu_milli": 2000})
    world.up(spec(resources={"cpu": 2.0}, **SCALES))
    ask(world, load(10.0))
    waiting = [r for r in world.replicas if not r.routed]
    assert len(waiting) == 1
    queued(world)
    ask(world, load(30.0))
    assert scaled(world) == (2, "scale.no_capacity")
    assert len(world.replicas) == 2


def queued(world: World) -> None:
    world.place()
    world.settle()
    assert any(r.reason is not None and r.reason.code == "replica.queued" for r in world.replicas)


def test_limits_that_a_person_moves_hold_at_once() -> None:
    world = served()
    ask(world, load(30.0))
    assert len(world.replicas) == 4
    world.advance(0.5)
    world.command("scale", high=2)
    world.settle()
    assert sum(r.stopping is None for r in world.replicas) == 2
    assert scaled(world) == (2, "scale.at_max")
    world.command("scale", low=3, high=3)
    world.settle()
    assert sum(r.stopping is None for r in world.replicas) == 3
    assert scaled(world) == (3, "scale.disabled")


def test_one_size_alone_is_never_written_about() -> None:
    world = served(replicas={"min": 2, "max": 2})
    ask(world, load(50.0))
    assert world.deployment.scaling is None
    assert len(world.replicas) == 2


def test_the_initial_size_stays_until_the_window_was_watched_and_goes_then() -> None:
    world = served(replicas={"min": 1, "max": 4, "initial": 3})
    assert [r.routed for r in world.replicas] == [True, True, True]
    ask(world, load(1.0, watched_s=20.0))
    assert scaled(world) == (3, "scale.held_stability")
    ask(world, load(1.0), after_s=300.0)
    assert scaled(world) == (1, "scale.down")


def test_a_pause_under_way_is_not_scaled() -> None:
    world = served(**SLEEPS)
    world.confirmed, world.idle_s = False, 61.0
    world.advance(61.0)
    world.settle()
    assert world.deployment.hold is not None
    size = scaled(world)
    world.load = load(30.0)
    world.advance(5.0)
    world.settle()
    assert scaled(world) == size


def test_the_slo_is_measured_twice_before_it_decides() -> None:
    world = served(scaling={"slo": {"ttft_p95": 0.5}}, **SCALES)
    busy = replace(load(6.0), rate=10.0, urgent_rate=10.0, peak_rate=10.0, ttft_p95_s=0.3, samples=3000)
    ask(world, busy)
    assert scaled(world) == (1, "scale.unqualified")
    for _ in range(2):
        ask(world, busy, after_s=301.0)
    assert world.deployment.scaling is not None
    assert world.deployment.scaling["goodput"]["per_replica"] == 10.0
    ask(world, replace(busy, urgent_rate=25.0, peak_rate=25.0))
    assert scaled(world) == (3, "scale.up")
    assert world.now > START


def test_latencies_are_counted_for_an_slo_and_for_nothing_else() -> None:
    plain, aimed = served(), served(scaling={"slo": {"latency_p95": 2.0}}, **SCALES)
    for world in (plain, aimed):
        world.publish()
    assert plain.published is not None
    assert aimed.published is not None
    assert plain.published.evidence_id is None
    assert aimed.published.evidence_id == f"slo/{aimed.deployment.active_revision}"
    assert aimed.published.revisions == (), "every request goes where it went"


def test_a_size_beyond_what_fits_can_still_be_stopped() -> None:
    world = World(capacity={"cpu_milli": 2000})
    world.up(spec(resources={"cpu": 2.0}, **SCALES))
    ask(world, load(30.0))
    assert len(world.replicas) == 4
    world.command("stop")
    world.settle()
    world.stops(world.worker_of(world.replicas[0]))
    world.settle()
    assert (world.phase, world.replicas) == (Phase.INACTIVE, [])


def test_a_replica_that_it_grew_by_and_that_fails_for_good_ends_nothing_else() -> None:
    world = served()
    world.advance(10.0)
    world.load = load(10.0)
    world.settle()
    world.place()
    newest = world.worker_of(max(world.replicas, key=lambda r: r.ordinal))
    world.starts(newest)
    world.exits(newest, 2)
    world.settle()
    assert world.deployment.status is DeploymentStatus.CREATED
    assert [(r.ordinal, r.routed) for r in world.replicas] == [(0, True)], "it is tried again after its back-off"
    assert world.deployment.retry_at is not None


def test_what_a_wake_grew_for_is_kept_for_as_long_as_any_other_growth() -> None:
    """A burst of a second is little in the mean of a window; it counted at once, and may come again."""
    world = asleep()
    world.held = 20
    world.settle()
    world.bring_up()
    assert sum(r.routed for r in world.replicas) == 3
    world.held, world.idle_s = 0, 1.0
    ask(world, load(1.0))
    assert scaled(world) == (3, "scale.held_cooldown")
    ask(world, load(1.0), after_s=300.0)
    assert scaled(world) == (1, "scale.down")


def test_while_a_candidate_is_tried_the_active_revision_scales_and_the_candidate_keeps_its_size() -> None:
    world = served()
    world.apply(spec(**SCALES), digest="d2")
    world.settle()
    world.bring_up()
    active, candidate = world.deployment.active_revision, world.deployment.candidate_revision
    assert candidate is not None
    ask(world, load(20.0))

    def sizes() -> dict[str | None, int]:
        return {
            uid: sum(r.revision == uid and r.stopping is None for r in world.replicas) for uid in (active, candidate)
        }

    assert sizes() == {active: 3, candidate: 1}
    ask(world, load(0.0), after_s=301.0)
    assert sizes() == {active: 1, candidate: 1}

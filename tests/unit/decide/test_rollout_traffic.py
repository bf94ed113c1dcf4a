"""How requests of clients come to a candidate: nothing, by header, a copy, or a share that grows in steps."""

import pytest

from moorage.decide.serving.exposure import Route
from moorage.decide.serving.rollout.record import Rollout, rollout_of
from moorage.domain.states import RevisionState
from tests.rollout_world import SLOW_S, RolloutWorld

CANARY = {"rollout": {"strategy": "canary", "steps": [5, 25, 50], "step_interval": 60.0}}


def begun(strategy: str, **rollout: object) -> RolloutWorld:
    parts = {"rollout": {"strategy": strategy, **rollout}}
    world = RolloutWorld(machines=2).serve(**parts)
    world.change(**parts)
    return world


def ready(strategy: str, **rollout: object) -> RolloutWorld:
    world = begun(strategy, **rollout)
    world.bring_up()
    return world


def route(world: RolloutWorld) -> Route:
    found = world.publish()
    assert found is not None
    return found


def told(world: RolloutWorld) -> list[tuple[int, str, str, float]]:
    """(number, role, by, share) of each revision of the route."""
    return [(r.revision.number, r.role, r.by, r.share) for r in route(world).revisions]


def notes(world: RolloutWorld) -> set[str]:
    """Codes in the deployment's history."""
    return {code for uid, _, _, _, code in world.history if uid == world.deployment.uid}


def rollout(world: RolloutWorld) -> Rollout:
    found = rollout_of(world.deployment)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("strategy", "expected", "routed"),
    [
        ("none", [], {"d1"}),
        ("header", [(1, "active", "share", 100.0), (2, "candidate", "header", 0.0)], {"d1", "d2"}),
        ("mirror", [(1, "active", "share", 100.0), (2, "candidate", "mirror", 100.0)], {"d1", "d2"}),
        ("canary", [(1, "active", "share", 95.0), (2, "candidate", "share", 5.0)], {"d1", "d2"}),
    ],
)
def test_the_route_says_how_requests_come_to_each_revision(
    strategy: str, expected: list[tuple[int, str, str, float]], routed: set[str]
) -> None:
    world = ready(strategy)
    assert told(world) == expected
    assert world.routed() == routed
    assert [r.routed for r in world.replicas_of("d2")] == [strategy != "none"]


@pytest.mark.parametrize("strategy", ["none", "header", "mirror", "canary"])
def test_before_it_is_ready_and_after_it_ended_a_candidate_is_in_no_route(strategy: str) -> None:
    world = begun(strategy)
    assert (told(world), world.routed()) == ([], {"d1"})
    world.bring_up()
    world.compare(requests=60, errors=50)
    assert world.state("d2") is RevisionState.REJECTED
    assert (told(world), world.routed(), route(world).evidence_id) == ([], {"d1"}, None)


def test_a_candidate_of_which_nothing_is_told_gets_nothing() -> None:
    """A publisher that could not read the revisions publishes the active one alone."""
    from moorage.decide.serving.exposure import route_of
    from moorage.domain.nouns import Worker

    world = ready("canary")
    workers = {w.run: w for w in world.of(Worker)}
    found = route_of(world.deployment, world.replicas, workers)
    assert {t.replica.revision for t in found.targets} == {world.revision("d1").uid}


def test_evidence_is_counted_while_a_comparison_runs_and_in_the_window_and_not_else() -> None:
    world = RolloutWorld(machines=2).serve()
    assert route(world).evidence_id is None
    world.change()
    world.bring_up()
    first = route(world).evidence_id
    assert first is not None
    world.compare()
    second = route(world).evidence_id
    assert second not in (None, first)
    assert "deploy.window_over" not in notes(world)
    world.advance(301.0)
    world.settle()
    assert route(world).evidence_id is None
    assert "deploy.window_over" in notes(world), "without a row in the history no route is published anew"


def test_a_canary_takes_each_step_on_its_own_evidence_after_its_time_and_is_promoted_behind_the_last() -> None:
    world = ready("canary", steps=[5, 50])
    first = rollout(world).evidence_id
    world.compare(source="gw")
    assert (rollout(world).weight, world.state("d2")) == (5, RevisionState.EVALUATING)
    world.advance(60.0)
    world.settle()
    assert (rollout(world).step, rollout(world).weight) == (1, 50)
    assert rollout(world).evidence_id != first
    assert "deploy.canary" in notes(world), "without a row in the history no route is published anew"
    assert (world.revision("d1").evidence, world.revision("d2").evidence) == ({}, {})
    world.advance(60.0)
    world.settle()
    assert world.state("d2") is RevisionState.EVALUATING
    world.compare(source="gw")
    assert world.state("d2") is RevisionState.ACTIVE


def test_a_canary_whose_traffic_stops_stays_where_it_is() -> None:
    world = ready("canary")
    world.compare(source="gw", requests=5)
    world.advance(600.0)
    world.settle()
    assert (rollout(world).weight, world.state("d2")) == (5, RevisionState.EVALUATING)
    assert [r["code"] for r in world.revision("d2").decisions[-1]["reasons"]] == ["insufficient_requests"]


def test_a_canary_that_turns_bad_at_a_later_step_is_rejected_at_once() -> None:
    world = ready("canary")
    world.compare(source="gw")
    world.advance(60.0)
    world.settle()
    world.compare(source="gw", active={"requests": 100}, requests=100, latency_s=SLOW_S)
    assert (world.state("d2"), told(world)) == (RevisionState.REJECTED, [])


def test_posted_quality_stands_over_the_steps() -> None:
    world = ready("canary")
    world.met("d1", source="quality:eval")
    world.compare(source="gw")
    world.advance(60.0)
    world.settle()
    assert list(world.revision("d1").evidence) == ["quality:eval"]


def test_the_deadline_is_for_each_step() -> None:
    world = ready("canary", deadline=100.0)
    world.compare(source="gw")
    world.advance(60.0)
    world.settle()
    assert rollout(world).deadline == world.now + 100.0
    world.advance(99.0)
    world.settle()
    assert world.state("d2") is RevisionState.EVALUATING
    world.advance(1.0)
    world.settle()
    assert world.state("d2") is RevisionState.FAILED


def test_a_canary_without_steps_is_promoted_when_it_is_accepted() -> None:
    world = ready("canary", steps=[])
    assert told(world) == [(1, "active", "share", 100.0), (2, "candidate", "share", 0.0)]
    world.compare()
    assert world.state("d2") is RevisionState.ACTIVE


def test_behind_its_last_step_a_canary_that_a_person_promotes_rests_there() -> None:
    world = ready("canary", steps=[50], auto=False)
    world.compare(source="gw")
    world.advance(60.0)
    world.settle()
    assert world.step().change is None
    assert (rollout(world).step, rollout(world).deadline, world.state("d2")) == (1, None, RevisionState.EVALUATING)
    world.order("promote")
    world.settle()
    assert world.state("d2") is RevisionState.ACTIVE


def test_a_person_skips_the_steps() -> None:
    world = ready("canary")
    world.order("promote")
    world.settle()
    assert world.state("d2") is RevisionState.ACTIVE


def test_another_strategy_applied_meanwhile_counts_from_the_next_candidate_on() -> None:
    world = ready("none")
    from tests.rollout_world import spec

    document = {**spec(rollout={"strategy": "canary"}), "runtime": {"runner": "process", "command": ["serve", "d2"]}}
    world.apply(document, "d2")
    world.settle()
    assert (rollout(world).strategy, told(world)) == ("none", [])

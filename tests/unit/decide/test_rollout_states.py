"""Every row of the revision's state list, each brought about by what the lifecycle contract §8 names for it."""

from collections.abc import Callable

import pytest

from moorage.domain.lifecycles import REVISION
from moorage.domain.nouns import Revision
from moorage.domain.states import RevisionState
from tests.rollout_world import RolloutWorld

TWO = {"replicas": {"min": 2, "max": 2}}
LATE_S = 1801.0


def proposed(settle: bool = True, **parts: object) -> RolloutWorld:
    """A candidate beside an active revision, its first replica asked for."""
    world = RolloutWorld(machines=2).serve(**parts)
    world.change("d2", settle=settle, **parts)
    return world


def evaluating(**parts: object) -> RolloutWorld:
    world = proposed(**parts)
    world.bring_up()
    return world


def promoting() -> RolloutWorld:
    """Accepted, and one of its two replicas is still to come."""
    world = evaluating(**TWO)
    world.compare()
    assert world.state("d2") is RevisionState.PROMOTING
    return world


def superseded() -> RolloutWorld:
    world = RolloutWorld(machines=2).serve()
    world.promote("d2")
    return world


def draining() -> RolloutWorld:
    """The old revision still has a request in flight."""
    world = evaluating()
    world.in_flight = {world.replicas_of("d1")[0].uid: 1}
    world.compare()
    assert world.state("d1") is RevisionState.DRAINING
    return world


def dies(world: RolloutWorld, digest: str, code: int = 1) -> None:
    """The process of its replica that got furthest ends."""
    replica = max(world.replicas_of(digest), key=lambda r: (r.ready_at is not None, r.created_at))
    world.exits(world.worker_of(replica), code)
    world.settle()


def late(world: RolloutWorld) -> RolloutWorld:
    world.advance(LATE_S)
    world.settle()
    return world


def ordered(world: RolloutWorld, what: str) -> RolloutWorld:
    world.order(what)
    world.settle()
    return world


def fatal() -> RolloutWorld:
    world = proposed()
    world.place()
    world.starts(world.worker)
    dies(world, "d2")
    return world


def lost() -> RolloutWorld:
    world = evaluating()
    dies(world, "d2", 137)
    return world


def stale() -> RolloutWorld:
    world = promoting()
    dies(world, "d2", 137)  # the only ready one
    return world


def applied_again(world: RolloutWorld, settle: bool = True) -> RolloutWorld:
    world.change("d3", settle=settle)
    return world


def rejected_while_scaling() -> RolloutWorld:
    world = promoting()
    world.compare(requests=80, errors=40)
    return world


def accepted() -> RolloutWorld:
    world = evaluating()
    world.compare()
    return world


def grown() -> RolloutWorld:
    world = promoting()
    world.bring_up()
    return world


S = RevisionState
SCENES: dict[tuple[RevisionState, RevisionState], Callable[[], RolloutWorld]] = {
    (S.CANDIDATE, S.PROVISIONING): proposed,
    (S.CANDIDATE, S.FAILED): lambda: late(proposed(settle=False)),
    (S.CANDIDATE, S.CANCELLED): lambda: applied_again(proposed(settle=False)),
    (S.PROVISIONING, S.EVALUATING): evaluating,
    (S.PROVISIONING, S.ACTIVE): lambda: RolloutWorld().serve(),
    (S.PROVISIONING, S.FAILED): fatal,
    (S.PROVISIONING, S.REJECTED): lambda: ordered(proposed(), "reject"),
    (S.PROVISIONING, S.CANCELLED): lambda: applied_again(proposed()),
    (S.EVALUATING, S.PROVISIONING): lost,
    (S.EVALUATING, S.PROMOTING): promoting,
    (S.EVALUATING, S.REJECTED): lambda: ordered(evaluating(), "reject"),
    (S.EVALUATING, S.FAILED): lambda: late(evaluating()),
    (S.EVALUATING, S.CANCELLED): lambda: applied_again(evaluating()),
    (S.PROMOTING, S.ACTIVE): grown,
    (S.PROMOTING, S.EVALUATING): stale,
    (S.PROMOTING, S.REJECTED): rejected_while_scaling,
    (S.PROMOTING, S.FAILED): lambda: late(promoting()),
    (S.PROMOTING, S.CANCELLED): lambda: applied_again(promoting()),
    (S.ACTIVE, S.DRAINING): accepted,
    (S.DRAINING, S.SUPERSEDED): superseded,
    (S.DRAINING, S.ACTIVE): lambda: ordered(draining(), "rollback"),
    (S.SUPERSEDED, S.PROVISIONING): lambda: ordered(superseded(), "rollback"),
}


def test_every_row_of_the_state_list_has_a_scene_and_no_scene_is_for_another() -> None:
    assert set(SCENES) == {(row.source, row.target) for row in REVISION.rows}


@pytest.mark.parametrize("edge", SCENES, ids="-".join)
def test_a_revision_goes_from_one_state_to_the_other(edge: tuple[RevisionState, RevisionState]) -> None:
    world = SCENES[edge]()
    revisions = {r.uid for r in world.of(Revision)}
    taken = {(h[2], h[3]) for h in world.history if h[0] in revisions}
    assert (str(edge[0]), str(edge[1])) in taken


@pytest.mark.parametrize("edge", SCENES, ids="-".join)
def test_after_each_of_them_something_serves_and_nothing_is_a_candidate_twice(
    edge: tuple[RevisionState, RevisionState],
) -> None:
    world = SCENES[edge]()
    states = [r.state for r in world.of(Revision)]
    assert states.count(RevisionState.ACTIVE) <= 1
    assert sum(s in (S.CANDIDATE, S.PROVISIONING, S.EVALUATING, S.PROMOTING) for s in states) <= 1
    if world.deployment.active_revision is not None:
        assert world.routed() == {world.active.digest}

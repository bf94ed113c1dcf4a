"""A rollout in plain words at each of its moments, and decisions that replay to the byte."""

from typing import Any

import pytest

from moorage.control.explained import explained
from moorage.control.views_rollout import Scene, is_shown, rollout_object
from moorage.control.views_serving import Surroundings, deployment_object
from moorage.decide.serving.snapshot import Demand
from moorage.domain.errors import NotFound
from moorage.domain.nouns import Revision
from moorage.domain.states import RevisionState
from tests.rollout_world import RolloutWorld


def shown(world: RolloutWorld, demand: Demand | None = None) -> dict[str, Any]:
    return rollout_object(
        Scene(world.deployment, world.of(Revision), world.replicas, demand or world.demand(), world.now)
    )


def rolling(**rollout: Any) -> RolloutWorld:
    world = RolloutWorld().serve(rollout=rollout)
    world.change("d2", rollout=rollout)
    return world


def compared(**rollout: Any) -> RolloutWorld:
    world = rolling(**rollout)
    world.bring_up()
    assert world.state("d2") is RevisionState.EVALUATING
    return world


def test_with_nothing_rolled_out_that_is_said_and_the_deployment_shows_none() -> None:
    world = RolloutWorld().serve()
    found = shown(world)
    assert (found["kind_of"], found["message"]) == (None, "nothing is rolled out; revision 1 serves")
    around = Surroundings(world.of(Revision), world.replicas)
    assert deployment_object(world.deployment, around, "http://g", world.now)["rollout"] is None


def test_a_candidate_that_starts_says_what_its_replica_is_at() -> None:
    found = shown(rolling())
    assert (found["kind_of"], found["number"], found["state"]) == ("rollout", 2, "provisioning")
    assert "revision 2 starts: its replica waits for its place" in found["message"]
    assert "revision 1 serves meanwhile" in found["message"]
    assert (found["baseline"]["number"], found["replicas"]) == (1, {"ready": 0, "wanted": 1})
    assert found["deadline"] is not None


def test_a_comparison_counts_the_requests_on_each_side() -> None:
    world = compared()
    world.met("d1", requests=20)
    world.met("d2", requests=12)
    found = shown(world)
    assert found["evidence"] == {"needed": 20, "candidate": 12, "active": 20}
    assert "compared with revision 1: 12 of 20 requests at it, 20 of 20 at the other" in found["message"]


def test_a_canary_says_its_step_and_its_share() -> None:
    found = shown(compared(strategy="canary", steps=[10, 50]))
    assert (found["strategy"], found["steps"], found["step"], found["weight"]) == ("canary", [10, 50], 0, 10)
    assert "(10 % of the requests, step 1 of 2)" in found["message"]
    assert found["step_until"] is not None


def test_an_accepted_candidate_that_waits_for_a_person_says_the_command() -> None:
    world = compared(auto=False)
    for digest in ("d1", "d2"):
        world.met(digest)
    world.settle()
    assert "moor promote gemma" in shown(world)["message"]
    assert shown(world)["decision"]["verdict"] == "ACCEPT"


def test_the_replaced_revision_drains_in_sight_of_all() -> None:
    world = compared()
    (old,) = world.replicas_of("d1")
    for digest in ("d1", "d2"):
        world.met(digest)
    world.confirmed = False
    world.in_flight = {old.uid: 3}
    world.settle()
    assert world.state("d1") is RevisionState.DRAINING
    demand = Demand(by_replica={old.uid: 3}, oldest_s={old.uid: 12.4}, gateways={"g1": True, "g2": False})
    found = shown(world, demand)
    assert (found["draining"]["streams"], found["draining"]["oldest_s"]) == (3, 12.4)
    assert found["draining"]["until"] is not None
    assert "revision 1 drains: 3 requests in flight, the oldest for 12s, for at most" in found["message"]
    assert found["confirmed"] == ["g1"]
    assert (found["kind_of"], found["number"]) == ("window", 2)


def test_what_gateways_did_not_tell_is_not_made_up() -> None:
    world = compared()
    for digest in ("d1", "d2"):
        world.met(digest)
    world.confirmed = False
    world.settle()
    found = shown(world, Demand(known=False))
    assert found["draining"]["streams"] is None
    assert "requests in flight are not known" in found["message"]


def test_a_revision_that_drains_after_its_window_is_still_shown() -> None:
    world = compared(rollback_window=0)
    for digest in ("d1", "d2"):
        world.met(digest)
    world.confirmed = False
    world.settle()
    scene = Scene(world.deployment, world.of(Revision), world.replicas, None, world.now)
    assert (is_shown(scene), shown(world)["kind_of"]) == (True, None)


def test_going_back_from_what_proved_worse_shows_the_decision_that_ordered_it_and_says_so() -> None:
    two = {"replicas": {"min": 2, "max": 2}}
    world = RolloutWorld(machines=2).serve(**two)
    world.change("d2", True, **two)
    world.bring_up()
    world.met("d1", source="gw", requests=200)
    world.compare()
    world.bring_up()
    world.stopped()
    world.met("d2", source="gw/2", requests=200, errors=90)
    world.settle()
    found = shown(world)
    assert (found["kind_of"], found["number"]) == ("rollback", 1)
    assert (found["decision"]["verdict"], found["decision"]["number"]) == ("REJECT", 2)
    assert world.codes.count("deploy.sent_back") == 1, "routes are published anew on a row in the history"
    assert "deploy.window_over" not in world.codes


def test_in_the_place_of_the_only_replica_nobody_is_said_to_serve_meanwhile() -> None:
    parts = {"replicas": {"min": 1, "max": 1}, "rollout": {"capacity": "replace"}}
    world = RolloutWorld(machines=1, capacity={"cpu_milli": 1000}).serve(resources={"cpu": 1.0}, **parts)
    world.change("d2", True, resources={"cpu": 1.0}, **parts)
    world.stopped()
    assert "revision 1 is stopped to make room for it, and requests are held" in shown(world)["message"]
    world.bring_up()
    world.met("d2", requests=12)
    world.settle()
    said = shown(world)["message"]
    assert "12 of 20 requests at it" in said
    assert "at the other" not in said


# Explaining


def test_every_stored_decision_replays_to_the_byte() -> None:
    world = compared()
    for requests in (5, 12, 40):
        for digest in ("d1", "d2"):
            world.met(digest, requests=requests)
        world.settle()
    revisions = world.of(Revision)
    ids = [str(d["id"]) for r in revisions for d in r.decisions]
    assert len(ids) >= 2
    for one in ids:
        found = explained(world.deployment, revisions, one)
        assert (found["decision"]["id"], found["identical"], found["replayed"]) == (one, True, None)
        assert found["digest"] == found["replayed_digest"]


def test_a_decision_that_was_tampered_with_is_not_called_identical() -> None:
    world = compared()
    for digest in ("d1", "d2"):
        world.met(digest)
    world.settle()
    revision = world.revision("d2")
    kept = {**revision.decisions[-1], "verdict": "REJECT"}
    from dataclasses import replace

    found = explained(world.deployment, [replace(revision, decisions=(kept,))], None)
    assert (found["identical"], found["replayed"]["verdict"]) == (False, "ACCEPT")


def test_a_decision_is_named_by_its_id_or_by_its_revision() -> None:
    world = compared()
    for digest in ("d1", "d2"):
        world.met(digest)
    world.settle()
    revisions = world.of(Revision)
    assert explained(world.deployment, revisions, "1")["decision"]["number"] == 1
    assert explained(world.deployment, revisions, None)["decision"]["number"] == 2
    with pytest.raises(NotFound):
        explained(world.deployment, revisions, "gemma-9/1")

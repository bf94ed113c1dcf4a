"""A plan promises what the apply then does, and says what stands in its way."""

from typing import Any

import pytest

from moorage.control.planning import Prospect, plan
from moorage.control.roomcheck import Room, room_for
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.snapshot import SchedulingSnapshot
from moorage.decide.serving import commands
from moorage.decide.serving.commands import Intent, Known
from moorage.domain.errors import Conflict
from moorage.domain.nouns import Deployment, Revision
from tests.rollout_world import RolloutWorld
from tests.serving_world import spec


def intent_of(document: dict[str, Any], digest: str) -> Intent:
    part = {k: document[k] for k in ("runtime", "model", "resources") if k in document}
    return Intent("default", "gemma", document, part, digest)


def changed(**parts: Any) -> dict[str, Any]:
    """Another revision part."""
    return {**spec(**parts), "runtime": {"runner": "process", "command": ["serve", "d2"]}}


def planned(
    world: RolloutWorld, document: dict[str, Any], digest: str = "d1", room: Room | None = None
) -> dict[str, Any]:
    prospect = prospect_of(world, document, digest)
    return plan(prospect, room)


def prospect_of(world: RolloutWorld, document: dict[str, Any], digest: str) -> Prospect:
    known: Known | None = world.known_rows() if world.of(Deployment) else None
    intent = intent_of(document, digest)
    before = dict(world.rows)
    outcome = commands.apply(intent, known, world.ids, world.now, actor="plan", create_only=False)
    assert world.rows == before
    return Prospect(intent, known, outcome)


def kinds(found: dict[str, Any]) -> list[str]:
    return [action["kind"] for action in found["actions"]]


def said(found: dict[str, Any]) -> str:
    return " | ".join(action["summary"] for action in found["actions"])


def warned(found: dict[str, Any]) -> str:
    return " | ".join(found["warnings"])


def test_what_is_there_already_changes_nothing() -> None:
    world = RolloutWorld().serve()
    found = planned(world, spec())
    assert (found["changes"], found["actions"], found["warnings"]) == ([], [], [])


def test_a_first_apply_is_planned_as_a_creation() -> None:
    found = planned(RolloutWorld(), spec(replicas={"min": 2, "max": 2, "initial": 2}))
    assert kinds(found) == ["create", "start"]
    assert "start 2 replicas" in said(found)
    assert {"path": "replicas", "before": None, "after": {"min": 2, "max": 2, "initial": 2}} in found["changes"]


def test_a_change_of_the_live_part_is_planned_field_by_field_and_at_once() -> None:
    world = RolloutWorld().serve()
    found = planned(world, spec(gateway={"drain": 5.0}))
    assert found["changes"] == [{"path": "gateway", "before": None, "after": {"drain": 5.0}}]
    assert said(found) == "change at once: gateway"


def test_a_new_revision_is_planned_as_a_rollout_in_its_order() -> None:
    world = RolloutWorld().serve()
    found = planned(world, changed(), "d2")
    assert kinds(found) == ["create", "start", "compare", "promote", "drain", "watch"]
    assert [a["order"] for a in found["actions"]] == [1, 2, 3, 4, 5, 6]
    assert found["changes"] == [{"path": "runtime.command", "before": ["serve"], "after": ["serve", "d2"]}]
    assert "requests that the control plane sends to both" in said(found)


def test_the_plan_of_a_rollout_is_what_the_apply_makes() -> None:
    world = RolloutWorld().serve()
    made = prospect_of(world, changed(), "d2").revision
    assert made is not None
    world.apply(changed(), "d2")
    (revision,) = [r for r in world.of(Revision) if r.digest == "d2"]
    assert (revision.number, dict(revision.spec)) == (made.number, dict(made.spec))


@pytest.mark.parametrize(
    ("rollout", "words"),
    [
        ({"strategy": "canary", "steps": [5, 50]}, "with 5, then 50 % of the requests"),
        ({"strategy": "header"}, "requests that ask for it"),
        ({"strategy": "mirror"}, "copies of clients' requests"),
        ({"auto": False}, "moor promote gemma"),
    ],
)
def test_how_a_candidate_is_tried_is_said(rollout: dict[str, Any], words: str) -> None:
    world = RolloutWorld().serve()
    assert words in said(planned(world, changed(rollout=rollout), "d2"))


def test_a_candidate_on_its_way_is_said_to_give_way() -> None:
    world = RolloutWorld().serve()
    world.change("d3")
    found = planned(world, changed(), "d2")
    assert "cancel revision 2, which is on its way" in said(found)


def test_the_revision_that_is_on_its_way_planned_again_changes_nothing() -> None:
    world = RolloutWorld().serve()
    world.change("d2")
    found = planned(world, changed(), "d2")
    assert (found["changes"], found["actions"]) == ([], [])


def test_a_guard_with_nothing_to_measure_is_warned_of() -> None:
    world = RolloutWorld().serve(model={})
    found = planned(world, changed(model={}), "d2")
    assert "accepted unseen" in warned(found)
    assert "accepted unseen" not in warned(planned(RolloutWorld().serve(), changed(), "d2"))


def test_replacing_in_place_is_warned_of_with_what_clients_will_meet() -> None:
    world = RolloutWorld().serve()
    found = planned(world, changed(rollout={"capacity": "replace"}), "d2")
    assert "requests are held meanwhile, then answered 503" in warned(found)


def test_what_the_apply_refuses_the_plan_refuses() -> None:
    world = RolloutWorld().serve()
    world.command("stop")
    with pytest.raises(Conflict):
        planned(world, changed(), "d2")


# Room, by the scheduler itself


def room(world: RolloutWorld, count: int, **resources: Any) -> Room:
    document = changed(resources=resources)
    prospect = prospect_of(world, document, "d2")
    revision = prospect.revision
    assert revision is not None
    book = Book.of(SchedulingSnapshot(world.now, (), {}, world.rooms()))
    before = len(book.queue)
    found = room_for(book, prospect.deployment, revision, count, ids=world.ids, now=world.now)
    assert len(book.queue) == before
    return found


def test_a_candidate_that_fits_beside_what_serves_is_not_warned_of() -> None:
    world = RolloutWorld().serve()
    found = room(world, 1, cpu=1.0)
    assert (found.fits, found.why) == (1, "")
    assert "room" not in warned(planned(world, changed(), "d2", found))


def test_a_full_machine_is_told_in_the_schedulers_own_words() -> None:
    world = RolloutWorld().serve()
    found = room(world, 3, cpu=3.0)
    assert (found.asked, found.fits) == (3, 2)
    warning = warned(planned(world, changed(), "d2", found))
    assert "there is room for 2 of the 3 replicas that the candidate needs beside what serves" in warning
    assert "rollout.capacity: replace" in warning
    assert found.why in warning
    assert found.why

"""The control plane is killed before and after every commit of a rollout: whoever leads next comes to the same end.

Enumerated, not drawn: the story is told once without a death, then once for each of its decisions with the change of
that decision lost, and once with the change committed and everything that was only in memory forgotten.
"""

from collections.abc import Callable

import pytest

from moorage.decide.decision import Decision
from moorage.decide.serving.cycle import decide
from moorage.domain.nouns import Deployment, Operation, Revision
from moorage.domain.states import OperationState
from tests.rollout_world import RolloutWorld

TWO = {"replicas": {"min": 2, "max": 2}}
CANARY = {**TWO, "rollout": {"strategy": "canary", "steps": [50], "step_interval": 60.0}}
IN_PLACE = {"replicas": {"min": 1, "max": 1}, "rollout": {"capacity": "replace"}}


class Mortal(RolloutWorld):
    """A world whose control plane dies at one of its decisions."""

    def __init__(self, dies_at: int = -1, committed: bool = False) -> None:
        super().__init__(machines=4)
        self.dies_at, self.committed = dies_at, committed
        self.decisions = 0
        self.cut: list[str] = []
        """what went wrong for clients"""

    def step(self) -> Decision:
        decision = decide(self.snapshot(), self.ids)
        if decision.change is not None:
            self.decisions += 1
            if self.decisions == self.dies_at:
                if self.committed:
                    self.commit(decision.change)
                self.published = None
                return decision
        self.commit(decision.change)
        return decision

    def look(self, expected: str) -> None:
        """The active revision answers."""
        if expected not in self.routed():
            self.cut.append(f"{expected} is not routed: {self.routed()}")


def applied(world: Mortal) -> None:
    world.serve(**TWO)
    world.change(**TWO)
    world.look("d1")
    world.bring_up()
    world.look("d1")
    world.compare()
    world.bring_up()
    world.look("d2")
    world.stopped()


def promoted(world: Mortal) -> None:
    world.serve(**TWO)
    world.change(**TWO)
    world.bring_up()
    world.order("promote")
    world.settle()
    world.look("d1")
    world.bring_up()
    world.look("d2")
    world.stopped()


def rejected(world: Mortal) -> None:
    world.serve(**TWO)
    world.change(**TWO)
    world.bring_up()
    world.compare(errors=35)
    world.look("d1")
    world.stopped()


def stepped(world: Mortal) -> None:
    world.serve(**CANARY)
    world.change(**CANARY)
    world.bring_up()
    world.compare(source="gw")
    world.look("d1")
    world.advance(60.0)
    world.settle()
    world.bring_up()
    world.look("d2")
    world.stopped()


def rolled_back(world: Mortal) -> None:
    applied(world)
    world.order("rollback")
    world.settle()
    world.look("d2")
    world.bring_up()
    world.look("d1")
    world.stopped()


def sent_back(world: Mortal) -> None:
    world.serve(**TWO)
    world.change(**TWO)
    world.bring_up()
    world.met("d1", source="gw", requests=200)
    world.compare()
    world.bring_up()
    world.stopped()
    world.met("d2", source="gw/2", requests=200, errors=90)
    world.settle()
    world.look("d2")
    world.bring_up()
    world.look("d1")
    world.stopped()


def in_place(world: Mortal) -> None:
    world.serve(**IN_PLACE)
    world.change(**IN_PLACE)
    world.stopped()
    world.bring_up()
    world.met("d2")
    world.settle()
    world.advance(10.0)
    world.settle()
    world.look("d2")


def in_place_and_bad(world: Mortal) -> None:
    world.serve(**IN_PLACE)
    world.change(**IN_PLACE)
    world.stopped()
    world.place()
    world.starts(world.worker)
    world.exits(world.worker, 1)
    world.settle()
    world.bring_up()
    world.look("d1")


def slept_and_woken(world: Mortal) -> None:
    applied(world)
    world.command("pause")
    world.settle()
    world.stopped()
    world.held = 1
    world.settle()
    world.held = 0
    world.bring_up()
    world.look("d2")


def applied_and_deleted(world: Mortal) -> None:
    world.serve(**TWO)
    world.change(**TWO)
    world.bring_up()
    world.command("delete")
    world.settle()
    world.stopped()


STORIES: dict[str, Callable[[Mortal], None]] = {
    f.__name__: f
    for f in (
        applied,
        promoted,
        rejected,
        stepped,
        rolled_back,
        sent_back,
        in_place,
        in_place_and_bad,
        slept_and_woken,
        applied_and_deleted,
    )
}


def end(world: Mortal) -> tuple[object, ...]:
    """What a person sees when the story is over."""
    if not world.of(Deployment):
        return (None, sorted((o.operation, str(o.state)) for o in world.of(Operation)))
    return (
        world.deployment.status,
        world.phase,
        world.sizes(),
        world.routed(),
        sorted((r.number, str(r.state), r.capacity_gone) for r in world.of(Revision)),
        sorted((o.operation, str(o.state)) for o in world.of(Operation)),
        world.deployment.candidate_revision,
    )


@pytest.mark.parametrize("committed", [False, True], ids=["lost", "committed"])
@pytest.mark.parametrize("story", STORIES)
def test_killed_at_any_decision_it_comes_to_the_same_end(story: str, committed: bool) -> None:
    whole = Mortal()
    STORIES[story](whole)
    assert whole.cut == []
    assert whole.decisions >= 4
    for at in range(1, whole.decisions + 1):
        world = Mortal(at, committed)
        STORIES[story](world)
        world.settle()
        assert world.cut == [], f"killed at decision {at}"
        assert end(world) == end(whole), f"killed at decision {at}"
        over = (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CANCELLED)
        assert all(o.state in over for o in world.of(Operation)), f"killed at decision {at}"

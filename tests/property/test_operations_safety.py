"""Whatever rows, people and successors do to an operation, it keeps to its table, counts truly and never goes back."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.decide.serving import operation_commands
from moorage.decide.serving.facts import STEPS, Facts, Retry
from moorage.decide.serving.operations import ATTEMPTS_MAX
from moorage.decide.serving.phase import OPEN_OPERATION
from moorage.decide.serving.snapshot import Holder
from moorage.domain.errors import Conflict
from moorage.domain.states import OperationState
from tests.told_operation import Told

HELD = (OperationState.LEASED, OperationState.RUNNING, OperationState.WAITING)
ERROR = {"code": "e", "category": "failed", "message": "broken", "retryable": False}

facts = st.builds(
    Facts,
    st.integers(0, 5),
    error=st.sampled_from([None] * 8 + [ERROR]),
    cancelled_by=st.sampled_from([None] * 8 + ["a delete"]),
    waiting=st.sampled_from([None, "a machine", "gateways"]),
    retry=st.sampled_from([None, None, Retry("no answer"), Retry("crashed", 1_000_500.0)]),
    attention=st.sampled_from([None] * 4 + ["another digest"]),
)
acts = st.one_of(
    st.tuples(st.just("look"), facts),
    st.tuples(st.just("time"), st.floats(0.1, 200.0)),
    st.tuples(st.just("successor"), st.none()),
    st.tuples(st.just("cancel"), st.none()),
    st.tuples(st.sampled_from(["absent", "adopt"]), st.none()),
)


def person(world: Told, word: str) -> None:
    """A word that may be refused, and then changes nothing."""
    before = world.operation
    try:
        if word == "cancel":
            outcome = operation_commands.cancel(before, world.now, actor="person:p")
        else:
            given_word: dict[str, Any] = {"adopt": "m/pid:1" if word == "adopt" else None, "absent": word == "absent"}
            outcome = operation_commands.resolve(before, world.now, actor="person:p", **given_word)
    except Conflict:
        assert world.operation is before
    else:
        world.commit(outcome.change)


@settings(max_examples=300)
@given(st.sampled_from(sorted(STEPS)), st.lists(acts, max_size=25))
def test_an_operation_keeps_to_its_table_and_never_goes_backwards(name: str, happens: list[tuple[str, Any]]) -> None:
    world = Told(name)
    progress, over = 0.0, None
    for what, value in happens:
        if what == "look" and over is None:
            world.look(value)
        elif what == "time":
            world.now += value
        elif what == "successor":
            world.holder = Holder("home:next", (world.holder.generation if world.holder else 0) + 1, world.now + 30.0)
        elif what in ("cancel", "absent", "adopt"):
            person(world, what)
        now = world.operation
        assert now.progress >= progress
        assert now.attempt <= ATTEMPTS_MAX
        assert over is None or now.state is over, "what is over stays so"
        if what == "look" and now.state in HELD and world.holder is not None:
            assert now.lease_generation == world.holder.generation
        if now.state is OperationState.WAITING:
            assert now.waiting_reason is not None
        progress, over = now.progress, None if now.state in OPEN_OPERATION else now.state


@given(st.sampled_from(sorted(STEPS)), facts)
def test_looking_twice_at_the_same_facts_writes_once(name: str, seen: Facts) -> None:
    world = Told(name)
    world.look(seen)
    for _ in range(2):
        before = world.operation
        if before.state in OPEN_OPERATION:
            world.look(seen)
        settled = world.operation
    assert settled == before

"""Operations: leases, attempts, waiting, a person's word, and what goes before what."""

from dataclasses import replace
from typing import Any

import pytest

from moorage.decide.decision import Draft
from moorage.decide.serving import cancelling, commands, operation_commands, operations
from moorage.decide.serving.facts import Facts, Retry
from moorage.domain.errors import Conflict, InvalidSpec
from moorage.domain.nouns import Deployment, Machine, Operation, Revision
from moorage.domain.states import DeploymentStatus, OperationState, RevisionState
from tests.serving_world import START, World, spec
from tests.told_operation import BERT, Told


def failing(error: str = "no answer") -> Facts:
    return Facts(1, retry=Retry(error))


# Lease


def test_an_operation_is_held_under_the_lease_of_the_control_plane_that_leads() -> None:
    world = Told()
    world.look()
    held = world.operation
    assert (held.state, held.attempt) == (OperationState.RUNNING, 1)
    assert (held.lease_owner, held.lease_generation, held.lease_expires_at) == ("home:anna", 1, START + 30.0)
    assert world.codes == ["op.leased", "op.started"]


def test_the_next_holder_says_that_the_lease_was_lost_and_resumes_at_the_first_unfinished_step() -> None:
    world = Told()
    world.look(Facts(2))
    world.holder = BERT
    world.look()
    assert world.codes[2:] == ["op.lease_lost", "op.leased", "op.resumed"]
    assert dict(world.operation.reason.params) == {"step": "ready"}  # type: ignore[union-attr]
    assert (world.operation.lease_owner, world.operation.attempt) == ("home:bert", 1)


def test_the_same_holder_looking_again_writes_nothing() -> None:
    world = Told()
    world.look(Facts(1, waiting="a machine"))
    before = (world.operation, list(world.history))
    world.look()
    assert (world.operation, world.history) == before


def test_a_cancel_survives_the_loss_of_the_lease() -> None:
    world = Told()
    world.look()
    world.word(operation_commands.cancel(world.operation, world.now, actor="person:p"))
    world.holder = BERT
    world.look()
    assert world.operation.state is OperationState.CANCELLED
    assert "op.lease_lost" not in world.codes


# Waiting and attempts


def test_what_a_step_waits_for_is_said_once_and_forgotten_when_it_goes_on() -> None:
    world = Told()
    world.look(Facts(1, waiting="a machine"))
    assert (world.operation.state, world.codes[-1]) == (OperationState.WAITING, "op.waiting")
    world.look(Facts(1, waiting="another machine"))
    assert (world.operation.waiting_reason or {})["params"] == {"why": "another machine"}
    world.look(Facts(2))
    assert (world.operation.state, world.operation.waiting_reason) == (OperationState.RUNNING, None)


def test_attempts_back_off_from_a_second_to_a_minute_each_within_a_quarter() -> None:
    world = Told()
    gaps = []
    world.look(failing())
    for _ in range(12):
        at = world.operation.next_attempt_at
        assert at == world.wake_at
        gaps.append(at - world.now)
        world.now = at
        world.look()
    for n, gap in enumerate(gaps):
        planned = min(60.0, 2.0**n)
        assert planned * 0.75 <= gap <= planned * 1.25
    assert len({round(gap / min(60.0, 2.0**n), 6) for n, gap in enumerate(gaps)}) > 6


def test_an_attempt_is_counted_once_however_often_it_is_looked_at() -> None:
    world = Told()
    world.look(failing())
    for _ in range(5):
        world.look()
    assert world.operation.attempt == 2


def test_a_retry_whose_time_was_chosen_elsewhere_is_one_attempt_a_time() -> None:
    world = Told()
    for at in (10.0, 10.0, 20.0, 20.0):
        world.look(Facts(1, retry=Retry("crashed", START + at)))
    assert (world.operation.attempt, world.operation.next_attempt_at) == (3, START + 20.0)


def spend(world: Told) -> None:
    """Every attempt allowed."""
    world.look(failing())
    for _ in range(operations.ATTEMPTS_MAX):
        if world.operation.state is not OperationState.WAITING:
            return
        world.now = world.operation.next_attempt_at or world.now
        world.look()


def test_an_apply_fails_after_120_attempts_with_the_last_error() -> None:
    world = Told()
    spend(world)
    assert (world.operation.state, world.operation.attempt) == (OperationState.FAILED, 120)
    assert world.codes[-1] == "op.attempts_exhausted"
    assert "no answer" in (world.operation.error or {})["message"]


def test_a_delete_needs_a_person_after_120_attempts_and_never_fails() -> None:
    world = Told("delete")
    spend(world)
    assert world.operation.state is OperationState.NEEDS_ATTENTION
    world.look()
    assert (world.operation.state, world.operation.attempt) == (OperationState.NEEDS_ATTENTION, 120)


# A person's word


def in_question(operation: str = "delete") -> Told:
    world = Told(operation)
    world.look(Facts(1, attention="replica 0 has another digest"))
    assert world.operation.state is OperationState.NEEDS_ATTENTION
    return world


def test_a_persons_word_is_kept_with_the_evidence_and_the_operation_goes_on() -> None:
    world = in_question()
    word = operation_commands.resolve(world.operation, world.now, actor="person:p", adopt="m1/pid:7", absent=False)
    world.word(word)
    kept = world.operation.resolution or {}
    assert (kept["how"], kept["resource"], kept["by"]) == ("adopt", "m1/pid:7", "person:p")
    assert "replica 0 has another digest" in kept["evidence"]
    world.look(Facts(2))
    assert (world.operation.state, world.codes[-3:]) == (
        OperationState.RUNNING,
        ["op.resolved", "op.leased", "op.resumed"],
    )


def test_what_becomes_certain_by_itself_needs_nobody() -> None:
    world = in_question()
    world.look(Facts(2))
    assert world.operation.state is OperationState.RUNNING
    assert "op.certain" in world.codes


def test_a_word_that_nobody_asked_for_is_refused() -> None:
    world = Told()
    world.look()
    with pytest.raises(Conflict) as refused:
        operation_commands.resolve(world.operation, world.now, actor="person:p", adopt=None, absent=True)
    assert refused.value.code == "not_in_question"


@pytest.mark.parametrize(("adopt", "absent"), [(None, False), ("m1/pid:7", True)])
def test_a_word_says_one_thing(adopt: str | None, absent: bool) -> None:
    world = in_question()
    with pytest.raises(InvalidSpec):
        operation_commands.resolve(world.operation, world.now, actor="person:p", adopt=adopt, absent=absent)


def test_an_operation_that_needs_a_person_can_be_cancelled_instead() -> None:
    world = in_question("apply")
    world.word(operation_commands.cancel(world.operation, world.now, actor="person:p"))
    world.look()
    assert world.operation.state is OperationState.CANCELLED


# Progress


def test_progress_never_goes_backwards_though_the_rows_do() -> None:
    world = Told()
    world.look(Facts(3))
    world.look(Facts(1))
    assert world.operation.progress == 0.75
    assert [s["state"] for s in world.operation.steps] == ["done"] * 3 + ["pending"]


# Which goes before which


@pytest.mark.parametrize(
    ("lower", "higher"),
    [("apply", "promote"), ("apply", "rollback"), ("promote", "rollback"), ("rollback", "stop"), ("promote", "delete")],
)
def test_a_higher_operation_asks_the_lower_to_cancel_and_a_lower_is_refused(lower: str, higher: str) -> None:
    world = Told()
    below = replace(world.operation, operation=lower, state=OperationState.RUNNING)
    above = replace(below, uid="op-2", operation=higher)
    draft = Draft((below, above), world.now, "person:p")
    cancelling.take_over(draft, (below,), higher, "person:p")
    assert draft.row(below).state is OperationState.CANCELLING
    with pytest.raises(Conflict) as refused:
        cancelling.refuse_below((above,), lower, world.deployment)
    assert (refused.value.code, "op-2" in refused.value.message) == ("operation_in_progress", True)
    cancelling.refuse_below((below,), higher, world.deployment)


def test_a_stop_is_never_asked_to_cancel() -> None:
    world = Told("stop")
    draft = Draft((world.operation,), world.now, "person:p")
    cancelling.take_over(draft, (world.operation,), "delete", "person:p")
    assert draft.decision().change is None


def test_a_cancelled_first_apply_leaves_nothing_that_starts() -> None:
    world = World()
    world.apply()
    world.settle()
    world.commit(operation_commands.cancel(world.of(Operation)[0], world.now, actor="person:p").change)
    world.settle()
    assert world.of(Operation)[0].state is OperationState.CANCELLED
    assert world.of(Revision)[0].state is RevisionState.CANCELLED
    assert (world.deployment.status, world.replicas) == (DeploymentStatus.STOPPED, [])


# Proof of absence


def deleted_while_its_machine_is_lost() -> World:
    world = World()
    world.up()
    world.now += 31.0
    world.watch(world.of(Machine)[0])
    world.settle()
    world.command("delete")
    world.settle()
    return world


def test_a_delete_does_not_take_the_silence_of_a_lost_machine_for_absence() -> None:
    world = deleted_while_its_machine_is_lost()
    (delete,) = [o for o in world.of(Operation) if o.operation == "delete"]
    assert (delete.state, (delete.waiting_reason or {})["code"]) == (OperationState.WAITING, "op.retry")
    assert "m0 is lost" in (delete.waiting_reason or {})["message"]
    assert world.of(Deployment)


def test_a_person_may_say_that_nothing_is_left_on_a_lost_machine() -> None:
    world = deleted_while_its_machine_is_lost()
    for _ in range(operations.ATTEMPTS_MAX):
        (delete,) = [o for o in world.of(Operation) if o.operation == "delete"]
        if delete.state is OperationState.NEEDS_ATTENTION:
            break
        world.now = delete.next_attempt_at or world.now
        world.settle()
    assert delete.state is OperationState.NEEDS_ATTENTION
    word = operation_commands.resolve(delete, world.now, actor="person:p", adopt=None, absent=True)
    world.commit(word.change)
    world.settle()
    assert not world.of(Deployment)
    assert world.rows[delete.uid].state_word == "succeeded"
    assert not world.holders


def test_a_delete_waits_for_a_place_that_is_still_held() -> None:
    world = World()
    world.up()
    worker = world.worker
    world.command("delete")
    world.settle()
    kept = dict(world.holds)
    world.stops(worker)
    world.holds.update(kept)
    world.settle()
    assert world.of(Deployment)
    world.holds.clear()
    world.settle()
    assert not world.of(Deployment)


# Leaving an adopted server running


def adopted(ownership: str = "lifecycle") -> World:
    world = World()
    upstream = {"url": "http://h:1", "host": "h", "port": 1, "mode": ownership, "healthy": True}
    row = Deployment(uid="dep-1", name="gemma", spec=spec(), ownership=ownership, upstream=upstream)
    world.rows["dep-1"] = row
    return world


def deleted_and_kept(world: World) -> Any:
    known = world.known_rows()
    return commands.delete(known, world.ids, world.now, actor="person:p", keep=True)


def test_an_adopted_server_that_is_kept_is_ended_by_nobody_and_its_tombstone_says_whose_it_is() -> None:
    world = adopted()
    world.commit(deleted_and_kept(world).change)
    assert (world.deployment.ownership, dict(world.deployment.upstream or {})["mode"]) == ("external", "traffic")
    world.settle()
    assert not world.of(Deployment)
    assert world.removed_reasons["dep-1"].params["ownership"] == "external"


def test_servers_of_our_own_agents_cannot_be_kept() -> None:
    world = World()
    world.up()
    with pytest.raises(Conflict) as refused:
        deleted_and_kept(world)
    assert refused.value.code == "keep_resources_unavailable"
    assert not world.deployment.deleting


def test_nothing_is_kept_while_an_operation_needs_a_person() -> None:
    world = adopted()
    world.rows["op-1"] = Operation(uid="op-1", operation="adopt", target="dep-1", state=OperationState.NEEDS_ATTENTION)
    with pytest.raises(Conflict) as refused:
        deleted_and_kept(world)
    assert (refused.value.code, "op-1" in refused.value.message) == ("needs_attention", True)

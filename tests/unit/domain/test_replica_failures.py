"""A replica's fail reason and whether it is fatal, against the contract's two tables, transcribed by hand."""

import pytest

from moorage.domain.catalogue import CATALOGUE
from moorage.domain.failures import FailReason, replica_failure
from moorage.domain.states import TERMINAL_REPLICA, ReplicaStatus

LIVING = [s for s in ReplicaStatus if s not in TERMINAL_REPLICA]

BEFORE_READY = [
    ("image.pull_failed", {"permanent": True}, "image_pull_failed", True),
    ("model.fetch_failed", {"permanent": True}, "image_pull_failed", True),
    ("image.absent", {}, "image_pull_failed", True),
    ("image.pull_failed", {"permanent": False}, "image_pull_unavailable", False),
    ("model.fetch_failed", {"permanent": False}, "image_pull_unavailable", False),
    ("pull.stalled", {}, "image_pull_unavailable", False),
    ("start.invalid", {}, "config_invalid", True),
    ("config.write_failed", {}, "config_invalid", True),
    ("prepare.timed_out", {}, "setup_failed", False),
    ("setup.failed", {}, "setup_failed", False),
    ("create.failed", {}, "container_init_failed", True),
    ("start.failed", {}, "container_init_failed", True),
    ("start.timed_out", {}, "container_init_failed", True),
    ("exited", {"code": 1}, "container_init_failed", True),
    ("exited", {"code": 0}, "container_init_failed", True),
    ("oom_killed", {}, "container_init_failed", True),
    ("ready.wrong_model", {}, "container_init_failed", True),
    ("ready.timed_out", {}, "not_ready_in_time", False),
    ("ready.stalled", {}, "not_ready_in_time", False),
]

LOST = [
    "machine.lost",
    "machine.removed",
    "machine.rebooted",
    "heartbeat.expired",
    "container.missing",
    "exit.unknown",
]


@pytest.mark.parametrize("status", LIVING)
@pytest.mark.parametrize(("code", "params", "reason", "fatal"), BEFORE_READY)
def test_before_the_first_ready_the_code_decides_whatever_the_status(
    code: str, params: dict[str, object], reason: str, fatal: bool, status: ReplicaStatus
) -> None:
    assert replica_failure(code, params, was_ready=False, status=status) == (reason, fatal)


@pytest.mark.parametrize("code", sorted({code for code, *_ in BEFORE_READY} | set(LOST) | {"live.failed"}))
def test_once_it_was_ready_a_failure_is_a_crash_and_never_fatal(code: str) -> None:
    found = replica_failure(code, {"permanent": True}, was_ready=True, status=ReplicaStatus.RUNNING)
    assert found == (FailReason.CONTAINER_CRASHED, False)


@pytest.mark.parametrize("status", LIVING)
@pytest.mark.parametrize("code", LOST)
def test_a_loss_says_nothing_against_the_spec_however_early_it_comes(code: str, status: ReplicaStatus) -> None:
    assert replica_failure(code, {}, was_ready=False, status=status) == (FailReason.CONTAINER_CRASHED, False)


@pytest.mark.parametrize("code", ["ready.timed_out", "ready.stalled"])
def test_not_ready_in_time_is_fatal_the_second_time_in_a_row(code: str) -> None:
    found = replica_failure(code, {}, was_ready=False, status=ReplicaStatus.INITING, not_ready_before=True)
    assert found == (FailReason.NOT_READY_IN_TIME, True)


@pytest.mark.parametrize(
    ("status", "reason", "fatal"),
    [
        (ReplicaStatus.PENDING, "setup_failed", False),
        (ReplicaStatus.PULLING, "image_pull_unavailable", False),
        (ReplicaStatus.INITING, "container_init_failed", True),
        (ReplicaStatus.RUNNING, "container_crashed", False),
    ],
)
def test_a_code_of_a_newer_machine_is_read_by_the_status(status: ReplicaStatus, reason: str, fatal: bool) -> None:
    assert replica_failure("from.the_future", {}, was_ready=False, status=status) == (reason, fatal)


@pytest.mark.parametrize("status", sorted(TERMINAL_REPLICA))
def test_a_replica_that_ended_cannot_fail(status: ReplicaStatus) -> None:
    with pytest.raises(ValueError, match="cannot fail"):
        replica_failure("exited", {"code": 1}, was_ready=False, status=status)


def test_every_code_of_the_table_is_in_the_catalogue() -> None:
    assert {code for code, *_ in BEFORE_READY} | set(LOST) <= set(CATALOGUE)

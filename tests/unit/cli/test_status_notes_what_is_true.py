"""The note of `moor status` about failures in a row says what happens, and nothing of what is over."""

from typing import Any

import pytest

from moorage.cli.commands.status import words


def shown(status: str, fail_reason: str) -> str:
    value: dict[str, Any] = {"name": "gemma", "phase": "X", "status": status, "crash_looping": True}
    return words({**value, "last_failure": {"fail_reason": fail_reason, "reason": {"message": "m"}}}, 0.0)


@pytest.mark.parametrize(
    ("fail_reason", "note"),
    [("container_crashed", "it keeps crashing"), ("container_init_failed", "each new replica of it fails")],
)
def test_only_what_ran_and_ended_is_said_to_crash(fail_reason: str, note: str) -> None:
    assert note in shown("created", fail_reason)


def test_what_failed_for_good_is_not_said_to_go_on() -> None:
    assert "note" not in shown("failed", "container_init_failed")

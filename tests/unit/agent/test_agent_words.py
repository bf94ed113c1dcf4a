"""Every end of a process has one step of the table and one reason of the catalogue."""

import pytest

from moorage.agent import words
from moorage.domain.lifecycles import WORKER
from moorage.domain.reasons import reason
from moorage.runners.identity import Exit

ENDS = [
    (Exit(0), "Completed", "exited_zero", "exited"),
    (Exit(3), "Failed", "exited_nonzero", "exited"),
    (Exit(137, 9), "Failed", "exited_nonzero", "exited"),
    (Exit(137, 9, oom=True), "Failed", "exited_nonzero", "oom_killed"),
    (Exit(127, error="No such file: x"), "Failed", "failed", "start.failed"),
    (Exit(None, error="its shim died"), "Failed", "vanished", "exit.unknown"),
    (Exit(None, error="removed", missing=True), "Failed", "vanished", "container.missing"),
]


@pytest.mark.parametrize(("how", "to", "trigger", "code"), ENDS)
def test_an_end_is_one_step(how, to, trigger, code):
    step = words.ended(how, rebooted=False)
    assert (step.to, step.trigger, step.code) == (to, trigger, code)
    reason(step.code, **step.params)
    assert WORKER.allows("Starting", to, trigger)


def test_an_unknown_end_over_a_reboot_says_so():
    assert words.ended(Exit(None), rebooted=True).code == "machine.rebooted"


@pytest.mark.parametrize("state", ["Pending", "Preparing", "Pulling", "Starting", "Running"])
def test_the_missing_path_to_running_has_no_gap(state):
    at = state
    for step in words.missing_path(state, 7):
        WORKER.check(at, step.to, step.trigger)
        at = step.to
    assert at == "Running"


def test_a_confirmed_stop_says_how_it_ended():
    step = words.cancelled(Exit(137, 9, stopped=True), True)
    assert step.params == {"code": 137, "signal": 9, "killed": True}
    reason(step.code, **step.params)

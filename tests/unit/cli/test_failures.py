"""Every ending has its exit code, and is one readable block."""

from pathlib import Path

import pytest

from moorage.cli.failures import Interrupted, guarded
from moorage.domain.errors import (
    Conflict,
    InvalidSpec,
    MoorageError,
    NotFound,
    QuotaExceeded,
    Unauthorized,
    Unavailable,
    WaitFailed,
    WaitTimeout,
)
from moorage.wire.problems import invalid


def _raise(error: BaseException):
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (WaitFailed("x"), 1),
        (Conflict("x"), 1),
        (QuotaExceeded("x"), 1),
        (Unauthorized("x"), 1),
        (InvalidSpec("x"), 2),
        (WaitTimeout("x"), 3),
        (NotFound("x"), 4),
        (Unavailable("x"), 5),
    ],
)
def test_each_error_has_the_documented_exit_code(error: MoorageError, code: int):
    assert guarded(_raise(error)) == code


def test_success_is_zero_and_a_command_may_choose_its_own_code():
    assert guarded(lambda: None) == 0
    assert guarded(lambda: 3) == 3


def test_an_error_says_what_where_and_what_to_do(capsys: pytest.CaptureFixture[str]):
    guarded(_raise(NotFound("no deployment gemma", target="Deployment default/gemma", remedy="see `moor ls`")))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "error: no deployment gemma",
        "  on:    Deployment default/gemma",
        "  to do: see `moor ls`",
    ]


def test_a_bad_spec_lists_every_place_with_the_nearest_known_key(capsys: pytest.CaptureFixture[str]):
    errors = [{"path": "replicas.mn", "message": "unknown key", "nearest": "min"}]
    guarded(_raise(InvalidSpec("app.yaml is not valid", errors=errors)))
    assert "  replicas.mn: unknown key (did you mean `min`?)" in capsys.readouterr().err


def test_the_same_mistake_in_two_places_is_shown_for_each_of_them(capsys: pytest.CaptureFixture[str]):
    errors = [{"path": f"replicas.{name}", "message": "must be at most 10"} for name in ("max", "initial")]
    guarded(_raise(invalid("app.yaml", errors)))
    assert capsys.readouterr().err.splitlines()[:2] == [
        "error: app.yaml is not valid: replicas.max: must be at most 10 (and 1 more)",
        "  replicas.initial: must be at most 10",
    ]


def test_a_failed_wait_shows_state_reason_exit_code_and_the_end_of_the_log(capsys: pytest.CaptureFixture[str]):
    last = {
        "phase": "DEPLOY_FAILED",
        "reason": {"message": "replica 0 failed for good"},
        "last_failure": {"exit_code": 127, "log": "a\nsh: nope: not found", "reason": {"message": "not found"}},
    }
    guarded(_raise(WaitFailed("gemma will not become live", last=last)))
    err = capsys.readouterr().err
    for text in ("DEPLOY_FAILED", "replica 0 failed for good", "127", "sh: nope: not found"):
        assert text in err


def test_ctrl_c_while_watching_says_that_work_goes_on_and_how_to_watch_again(capsys: pytest.CaptureFixture[str]):
    assert guarded(_raise(Interrupted("moor wait gemma --for live"))) == 130
    assert "moor wait gemma --for live" in capsys.readouterr().err


def test_a_defect_is_one_short_block_and_its_traceback_is_in_a_file(capsys: pytest.CaptureFixture[str]):
    assert guarded(_raise(RuntimeError("boom"))) == 70
    err = capsys.readouterr().err
    assert "Traceback" not in err
    written = Path(err.rsplit(" ", 1)[-1].strip())
    assert "RuntimeError: boom" in written.read_text()
    written.unlink()


def test_why_does_not_advise_to_run_itself() -> None:
    from moorage.cli.commands.why import words
    from moorage.domain.reasons import reason

    for code in ("place.no_machine_fits", "place.gang_not_whole"):
        told = words("train", {"state": "Pending", "reason": reason(code, ready=1, total=2).to_wire()})
        assert "moor why" not in told
    assert "advice: Wait for room" in told

"""Errors of the library's callers, made from what is known of a model. Pure."""

from moorage.domain.errors import (
    ImageError,
    MaxRestartsExceeded,
    ModelNotStarted,
    PortUnavailable,
    RunnerError,
    ServerReadyTimeout,
)
from moorage.domain.reasons import Reason, reason
from moorage.runners.library.attempt import Ending
from moorage.runners.library.standing import Standing
from moorage.runners.library.views import Failure


def error_of(name: str, ending: Ending, failure: Failure) -> RunnerError:
    """Why a start did not succeed: its last failure, said to whoever asked for the start."""
    text = f"{name}: {ending.why.message}"
    if failure.log:
        text += f"; its log ends with: {failure.log.splitlines()[-1][:300]}"
    remedy = ending.why.advice
    if ending.timed_out:
        return ServerReadyTimeout(text, target=name, remedy=remedy)
    if ending.hopeless:
        return RunnerError(text, target=name, remedy=remedy, code="start_failed")
    return MaxRestartsExceeded(text, target=name, remedy=remedy)


def exhausted(error: RunnerError) -> RunnerError:
    """What a request to a model hears whose restarts are spent, whatever the last failure was."""
    if isinstance(error, MaxRestartsExceeded) or not isinstance(error, ServerReadyTimeout):
        return error.with_traceback(None)
    return MaxRestartsExceeded(error.message, target=error.target, remedy=error.remedy)


def not_started(name: str, now: Standing) -> ModelNotStarted:
    """What a request to a model hears that is not running."""
    return ModelNotStarted(
        f"{name} is {now.state}: {now.reason.message}", target=name, remedy=f"start it first: start({name!r})"
    )


def error_reason(cause: RunnerError) -> Reason:
    """An error of a host as a reason."""
    if isinstance(cause, ImageError):
        if cause.code == "image_absent":
            return reason("image.absent")
        return reason("image.pull_failed", error=cause.message, permanent=cause.permanent)
    if isinstance(cause, PortUnavailable) or cause.code == "start_invalid":
        return reason("start.failed", error=cause.message)
    return reason("create.failed", error=cause.message)

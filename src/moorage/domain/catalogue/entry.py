"""How the catalogue's modules write an entry: one function a class, code first, then the sentence, then the params."""

from typing import Any

from moorage.domain.reason_types import ReasonClass, ReasonType


def waiting(
    code: str, sentence: str, *params: str, optional: tuple[str, ...] = (), advice: str | None = None
) -> ReasonType:
    """It waits for something that can still come."""
    return ReasonType(code, ReasonClass.WAITING, sentence, params, optional, advice)


def impossible(code: str, sentence: str, *params: str, optional: tuple[str, ...] = (), advice: str) -> ReasonType:
    """It can never be as things are; somebody must change something."""
    return ReasonType(code, ReasonClass.IMPOSSIBLE, sentence, params, optional, advice)


def failed(
    code: str,
    sentence: str,
    *params: str,
    optional: tuple[str, ...] = (),
    advice: str,
    progress_when: tuple[str, Any] | None = None,
) -> ReasonType:
    """Something went wrong."""
    return ReasonType(code, ReasonClass.FAILED, sentence, params, optional, advice, progress_when)


def by_person(
    code: str, sentence: str, *params: str, optional: tuple[str, ...] = (), advice: str | None = None
) -> ReasonType:
    """A person asked for it."""
    return ReasonType(code, ReasonClass.BY_PERSON, sentence, params, optional, advice)


def progress(code: str, sentence: str, *params: str, optional: tuple[str, ...] = ()) -> ReasonType:
    """It goes on as intended."""
    return ReasonType(code, ReasonClass.PROGRESS, sentence, params, optional)

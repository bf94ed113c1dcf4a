"""The server's error object, and the lack of any answer, as the errors of `moorage.domain.errors`."""

import json
from typing import Any

from moorage.client.calls import Answer, NoAnswer, Trouble
from moorage.domain import errors as e
from moorage.domain.errors import MoorageError

_BY_STATUS: dict[int, type[MoorageError]] = {
    401: e.Unauthorized,
    403: e.Forbidden,
    404: e.NotFound,
    409: e.Conflict,
    410: e.Gone,
    413: e.TooLarge,
    422: e.InvalidSpec,
    429: e.QuotaExceeded,
    502: e.Unavailable,
    503: e.Unavailable,
    504: e.Unavailable,
}

_BY_CODE: dict[str, type[MoorageError]] = {
    kind.code: kind
    for kind in (
        e.InvalidSpec,
        e.NotFound,
        e.Conflict,
        e.StaleVersion,
        e.KeyReused,
        e.Fenced,
        e.Gone,
        e.QuotaExceeded,
        e.Unauthorized,
        e.Forbidden,
        e.TooLarge,
        e.Unavailable,
    )
}


def failure(answer: Answer, base_url: str) -> MoorageError:
    """The error that an answer of 400 and above stands for.

    Args:
        answer: as it came.
        base_url: named where the answer is not one of Moorage's.
    """
    told = _error_object(answer.content)
    if told is None:
        return _foreign(answer, base_url)
    error = told_failure(told, answer.status)
    if isinstance(error, e.Unavailable):
        error.retry_after_s = retry_after_s(answer)
    return error


def told_failure(told: dict[str, Any], status: int | None = None) -> MoorageError:
    """The error that one of the API's error objects stands for.

    Args:
        told: the object.
        status: of the answer that brought it; None: that of its class.
    """
    code = str(told["code"])
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status or 0, MoorageError)
    own: dict[str, Any] = {
        "remedy": told.get("remedy"),
        "target": told.get("target"),
        "code": code,
        "retryable": bool(told.get("retryable")),
    }
    if issubclass(kind, e.InvalidSpec):
        own["errors"] = told.get("errors") or ()
    error = kind(str(told["message"]), **own)
    if status is not None:
        error.status = status
    return error


_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


def unreachable(cause: NoAnswer, base_url: str) -> e.Unavailable:
    """No answer came."""
    if cause.trouble is Trouble.REFUSED and _UNTRUSTED in cause.text:
        return e.Unavailable(
            f"the certificate of {base_url} is not to be believed: {cause.text}",
            remedy="name its authority's file: SSL_CERT_FILE=ca.pem, or `ca` of the client",
        )
    if cause.trouble is Trouble.REFUSED:
        return e.Unavailable(
            f"no control plane answers at {base_url}: {cause.text}",
            remedy="start one on this machine with `moor up`, or name another with MOORAGE_URL",
            code="unreachable",
        )
    return e.Unavailable(
        f"the control plane at {base_url} did not answer: {cause.text}",
        remedy="try again; if it stays so, see how its parts are with `moor up`",
        code="unreachable",
    )


def retry_after_s(answer: Answer) -> float | None:
    """Seconds of the Retry-After header, if it has them."""
    text = answer.headers.get("retry-after", "")
    try:
        return max(0.0, float(text))
    except ValueError:
        return None


def _error_object(content: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(content)
    except ValueError:
        return None
    inner = told.get("error") if isinstance(told, dict) else None
    found = inner if isinstance(inner, dict) else told
    return found if isinstance(found, dict) and "code" in found and "message" in found else None


def _foreign(answer: Answer, base_url: str) -> MoorageError:
    """Something else answered: a proxy, another program on that port, a server that broke down."""
    kind = _BY_STATUS.get(answer.status, MoorageError)
    if issubclass(kind, e.InvalidSpec):
        kind = MoorageError
    shown = answer.content[:120].decode("utf-8", "replace").strip()
    error = kind(
        f"{base_url} answered {answer.status} with what is not Moorage's: {shown or 'nothing'}",
        remedy="check that the address is that of the control API (MOORAGE_URL)",
        code="foreign_answer",
        retryable=answer.status >= 500,
    )
    error.status = answer.status
    return error

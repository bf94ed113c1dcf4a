"""Every error a person or a program can meet, drawn as one tree.

    MoorageError                      code, category, message, retryable, remedy, target
    ├── InvalidSpec                   422  the spec or an argument is wrong; carries `errors` with paths
    ├── NotFound                      404  nothing of that name (or not yours)
    ├── Conflict                      409  intent or state contradicts the request
    │   ├── StaleVersion                   somebody else changed the row first; load again and retry
    │   ├── KeyReused                      the idempotency key was used for a different intent
    │   └── Fenced                         the lease is no longer ours; write nothing
    ├── Gone                          410  the cursor was pruned or belongs to another store
    ├── QuotaExceeded                 429
    ├── Unauthorized                  401
    │   └── Forbidden                 403  known, but not allowed to do this
    ├── TooLarge                      413  the request body is larger than the server takes
    ├── Unavailable                   503  nothing can serve or answer now; retry after
    ├── IllegalTransition                  a programming error: the table has no such row
    ├── WaitFailed                         a wait ended in a failure state (carries last status and reason)
    ├── WaitTimeout                        the deadline passed first
    └── RunnerError                        one model server on one machine
        ├── ServerReadyTimeout · ModelNotStarted · ModelShutdown · MaxRestartsExceeded
        ├── PortUnavailable
        └── ImageError                     permanent or transient

Classes are by who must act: `category` is invalid, conflict, missing, denied, unavailable, failed or internal.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class MoorageError(Exception):
    """Base of every public error.

    Args:
        message: what happened, where.
        remedy: what to do next.
        target: what it concerns (`Deployment default/gemma`).
        code: stable code that programs match on.
        retryable: whether the same request may succeed later unchanged.
    """

    code = "error"
    category = "failed"
    status = 500
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        remedy: str | None = None,
        target: str | None = None,
        code: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.target = target
        if code is not None:
            self.code = code
        if retryable is not None:
            self.retryable = retryable

    def to_wire(self) -> dict[str, Any]:
        """The one public error object of the API."""
        out: dict[str, Any] = {
            "code": self.code,
            "category": self.category,
            "message": self.message,
            "retryable": self.retryable,
            "remedy": self.remedy,
        }
        if self.target:
            out["target"] = self.target
        return out


class InvalidSpec(MoorageError):
    """A spec, setting or argument is wrong. `errors` lists `{path, message, nearest?}`."""

    code, category, status = "invalid_spec", "invalid", 422

    def __init__(self, message: str, *, errors: Sequence[Mapping[str, Any]] = (), **kw: Any) -> None:
        super().__init__(message, **kw)
        self.errors = [dict(e) for e in errors]

    def to_wire(self) -> dict[str, Any]:
        """As the base, with `errors`."""
        return {**super().to_wire(), "errors": self.errors}


class NotFound(MoorageError):
    """Nothing of that name is visible to the caller."""

    code, category, status = "not_found", "missing", 404


class Conflict(MoorageError):
    """The request contradicts what is recorded."""

    code, category, status = "conflict", "conflict", 409


class StaleVersion(Conflict):
    """The row changed since it was loaded; nothing was written."""

    code = "stale_version"
    retryable = True


class KeyReused(Conflict):
    """The idempotency key was already used for another intent."""

    code = "idempotency_key_reused"


class Fenced(Conflict):
    """The lease under which this was written has passed to another holder; nothing was written."""

    code = "fenced"


class Gone(MoorageError):
    """The cursor is not known here any more; take a snapshot."""

    code, category, status = "gone", "missing", 410


class QuotaExceeded(MoorageError):
    """A limit is reached."""

    code, category, status = "quota_exceeded", "denied", 429
    retryable = True


class Unauthorized(MoorageError):
    """No or wrong credentials."""

    code, category, status = "unauthorized", "denied", 401


class Forbidden(Unauthorized):
    """The credentials are known and do not allow this."""

    code, category, status = "forbidden", "denied", 403


class TooLarge(MoorageError):
    """The request body is larger than the server takes."""

    code, category, status = "too_large", "invalid", 413


class Unavailable(MoorageError):
    """Nothing can answer now.

    Args:
        retry_after_s: seconds after which a retry makes sense.
    """

    code, category, status = "unavailable", "unavailable", 503
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float | None = None, **kw: Any) -> None:
        super().__init__(message, **kw)
        self.retry_after_s = retry_after_s


class StoreUnusable(MoorageError):
    """The database cannot be used as it is: damaged, not ours, or written by a newer release. Nothing was changed."""

    code = "store_unusable"


class IllegalTransition(MoorageError):
    """A move that the noun's table does not have; always a defect of ours, never of the caller's."""

    code, category = "illegal_transition", "internal"

    def __init__(self, noun: str, source: str, target: str, trigger: str) -> None:
        super().__init__(f"{noun} cannot go from {source} to {target} on {trigger}: the table has no such row")
        self.noun, self.source, self.to, self.trigger = noun, source, target, trigger


class _WaitEnded(MoorageError):
    """What both ends of a wait carry.

    Attributes:
        last: the last object read; its `phase`/`state` and `reason` say why. Empty where none was read.
        reason: why it ended so, as a reason object, where that is known; else that of `last`.
    """

    def __init__(
        self,
        message: str,
        *,
        last: Mapping[str, Any] | None = None,
        reason: Mapping[str, Any] | None = None,
        **kw: Any,
    ) -> None:
        super().__init__(message, **kw)
        self.last = dict(last or {})
        found = reason or self.last.get("reason")
        self.reason = dict(found) if found else None

    @property
    def exit_code(self) -> int | None:
        """How the last process that failed ended, where that is known."""
        code: int | None = self._failure.get("exit_code", self.last.get("exit_code"))
        return code

    @property
    def log(self) -> str | None:
        """The end of its log, where that is known."""
        return self._failure.get("log")

    @property
    def _failure(self) -> dict[str, Any]:
        return dict(self.last.get("last_failure") or {})


class WaitFailed(_WaitEnded):
    """A wait met a state from which its goal will not be reached."""

    code, category = "wait_failed", "failed"


class WaitTimeout(_WaitEnded):
    """The deadline passed before the goal was reached."""

    code, category = "wait_timeout", "unavailable"
    retryable = True


class RunnerError(MoorageError):
    """Something about one model server on one machine."""

    code = "runner_error"


class ServerReadyTimeout(RunnerError):
    """The server was not ready in time."""

    code = "server_ready_timeout"


class ModelNotStarted(RunnerError):
    """The model is not running."""

    code = "model_not_started"


class ModelShutdown(RunnerError):
    """The runner was shut down; it starts nothing any more."""

    code = "model_shutdown"


class MaxRestartsExceeded(RunnerError):
    """The restart limit is spent."""

    code = "max_restarts_exceeded"


class PortUnavailable(RunnerError):
    """No free port in the pool, or the wanted one is taken."""

    code = "port_unavailable"


class ImageError(RunnerError):
    """The image cannot be had.

    Args:
        permanent: True when trying again cannot help.
    """

    code = "image_error"

    def __init__(self, message: str, *, permanent: bool, **kw: Any) -> None:
        super().__init__(message, retryable=not permanent, **kw)
        self.permanent = permanent

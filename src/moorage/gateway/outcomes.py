"""How a request ended: the word for it and why, where the gateway answered itself; what it says of its replica.

A word of its own for each is made only where a request is refused, so that those which are answered carry nothing more
than a word. Not compiled: a class of `str` cannot be. Made by `exchange`; read by `measures` and `access_lines`.
The rest is called by `hub` for requests that did not end well.
"""

from typing import Final

from moorage.decide.serving.routes import FAILED, NEUTRAL, SERVER_ERROR

MODEL_CHARS_MAX: Final = 200
"""Of a name that a client asked for."""
SERVER_ERRORS: Final = 500
"""The first of the statuses that say so."""
_UNWELL: Final = (502, 503, 504)
_TIMED_OUT: Final = 504


class Refused(str):
    """`refused` or `upstream_error`, equal to that word.

    Args:
        word: the outcome.
        error: the code that the client was told.
        model: the name that it asked for, where no endpoint goes by it; else empty.
    """

    __slots__ = ("error", "model")

    error: str
    model: str

    def __new__(cls, word: str, error: str, model: str = "") -> "Refused":
        """See the class."""
        self = super().__new__(cls, word)
        self.error = error
        self.model = model[:MODEL_CHARS_MAX]
        return self


def bad_word(outcome: str, status: int) -> str:
    """What a bad answer was: its status, or that there was none, none in time, or half of one."""
    if outcome == "ok":
        return str(status)
    return "cut" if outcome == "cut" else "timeout" if status == _TIMED_OUT else "reset"


def told_of(outcome: str, status: int, *, sent: bool) -> int:
    """What the end of a request that was not answered well says of its replica, as the core takes it.

    Args:
        sent: whether the client had sent all of it; else nothing is said.
    """
    if outcome == "ok":
        return FAILED if status in _UNWELL else SERVER_ERROR
    return FAILED if outcome in ("cut", "upstream_error") and sent else NEUTRAL

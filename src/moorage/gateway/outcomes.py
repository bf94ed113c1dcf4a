"""How a request ended that the gateway answered itself: the word for it, and why.

A word of its own for each is made only where a request is refused, so that those which are answered carry nothing more
than a word. Not compiled: a class of `str` cannot be. Made by `exchange`; read by `measures` and `access_lines`.
"""

from typing import Final

MODEL_CHARS_MAX: Final = 200
"""Of a name that a client asked for."""


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

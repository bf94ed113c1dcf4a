"""The gateway's inner loops in C, where they were built; without them all is Python.

Here: which core is in use, and what one is. Not here: how it is built or found
(`moorage.gateway.accelerators`), and what it does (`core.c`, `lines.c` and `spending.c`, one page a function).

    heads, framing, skim, rewriting, tokens, access_lines, limits, limit_answers
                                  --asks-->  core.FUNCTION(bytes, …)  --answers-->  what Python would, or None
                                  <--None: too rare, malformed or near a limit; Python reads it, and alone refuses

So `core` is None, or an extension module of which every function is optional work: nothing in the gateway may depend
on its answering. `use` is called once, before the first connection; readers of heads, and limits, take the core when
they are made.
"""

from collections.abc import Sequence, Set
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class NativeCore(Protocol):
    """What the extension module `moorage_gateway_native` offers."""

    def request_head(
        self, raw: bytes, head: type[T], asks: type[Any], lines: dict[bytes, Any], hosts: Set[bytes], /
    ) -> T | None:
        """A whole head of a request (`heads.RequestReader`).

        Args:
            raw: the head, blank line included.
            head: the class `RequestHead`.
            asks: the class `Asks`.
            lines: what known request lines mean; one that is new is read in Python.
            hosts: Host lines that the judge let in; another one is judged in Python.
        """
        ...

    def response_head(self, raw: bytes, head: type[T], lines: dict[bytes, Any], /) -> T | None:
        """A whole head of an answer (`heads.ResponseReader`).

        Args:
            raw: the head, blank line included.
            head: the class `ResponseHead`.
            lines: what known status lines mean; one that is new is read in Python.
        """
        ...

    def count_chunks(self, data: bytes, pos: int, left: int, line_end: int, /) -> tuple[int, int, int] | None:
        """Count chunks from a place between lines or within data (`framing.ChunkCounter`).

        Returns:
            The index just after the body's end or -1, chunk data still to come, bytes of its line end still to come.
        """
        ...

    def sole_model(self, body: bytes | bytearray, /) -> str | None:
        """The top-level `model` of a whole body that names no second one (`skim.sole_model`)."""
        ...

    def renamed(self, head: T, body: bytes, model: str, /) -> tuple[T, bytes] | None:
        """A request with another model, where that leads its body (`rewriting.renamed`).

        Args:
            head: a `RequestHead` that tells the length of the body.
            body: all of it.
        """
        ...

    def usage(self, tail: bytes, tokens: type[T], /) -> T | None:
        """What the end of a JSON answer tells (`tokens.told_by_body`)."""
        ...

    def lines(self, parts: Sequence[bytes | Sequence[Any]], number: int, /) -> list[bytes] | None:
        """So many lines of the access log (`access_lines`)."""
        ...

    def most_tokens(self, body: bytes, /) -> int | None:
        """The largest bound that a body sets on the tokens of its answer; 0: none (`limits`)."""
        ...

    def spelled(self, *parts: bytes | int) -> bytes | None:
        """Bytes, and numbers by their decimal digits, one after another (`limit_answers`)."""
        ...

    def place(self, bounds: tuple[float, ...], value: float, /) -> int:
        """`bisect_left`."""
        ...


core: NativeCore | None = None
"""the one in use"""


def use(chosen: NativeCore | None) -> None:
    """Use this core from now on; None: Python alone."""
    global core
    core = chosen

"""The regular expressions of `--grep`: one engine on the machine that searches and on the server that checks.

RE2 takes time linear in the text whatever the pattern, so that no expression hangs a machine; in exchange it knows no
back-references and no look-around. Loaded at the first pattern: most processes never see one.
"""

from collections.abc import Callable
from typing import Any

from moorage.domain.errors import InvalidSpec

SYNTAX = "https://github.com/google/re2/wiki/Syntax"

MULTILINE = b"(?m)"
"""In front of every pattern: `^` and `$` are the ends of a line."""

Search = Callable[[bytes, int], "tuple[int, int] | None"]
"""Where the pattern is first found in a text from a position on: start and end."""


def line_search(pattern: str) -> Search:
    """A search for a pattern in the lines of a text; a match never reaches over the end of a line.

    Raises:
        InvalidSpec: it is no regular expression, or one that would take too much memory.
    """
    compiled = _compiled(pattern)

    def search(text: bytes, start: int) -> tuple[int, int] | None:
        found = compiled.search(text, start)
        return None if found is None else found.span()

    return search


def check_pattern(pattern: str) -> None:
    """As `line_search`, for who only wants to know whether it can be used."""
    _compiled(pattern)


def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    try:
        return re2.compile(MULTILINE + pattern.encode("utf-8", "surrogateescape"), options)
    except re2.error as cause:
        why = cause.args[0] if cause.args else str(cause)
        told = why.decode("utf-8", "replace") if isinstance(why, bytes) else str(why)
        told = told.replace(MULTILINE.decode(), "", 1)
        raise InvalidSpec(
            f"{pattern!r} cannot be searched for: {told}",
            remedy=f"write a regular expression of RE2 ({SYNTAX}); a backslash takes a character for itself",
            code="bad_pattern",
            errors=[{"path": "grep", "message": told}],
        ) from None

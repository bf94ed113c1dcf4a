"""What is wrong with a document, said for people: a place, a sentence, the nearest known key, the line.

Turns pydantic's errors into the `errors` of an `InvalidSpec`. Called by `document` and `reading`.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from moorage.domain.errors import InvalidSpec

Problem = dict[str, Any]
"""`{path, message, nearest?, line?}`"""

Lines = Mapping[tuple[str | int, ...], int]
"""Place in the document → line of the file, from 1."""


_SHAPES = {
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}
"""pydantic's word for a value of the wrong shape → what it must be."""


def path_text(place: Iterable[str | int]) -> str:
    """`("groups", 0, "runtime")` as `groups[0].runtime`."""
    out = ""
    for part in place:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, if one is near enough."""
    found = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def problems(error: ValidationError, model: type[BaseModel], lines: Lines | None = None) -> list[Problem]:
    """Every error of one document, in the order of the document.

    Args:
        error: what pydantic says.
        model: the document's class, to know which keys a place has.
        lines: where known, the line of each place.
    """
    found = [_problem(one, model, lines or {}) for one in error.errors(include_url=False)]
    return sorted(found, key=lambda p: p.get("line", 0))


def invalid(source: str, errors: Sequence[Problem]) -> InvalidSpec:
    """One error for all of them; the first is in the message, all are in its `errors`."""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return InvalidSpec(
        f"{source} is not valid: {_shown(errors[0])}{more}",
        errors=errors,
        remedy="correct the named places; `moor init` writes a commented spec to compare with",
    )


def _shown(problem: Problem) -> str:
    where = f"line {problem['line']}: " if "line" in problem else ""
    place = f"{problem['path']}: " if problem["path"] else ""
    meant = f"; did you mean {problem['nearest']}?" if "nearest" in problem else ""
    return f"{where}{place}{problem['message']}{meant}"


def _problem(error: Any, model: type[BaseModel], lines: Lines) -> Problem:
    place, known = _walk(error["loc"], model, error["type"] == "extra_forbidden")
    out: Problem = {"path": path_text(place), "message": _sentence(error)}
    if error["type"] == "extra_forbidden":
        near = nearest(str(place[-1]), known)
        hint = "" if near else f"; known here: {', '.join(sorted(known))}"
        out["message"] = f"unknown key {place[-1]}{hint}"
        if near:
            out["nearest"] = path_text((*place[:-1], near))
    elif error["type"] == "literal_error":
        words = [w for w in error["ctx"]["expected"].replace(" or ", ", ").replace("'", "").split(", ") if w]
        near = nearest(str(error["input"]), words)
        if near:
            out["nearest"] = near
    line = _line(place, lines)
    if line is not None:
        out["line"] = line
    return out


def _sentence(error: Any) -> str:
    kind, given = error["type"], error.get("input")
    if kind == "missing":
        return "is required"
    if kind in _SHAPES:
        return f"must be {_SHAPES[kind]}, not {given!r}"
    if kind == "literal_error":
        return f"is {given!r}, must be {error['ctx']['expected']}"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind == "string_type" and isinstance(given, int | float):
        return f"must be text; put {given!r} in quotes"
    message = str(error["msg"])
    return message[0].lower() + message[1:]


def _line(place: Sequence[str | int], lines: Lines) -> int | None:
    """The line of the place, or of the nearest place above it that is in the file."""
    for length in range(len(place), -1, -1):
        line = lines.get(tuple(place[:length]))
        if line is not None:
            return line
    return None


def _walk(loc: Sequence[str | int], model: type[BaseModel], keep_last: bool) -> tuple[list[str | int], set[str]]:
    """The place as the writer of the file sees it (tags of unions left out), and the keys known at its end.

    `keep_last`: the last part is a key of the file although no model knows it.
    """
    at: list[type[BaseModel]] = [model]
    place: list[str | int] = []
    known: set[str] = set(model.model_fields)
    for index, part in enumerate(loc):
        known = {name for one in at for name in one.model_fields}
        if isinstance(part, int) or not at or part in known or (keep_last and index == len(loc) - 1):
            place.append(part)
        if isinstance(part, str) and part in known:
            at = [m for one in at if part in one.model_fields for m in _models(one.model_fields[part].annotation)]
    return place, known


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models inside a field's type (`list[Group]`, `Ready | None`, …)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for inner in get_args(annotation) for found in _models(inner)]

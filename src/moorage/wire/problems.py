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


_BOUNDS = {
    "greater_than_equal": "must be at least {ge}{but}",
    "less_than_equal": "must be at most {le}{but}",
    "greater_than": "must be more than {gt}{but}",
    "less_than": "must be less than {lt}{but}",
    "too_short": "must hold at least {min_length}, not {actual_length}",
    "too_long": "must hold at most {max_length}, not {actual_length}",
    "string_too_short": "must have at least {min_length} characters{but}",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "has other characters than are allowed here ({pattern})",
}
"""pydantic's word for a value out of its bounds → what the bounds are."""

EXAMPLE_KEYS = 3

_SHOWN_MAX = 60
"""Characters of a wrong value that a message shows."""

_SHAPES = {
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of a size that can be stored",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
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


def shown(value: Any) -> str:
    """A wrong value, as a message shows it: in the words of a spec, and cut where it is long."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number too long to show"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def sentence(error: Mapping[str, Any]) -> str:
    """What one of pydantic's errors says, in our words.

    Args:
        error: one of `ValidationError.errors()`, or of FastAPI's; without `input` where the value is not to be shown.
    """
    kind, ctx = error["type"], error.get("ctx") or {}
    but = f", not {shown(error['input'])}" if "input" in error else ""
    if kind == "missing":
        return "is required"
    if kind == "string_type" and isinstance(error.get("input"), int | float):
        return f"must be text; put {shown(error['input'])} in quotes"
    if kind == "too_short" and ctx.get("min_length") == 1:
        return "must not be empty"
    if kind in _SHAPES:
        return f"must be {_SHAPES[kind]}{but}"
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**ctx, but=but)
    if kind == "literal_error":
        return f"must be {ctx['expected']}{but}"
    text = str(error["msg"]).removeprefix("Value error, ")
    return text[:1].lower() + text[1:] if kind != "value_error" else text


def _problem(error: Any, model: type[BaseModel], lines: Lines) -> Problem:
    place, at = _walk(error["loc"], model, error["type"] == "extra_forbidden")
    out: Problem = {"path": path_text(place), "message": sentence(error)}
    if error["type"] == "model_type" and at:
        out["message"] += f": {_example(at[0])}"
    if error["type"] == "extra_forbidden":
        known = {name for one in at for name in one.model_fields}
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


def _line(place: Sequence[str | int], lines: Lines) -> int | None:
    """The line of the place, or of the nearest place above it that is in the file."""
    for length in range(len(place), -1, -1):
        line = lines.get(tuple(place[:length]))
        if line is not None:
            return line
    return None


def _walk(
    loc: Sequence[str | int], model: type[BaseModel], keep_last: bool
) -> tuple[list[str | int], list[type[BaseModel]]]:
    """The place as the writer of the file sees it (tags of unions left out), and the models at its end.

    `keep_last`: the last part is a key of the file although no model knows it; the models are those that it is in.
    """
    at: list[type[BaseModel]] = [model]
    place: list[str | int] = []
    for index, part in enumerate(loc):
        known = {name for one in at for name in one.model_fields}
        if isinstance(part, int) or not at or part in known or (keep_last and index == len(loc) - 1):
            place.append(part)
        if isinstance(part, str) and part in known:
            at = [m for one in at if part in one.model_fields for m in _models(one.model_fields[part].annotation)]
    return place, at


def _example(model: type[BaseModel]) -> str:
    """How such a mapping is written: what it needs first, then the simple ones of the rest."""
    needed = [f"{name}: {name.upper()}" for name, field in model.model_fields.items() if field.is_required()]
    rest = [
        f"{name}: {_written(field.default)}"
        for name, field in model.model_fields.items()
        if isinstance(field.default, str | int | float)
    ]
    return "write it as {" + ", ".join([*needed, *rest][:EXAMPLE_KEYS]) + "}"


def _written(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models inside a field's type (`list[Group]`, `Ready | None`, …)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for inner in get_args(annotation) for found in _models(inner)]

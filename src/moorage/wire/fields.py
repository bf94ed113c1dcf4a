"""Field types that several spec documents share: names, durations, sizes, CPU, argv, text maps.

What a value may look like is decided in `domain.units` and `domain.ids`; this module only ties those to pydantic and
to the published JSON Schema. Called by the document modules beside it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from moorage.domain import ids, limits, units
from moorage.domain.errors import MoorageError


class Part(BaseModel):
    """A part of a spec: unknown keys are refused."""

    model_config = ConfigDict(
        extra="forbid",
        validate_default=False,
        ser_json_inf_nan="constants",
        allow_inf_nan=False,
        defer_build=True,  # as of `Message`: at its first use
    )


def checked(parse: Callable[[Any], Any], kind: str) -> Callable[[Any], Any]:
    """`parse` as a pydantic validator, its own sentence kept as the error."""

    def check(value: Any) -> Any:
        try:
            return parse(value)
        except (ValueError, TypeError, MoorageError) as error:
            text = error.message if isinstance(error, MoorageError) else str(error)
            if isinstance(error, MoorageError) and error.remedy:
                text = f"{text}. {error.remedy}".rstrip(".")
            raise PydanticCustomError(kind, "{text}", {"text": text}) from None

    return check


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a name is text, not {value!r}; put it in quotes")
    ids.check_name(value)
    return value


def _text(value: Any) -> Any:
    """Numbers and truth values as the text that a process sees in its environment."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return value


def _text_map(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_text(key): _text(item) for key, item in value.items()}
    return value


def _argv(value: Any) -> Any:
    if isinstance(value, str):
        raise PydanticCustomError(
            "argv",
            "a command is a list of arguments, not one text: [python3, -m, server]; for a shell: [sh, -c, {shown}]",
            {"shown": repr(value)},
        )
    if isinstance(value, list | tuple):
        return [_text(item) for item in value]
    return value


def _duration(value: Any) -> float:
    seconds = float(units.parse_duration(value))
    if seconds > limits.DURATION_MAX_S:
        longest = units.format_duration(limits.DURATION_MAX_S)
        raise ValueError(f"{value!r} is too long: the longest duration is {longest} (a hundred years)")
    return seconds


def _some_time(value: Any) -> float:
    seconds = _duration(value)
    if seconds == 0:
        raise ValueError(f"{value!r} is no time at all; give a duration above 0, or leave it out for the default")
    return seconds


LABEL_KEY_MAX, LABEL_VALUE_MAX, ANNOTATION_MAX = 253, 63, 65_536
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?")
_LABEL_FORM = "letters, digits, '-', '_', '.' and '/', beginning and ending with a letter or digit"


def _label_key(key: str) -> None:
    if len(key) > LABEL_KEY_MAX or not _LABEL.fullmatch(key):
        raise ValueError(f"{key[:60]!r} cannot be a key here: use 1 to {LABEL_KEY_MAX} {_LABEL_FORM}")


def _labels(value: dict[str, str]) -> dict[str, str]:
    for key, text in value.items():
        _label_key(key)
        if text and (len(text) > LABEL_VALUE_MAX or not _LABEL.fullmatch(text)):
            raise ValueError(
                f"{text[:60]!r} cannot be the value of label {key}: use up to {LABEL_VALUE_MAX} {_LABEL_FORM}; "
                "longer texts go into annotations"
            )
    return value


def _annotations(value: dict[str, str]) -> dict[str, str]:
    for key, text in value.items():
        _label_key(key)
        if len(text) > ANNOTATION_MAX or "\0" in text:
            raise ValueError(f"the value of annotation {key} has more than {ANNOTATION_MAX} characters, or a NUL")
    return value


def _workers(count: int) -> int:
    if count > limits.WORKERS_MAX:
        raise ValueError(f"a run has at most {limits.WORKERS_MAX} workers, not {count}: {limits.SPLIT_SPEC}")
    return count


_DURATION_SCHEMA = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "examples": ["30s", "15m", "1h30m", "100ms"]}],
    "description": "a duration: 30s, 15m, 1h30m, or a number of seconds",
}
_SOME_TIME_SCHEMA = {
    "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "examples": ["30s", "15m", "1h30m"]}],
    "description": "a duration above 0: 30s, 15m, 1h30m, or a number of seconds",
}
_SIZE_SCHEMA = {
    "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "examples": ["512MiB", "80GiB"]}],
    "description": "a size: 512MiB, 80GiB, or a number of bytes",
}
_CPU_SCHEMA = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "examples": ["2", "500m"]}],
    "description": "CPU: 2 (cores) or 500m (thousandths of a core)",
}
_NAME_SCHEMA = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}

Duration = Annotated[
    float,
    BeforeValidator(checked(_duration, "duration")),
    WithJsonSchema(_DURATION_SCHEMA),
]
"""Seconds."""

SomeTime = Annotated[
    float,
    BeforeValidator(checked(_some_time, "duration")),
    WithJsonSchema(_SOME_TIME_SCHEMA),
]
"""Seconds, more than none: of a limit where 0 would mean that nothing may ever run."""

Size = Annotated[
    int, BeforeValidator(checked(lambda v: int(units.parse_size(v)), "size")), WithJsonSchema(_SIZE_SCHEMA)
]
"""Bytes."""

Cpu = Annotated[
    float, BeforeValidator(checked(lambda v: units.parse_cpu(v) / 1000, "cpu")), WithJsonSchema(_CPU_SCHEMA)
]
"""Cores (0.5 for `500m`), so that a normalised document read again means the same."""

Name = Annotated[str, BeforeValidator(checked(_name, "name")), WithJsonSchema(_NAME_SCHEMA)]
TextMap = Annotated[
    dict[str, str],
    BeforeValidator(_text_map),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
]
Labels = Annotated[TextMap, AfterValidator(checked(_labels, "labels"))]
"""What lists are narrowed by."""
Annotations = Annotated[TextMap, AfterValidator(checked(_annotations, "annotations"))]
"""What programs note about an object."""
Argv = Annotated[
    list[str],
    BeforeValidator(_argv),
    WithJsonSchema({"type": "array", "items": {"type": ["string", "number", "boolean"]}}),
]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=0, le=limits.COUNT_MAX)]
AtLeastOne = Annotated[int, Field(ge=1, le=limits.COUNT_MAX)]
Workers = Annotated[
    int,
    Field(ge=1, json_schema_extra={"maximum": limits.WORKERS_MAX}),
    AfterValidator(checked(_workers, "workers")),
]
"""How many workers a run, or one of its groups, has."""
GuardRequests = Annotated[int, Field(ge=1, le=limits.GUARD_REQUESTS_MAX)]
ReplicaCount = Annotated[int, Field(ge=0, le=limits.REPLICAS_MAX)]
GpuTotal = Annotated[int, Field(ge=1, le=limits.GPUS_TOTAL_MAX)]
Priority = Annotated[int, Field(ge=-limits.PRIORITY_MAX, le=limits.PRIORITY_MAX)]
Share = Annotated[float, Field(ge=0, le=1)]
Percent = Annotated[float, Field(ge=0)]

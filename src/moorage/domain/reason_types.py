"""What a reason is made of: its class, its entry in the catalogue, the reason itself, and how a sentence is rendered.

The catalogue is data over these types; `reasons.py` stands above both and builds checked reasons.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from string import Formatter
from typing import Any

from moorage.domain.units import format_duration, show_size
from moorage.domain.written import written_once


class ReasonClass(StrEnum):
    """What kind of answer a reason is."""

    WAITING = "waiting"
    IMPOSSIBLE = "impossible"
    FAILED = "failed"
    BY_PERSON = "by_person"
    PROGRESS = "progress"


@dataclass(frozen=True, slots=True)
class ReasonType:
    """One entry of the catalogue.

    Args:
        code: stable code.
        klass: what kind of answer it is.
        sentence: a `str.format` template over the params.
        params: names of required params.
        optional: names of params that may be absent.
        advice: what to do about it, or None where there is nothing to do.
        progress_when: a param and the value of it that make the reason one of progress, without advice (`exited`
            with code 0).
    """

    code: str
    klass: ReasonClass
    sentence: str
    params: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    advice: str | None = None
    progress_when: tuple[str, Any] | None = None

    def is_progress(self, params: Mapping[str, Any]) -> bool:
        """Whether these params make it a reason of progress, whatever its class."""
        return self.progress_when is not None and params.get(self.progress_when[0]) == self.progress_when[1]


@written_once
class Reason:
    """A code with its params and the sentence made of them."""

    code: str
    klass: ReasonClass
    message: str
    params: Mapping[str, Any] = field(default_factory=dict)
    advice: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """The API's reason object."""
        out: dict[str, Any] = {
            "code": self.code,
            "class": str(self.klass),
            "message": self.message,
            "params": dict(self.params),
        }
        if self.advice:
            out["advice"] = self.advice
        return out

    @staticmethod
    def from_wire(data: Mapping[str, Any]) -> "Reason":
        """The reverse of `to_wire`; also what the store keeps."""
        return Reason(
            code=data["code"],
            klass=ReasonClass(data["class"]),
            message=data["message"],
            params=dict(data.get("params") or {}),
            advice=data.get("advice"),
        )


def render(entry: ReasonType, params: Mapping[str, Any]) -> str:
    """The sentence of a reason; an absent optional param is shown as nothing, in its `[...]` bracket or alone.

    A part of the template in square brackets is dropped when a param inside it is absent. A field may say how its
    number is shown: `{d:duration}` (seconds), `{done:size}` (bytes), `{at:time}` (seconds since the epoch, in UTC),
    `{need:cpu}` (thousandths of a core, shown in cores). A value that is already text is shown as it is, and a list
    with commas.
    """
    out: list[str] = []
    for index, part in enumerate(entry.sentence.replace("]", "[").split("[")):
        if index % 2 == 0 or all(name in params for name in _names(part)):
            out.append(_SENTENCES.vformat(part, (), _Lenient(params)))
    return "".join(out)


class _Lenient(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return ""


class _Sentences(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        """One param as a person reads it."""
        if isinstance(value, str):
            return value
        if format_spec == "duration":
            return format_duration(max(0.0, value))
        if format_spec == "size":
            return show_size(value)
        if format_spec == "cpu":
            return f"{value / 1000:g}"
        if format_spec == "time":
            return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        if isinstance(value, list | tuple):
            return ", ".join(str(item) for item in value) or "none"
        return str(super().format_field(value, format_spec))


_SENTENCES = _Sentences()


def _names(template: str) -> list[str]:
    return [name.split(".")[0].split("[")[0] for _, name, _, _ in Formatter().parse(template) if name]

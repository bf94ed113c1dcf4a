"""Reasons: why a thing is as it is. A closed catalogue of codes; programs match on codes, never on text.

`reason("exited", code=1)` builds a checked `Reason`: an unknown code or a missing or unknown param is a defect and
raises at once. The catalogue itself is in `catalogue.py`, as data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


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
    """

    code: str
    klass: ReasonClass
    sentence: str
    params: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    advice: str | None = None


@dataclass(frozen=True, slots=True)
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


def reason(code: str, /, **params: Any) -> Reason:
    """A reason of the catalogue.

    Args:
        code: a code of the catalogue.
        params: exactly its required params, and any of its optional ones. A value of None counts as absent.

    Raises:
        KeyError: the catalogue has no such code.
        TypeError: a param is missing or unknown.
    """
    from moorage.domain.catalogue import CATALOGUE  # the catalogue is data built on this module

    entry = CATALOGUE[code]
    given = {k: v for k, v in params.items() if v is not None}
    missing = [p for p in entry.params if p not in given]
    unknown = [p for p in given if p not in entry.params and p not in entry.optional]
    if missing or unknown:
        raise TypeError(f"reason {code}: missing {missing}, unknown {unknown}")
    return Reason(code, entry.klass, render(entry, given), given, entry.advice)


def render(entry: ReasonType, params: Mapping[str, Any]) -> str:
    """The sentence of a reason; an absent optional param is shown as nothing, in its `[...]` bracket or alone.

    A part of the template in square brackets is dropped when a param inside it is absent.
    """
    out: list[str] = []
    for index, part in enumerate(entry.sentence.replace("]", "[").split("[")):
        if index % 2 == 0:
            out.append(part.format_map(_Lenient(params)))
        elif all(name in params for name in _names(part)):
            out.append(part.format_map(_Lenient(params)))
    return "".join(out)


class _Lenient(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return ""


def _names(template: str) -> list[str]:
    from string import Formatter

    return [name.split(".")[0].split("[")[0] for _, name, _, _ in Formatter().parse(template) if name]

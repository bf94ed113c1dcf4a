"""The settings that only the gateway itself uses: limits, timeouts, who it says it is.

Here: for each how it is written, from the fields of `moorage.gateway.config` and the bounds that are told there, so
that a number has its setting as soon as it has its bounds. Not here: address, TLS, processes and who may ask, which
others need too (`settings`, which takes these into its own). A name here is `gateway_` and that of the field.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from moorage.app import parsing
from moorage.domain.units import format_duration, format_size, parse_duration, parse_size
from moorage.gateway.config import ACCELERATORS, ID_MAX, SPANS, GatewayConfig, is_id

PREFIX = "gateway_"
_ELSEWHERE = frozenset(("processes", "hang_after_s"))
_BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Own:
    """How one of them is written.

    Args:
        default: in the form in which it is written.
        read: that form in, the value of the gateway's configuration out; ValueError.
        show: the other way.
        allowed: what may be written, in words.
    """

    default: str
    read: Callable[[str], Any]
    show: Callable[[Any], str]
    allowed: str


def of_config(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What these settings add to a gateway's configuration: those that differ from its defaults.

    Args:
        chosen: by the settings' names.
    """
    found = {name: chosen[PREFIX + name] for name in (*SPANS, "forwarded", "accelerators") if PREFIX + name in OWN}
    return {name: value for name, value in found.items() if value != _DEFAULTS[name]}


def _flag(raw: str) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if raw.lower() not in words:
        raise ValueError("neither true nor false")
    return words[raw.lower()]


def _accelerators(raw: str) -> str:
    if raw.lower() not in ACCELERATORS:
        raise ValueError("not one of these words")
    return raw.lower()


def _name(raw: str) -> str | None:
    if raw and not is_id(raw):
        raise ValueError("not a plain name")
    return raw or None


def _url(raw: str) -> str | None:
    return parsing.url(raw) if raw else None


def _count(raw: str) -> int:
    if not raw.isascii() or not raw.isdigit():
        raise ValueError("not a whole number")
    return int(raw)


def _size(value: float) -> str:
    return format_size(int(value))


def _number(name: str) -> Own:
    span, default = SPANS[name], _DEFAULTS[name]
    read: Callable[[str], Any]
    show: Callable[[Any], str]
    if _BYTES in name:
        read, show, what = parse_size, _size, "a size"
    elif span.whole:
        read, show, what = _count, str, "a whole number"
    else:
        read, show, what = parse_duration, format_duration, "a duration"

    def checked(raw: str) -> Any:
        value = read(raw)
        if not span.holds(value):
            raise ValueError(f"not from {show(span.least)} to {show(span.most)}")
        return value

    allowed = f"{what} from {show(span.least)} to {show(span.most)}, such as {show(default)}"
    return Own(show(default), checked, show, allowed)


_DEFAULTS: Mapping[str, Any] = {f.name: f.default for f in fields(GatewayConfig) if f.default is not MISSING}
OWN: Mapping[str, Own] = {
    "gateway_id": Own(
        "",
        _name,
        lambda value: value or "",
        f"letters, digits, dashes, dots and underscores, at most {ID_MAX}; nothing: the machine's name",
    ),
    "gateway_advertise": Own(
        "", _url, lambda value: value or "", "http://HOST[:PORT] or https://HOST[:PORT], under which clients reach it"
    ),
    **{PREFIX + name: _number(name) for name in SPANS if name not in _ELSEWHERE},
    "gateway_forwarded": Own("false", _flag, lambda value: str(value).lower(), "true or false"),
    "gateway_accelerators": Own(
        "auto", _accelerators, str, f"{', '.join(ACCELERATORS)}: compiled forms of its hot path"
    ),
}
"""By their names, in the order in which they are shown."""

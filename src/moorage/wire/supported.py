"""What a valid spec may ask for that the control plane of this version does not have yet.

Refused when it is submitted, never silently skipped. Each rule is one row: where it is in the document, when it
applies, and what is not there. Called by the API's admission and by `plan`; a feature that arrives takes its row away.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Rule:
    """`path` is not available where `asked` holds for the value there; `why`: it can be had nowhere, for this cause."""

    path: str
    asked: Callable[[Any], bool]
    what: str
    why: str = ""


def _other_than(usual: str) -> Callable[[Any], bool]:
    return lambda value: value != usual


def _asked(value: Any) -> bool:
    """An empty allow-list asks for the most: no connection at all."""
    return value is not False


def _is_path(value: Any) -> bool:
    return isinstance(value, str)


_UNREAD = (
    "is the path of a file, which is read where the spec is applied (`moor apply`, the SDK); what a server takes "
    "is its requests, a list of {path, body}"
)

_ENFORCED = (
    _Rule("outbound", _asked, "", "no machine can enforce an outbound policy yet; unenforced it means nothing"),
    _Rule("sandbox", _asked, "", "no machine can run sandboxed work yet"),
    _Rule("tool_gateway", _asked, "", "no machine has a tool gateway for its workers yet"),
)
"""What a machine would have to enforce: asked for and not enforced is worse than not asked for."""

_FABRIC = _Rule(
    "placement.topology.fabric",
    bool,
    "",
    "no machine reports its fabrics yet; label the machines that have it and select them, or use topology.keep: rack",
)
"""The scheduler waits for a fabric as long as it is told to, which would be in vain everywhere."""

_DEPLOYMENT = (
    *_ENFORCED,
    _Rule("provider", _other_than("fleet"), "providers other than fleet are"),
    _FABRIC,
    _Rule("rollout.guard.synthetic", _is_path, "", _UNREAD),
)


_RUN = (
    *_ENFORCED,
    _Rule("provider", _other_than("fleet"), "providers other than fleet are"),
    _FABRIC,
)


_RULES: Mapping[str, tuple[_Rule, ...]] = {"Deployment": _DEPLOYMENT, "Run": _RUN}
"""Of an endpoint or a drive everything is available."""


def unsupported(normalised: Document) -> list[dict[str, str]]:
    """What of it this version refuses: `{path, message}` for each place; empty when all of it is available.

    Args:
        normalised: a document as `spec.normalise` gives it.
    """
    return list(_refusals(_RULES.get(str(normalised.get("kind")), ()), normalised))


def _refusals(rules: tuple[_Rule, ...], document: Document) -> Iterator[dict[str, str]]:
    for rule in rules:
        value = _at(document, rule.path)
        if value is not None and rule.asked(value):
            yield {"path": rule.path, "message": rule.why or f"{rule.what} not available in this version"}


def _at(document: Document, path: str) -> Any:
    value: Any = document
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value

"""Where two documents differ. Called by `commands`, and by plans."""

from collections.abc import Mapping
from typing import Any


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> list[str]:
    """Dotted paths whose values differ."""
    out: list[str] = []
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            out += changed_fields(old, new, f"{path}{key}.")
        elif _plain(old) != _plain(new):
            out.append(f"{path}{key}")
    return out


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value

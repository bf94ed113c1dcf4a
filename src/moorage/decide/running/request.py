"""What a worker asks of a machine, made from the `resources` of a spec. Called by whoever makes workers."""

from collections.abc import Mapping
from typing import Any


def request_of(resources: Mapping[str, Any] | None) -> dict[str, Any]:
    """The request kept on a worker's row.

    Args:
        resources: `resources` of a normalised spec: {cpu in cores, memory in bytes, gpus: {count, vendor, models,
            memory, healthy_only}}; None asks for nothing in particular.
    """
    asked = dict(resources or {})
    gpus = dict(asked.get("gpus") or {})
    return {
        "cpu_milli": round(float(asked.get("cpu") or 0) * 1000),
        "memory_bytes": int(asked.get("memory") or 0),
        "gpus": {
            "count": int(gpus.get("count") or 0),
            "vendor": gpus.get("vendor"),
            "models": list(gpus.get("models") or ()),
            "memory_bytes": int(gpus.get("memory") or 0),
            "healthy_only": bool(gpus.get("healthy_only")),
        },
    }

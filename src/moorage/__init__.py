"""Moorage keeps model servers and GPU jobs alive on machines you own, and can always say why.

    import moorage

    with moorage.Client() as client:
        client.deployments.apply("gemma.yaml").wait_for_active(timeout=600)

Names are loaded when first used, so that `import moorage` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage.client import AsyncClient, Client
    from moorage.domain.errors import MoorageError, WaitFailed, WaitTimeout
    from moorage.wire.spec import Deployment, Drive, Endpoint, Run

__all__ = [
    "AsyncClient",
    "Client",
    "Deployment",
    "Drive",
    "Endpoint",
    "MoorageError",
    "Run",
    "WaitFailed",
    "WaitTimeout",
]

_HOMES = {
    "AsyncClient": "moorage.client",
    "Client": "moorage.client",
    "MoorageError": "moorage.domain.errors",
    "WaitFailed": "moorage.domain.errors",
    "WaitTimeout": "moorage.domain.errors",
    "Deployment": "moorage.wire.spec",
    "Drive": "moorage.wire.spec",
    "Endpoint": "moorage.wire.spec",
    "Run": "moorage.wire.spec",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Runners: what starts, watches and ends model servers and jobs on one machine.

    from moorage.runners import ModelRunner, ModelSpec

    async with ModelRunner() as runner:
        await runner.start("gemma", ModelSpec(command=["llama-server", "--port", "{port}", "-m", "gemma.gguf"]))
        answer = await runner.ainvoke("gemma", prompt="hi")

`process.py` with its shim and `containers/` execute things (`port.py` says how they are spoken to); `library/` is the
public runner on top of them, and `sync.py` the same for programs without an event loop. The agent uses the hosts as its
hands and never the library. Nothing here knows the control plane. Names are loaded when first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moorage.runners.library.runner import ModelRunner
    from moorage.runners.library.settings import RunnerSettings
    from moorage.runners.library.spec import ModelSpec
    from moorage.runners.library.views import Failure, ModelInfo, StateChange
    from moorage.runners.logfile import LogSlice
    from moorage.runners.port import MountIntent, RegistryAuth

__all__ = [
    "Failure",
    "LogSlice",
    "ModelInfo",
    "ModelRunner",
    "ModelSpec",
    "MountIntent",
    "RegistryAuth",
    "RunnerSettings",
    "StateChange",
]

_HOMES = {
    "Failure": "library.views",
    "LogSlice": "logfile",
    "ModelInfo": "library.views",
    "ModelRunner": "library.runner",
    "ModelSpec": "library.spec",
    "MountIntent": "port",
    "RegistryAuth": "port",
    "RunnerSettings": "library.settings",
    "StateChange": "library.views",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

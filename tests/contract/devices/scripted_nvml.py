"""NVIDIA's library with a scripted driver below it: the real names, constants and errors, no GPU."""

from types import SimpleNamespace
from typing import Any

import pynvml


class ScriptedNvml:
    """As the module `pynvml`, for what is not scripted too."""

    def __init__(self, *names: str, absent: bool = False) -> None:
        self.gpus = [
            SimpleNamespace(
                name=name,
                uuid=f"GPU-{n}",
                total=80 << 30,
                used=3 << 20,
                uses=[],
                rows=(0, 0, 0, 0),
                ecc=0,
                mig=0,
                fails=None,
            )
            for n, name in enumerate(names)
        ]
        self.absent = absent
        self.events: list[tuple[int, int]] = []
        self.inits = 0
        self.open = False
        self.broken: int | None = None
        self.unsupported: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml") and name[4:5].isupper() and callable(getattr(pynvml, name, None)):
            raise AssertionError(f"{name} is not scripted")
        return getattr(pynvml, name)

    def _said(self, question: str, answer: Any) -> Any:
        if not self.open:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        if self.broken is not None:
            raise pynvml.NVMLError(self.broken)
        if question in self.unsupported:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return answer

    def _of(self, handle: Any, question: str, answer: Any) -> Any:
        if handle.fails is not None:
            raise pynvml.NVMLError(handle.fails)
        return self._said(question, answer)

    def nvmlInit(self) -> None:
        if self.absent:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
        self.inits += 1
        self.open = True

    def nvmlShutdown(self) -> None:
        self._said("shutdown", None)
        self.open = False

    def nvmlDeviceGetCount(self) -> int:
        return int(self._said("count", len(self.gpus)))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return self._of(self.gpus[index], "handle", self.gpus[index])

    def nvmlDeviceGetIndex(self, handle: Any) -> int:
        return self.gpus.index(handle)

    def nvmlDeviceGetName(self, handle: Any) -> str:
        return str(self._of(handle, "name", handle.name))

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return str(self._of(handle, "uuid", handle.uuid))

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        question = "memory" if version is None else "memory_v2"
        return self._of(handle, question, SimpleNamespace(total=handle.total, used=handle.used))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
        found = [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in handle.uses]
        return list(self._of(handle, "processes", found))

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: Any) -> list[Any]:
        return list(self._of(handle, "processes", []))

    def nvmlDeviceGetRemappedRows(self, handle: Any) -> Any:
        return self._of(handle, "rows", handle.rows)

    def nvmlDeviceGetRetiredPagesPendingStatus(self, handle: Any) -> Any:
        return self._of(handle, "pages", 0)

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, since: int) -> Any:
        assert (kind, since) == (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return self._of(handle, "ecc", handle.ecc)

    def nvmlDeviceGetMigMode(self, handle: Any) -> Any:
        return self._of(handle, "mig", [handle.mig, handle.mig])

    def nvmlEventSetCreate(self) -> Any:
        return self._said("events", object())

    def nvmlEventSetFree(self, events: Any) -> None:
        self._said("events", None)

    def nvmlDeviceRegisterEvents(self, handle: Any, types: int, events: Any) -> None:
        assert types == pynvml.nvmlEventTypeXidCriticalError
        self._of(handle, "events", None)

    def nvmlEventSetWait_v2(self, events: Any, wait_ms: int) -> Any:
        assert wait_ms == 0, "a look must not wait for events"
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        index, xid = self.events.pop(0)
        return SimpleNamespace(device=self.gpus[index], eventData=xid)

"""NVIDIA's GPUs through the driver's own library (NVML), by way of nvidia-ml-py.

What makes a GPU faulty, and what puts it at risk, is NVIDIA's own classification (its pages on memory error management
and on Xid errors): faulty is what calls for a reset or a new board; at risk is what went well this time. Errors of
programs (Xid 13, 31, 43 and the like) say nothing about the GPU. An Xid is an event, told once: what it says is
remembered until the driver is opened again, which an agent that starts anew does.
"""

from collections.abc import Callable
from typing import Any

from moorage.devices.models import short_model
from moorage.devices.port import Device, DevicesUnavailable, Health, NoDriver, Reading, Use, worst

XIDS = {
    48: (Health.FAULTY, "Xid 48: an uncorrectable memory error"),
    62: (Health.FAULTY, "Xid 62: its microcontroller halted"),
    63: (Health.AT_RISK, "Xid 63: a memory row is to be remapped at the next reset"),
    64: (Health.FAULTY, "Xid 64: a memory row could not be remapped"),
    74: (Health.FAULTY, "Xid 74: an NVLink error"),
    79: (Health.FAULTY, "Xid 79: it fell off the bus"),
    92: (Health.AT_RISK, "Xid 92: a high rate of single-bit memory errors"),
    94: (Health.AT_RISK, "Xid 94: a contained memory error"),
    95: (Health.FAULTY, "Xid 95: an uncontained memory error"),
    119: (Health.FAULTY, "Xid 119: its system processor does not answer"),
    120: (Health.FAULTY, "Xid 120: its system processor failed"),
}
EVENTS_MAX = 256
"""Events taken up in one look; a storm of them says nothing new."""


def load_nvml() -> Any:
    """The library.

    Raises:
        NoDriver: nvidia-ml-py is not installed.
    """
    try:
        import pynvml
    except ImportError:
        raise NoDriver("nvidia-ml-py is not installed", remedy="install moorage[gpu] to use NVIDIA GPUs") from None
    return pynvml


class NvidiaDevices:
    """One NVML session, opened at the first look and again after it broke.

    Args:
        load: gives the library, nvidia-ml-py's module.
    """

    def __init__(self, load: Callable[[], Any] = load_nvml) -> None:
        self._load = load
        self._nvml: Any = None
        self._events: Any = None
        self._watched: set[int] = set()
        self._seen_xids: dict[int, dict[int, tuple[Health, str]]] = {}
        """by index: what its Xids said, by number"""
        self._known: dict[int, Device] = {}

    def read(self) -> tuple[Reading, ...]:
        """Every GPU that the driver counts."""
        nvml = self._open()
        try:
            count = nvml.nvmlDeviceGetCount()
            self._watch(count)
            self._take_events()
            return tuple(self._reading(index) for index in range(count))
        except nvml.NVMLError as cause:
            self.close()
            raise DevicesUnavailable(f"NVIDIA's driver does not answer: {cause}") from cause

    def close(self) -> None:
        """End the session."""
        nvml, self._nvml = self._nvml, None
        self._watched.clear()
        self._seen_xids.clear()
        if nvml is None:
            return
        try:
            if self._events is not None:
                nvml.nvmlEventSetFree(self._events)
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            return  # it is broken, which is why it is closed
        finally:
            self._events = None

    def _open(self) -> Any:
        if self._nvml is not None:
            return self._nvml
        nvml = self._load()
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as cause:
            absent = (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED)
            if cause.value in absent:
                raise NoDriver(f"NVIDIA's driver is not there: {cause}") from None
            raise DevicesUnavailable(f"NVIDIA's driver cannot be opened: {cause}") from cause
        self._nvml = nvml
        self._events = self._ask(nvml.nvmlEventSetCreate)
        return nvml

    # Events

    def _watch(self, count: int) -> None:
        """Be told of the critical errors of every GPU; one that cannot be watched is looked at all the same."""
        nvml = self._nvml
        for index in range(count):
            if self._events is None or index in self._watched:
                continue
            self._watched.add(index)
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)
            except nvml.NVMLError:
                continue  # the look itself meets the same fault, and tells it

    def _take_events(self) -> None:
        nvml = self._nvml
        for _ in range(EVENTS_MAX if self._events is not None else 0):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
            except nvml.NVMLError:
                return  # a time-out: there is none (left)
            said = XIDS.get(int(event.eventData))
            index = self._ask(nvml.nvmlDeviceGetIndex, event.device) if said is not None else None
            if said is not None and index is not None:
                self._seen_xids.setdefault(int(index), {})[int(event.eventData)] = said

    # One GPU

    def _reading(self, index: int) -> Reading:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            device = self._known[index] = self._device(index, handle)
            health, fault = worst([*self._seen_xids.get(index, {}).values(), *self._findings(handle)])
            return Reading(device, health, fault, self._used(handle), self._uses(handle))
        except nvml.NVMLError as cause:
            if cause.value == nvml.NVML_ERROR_UNINITIALIZED:
                raise
            unknown = Device(index, "", "nvidia", "unknown", "unknown", 0)
            said = [*self._seen_xids.get(index, {}).values(), (Health.FAULTY, f"the driver says: {cause}")]
            return Reading(self._known.get(index, unknown), *worst(said))

    def _device(self, index: int, handle: Any) -> Device:
        nvml = self._nvml
        name = _text(nvml.nvmlDeviceGetName(handle))
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        total = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
        return Device(index, uuid, "nvidia", short_model(name), name, total)

    def _findings(self, handle: Any) -> list[tuple[Health, str]]:
        nvml, found = self._nvml, []
        rows = self._ask(nvml.nvmlDeviceGetRemappedRows, handle)
        if rows is not None and rows[3]:
            found.append((Health.FAULTY, "memory rows could not be remapped"))
        if rows is not None and rows[2]:
            found.append((Health.AT_RISK, "memory rows are to be remapped at the next reset"))
        if self._ask(nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle):
            found.append((Health.AT_RISK, "memory pages are to be retired at the next reset"))
        kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        errors = self._ask(nvml.nvmlDeviceGetTotalEccErrors, handle, kind, since)
        if errors:
            found.append((Health.AT_RISK, f"{errors} uncorrected memory errors since the driver was loaded"))
        mig = self._ask(nvml.nvmlDeviceGetMigMode, handle)
        if mig is not None and mig[0]:
            found.append((Health.FAULTY, "it is split into MIG instances, and only whole GPUs are given"))
        return found

    def _used(self, handle: Any) -> int | None:
        """Memory taken, without what the driver keeps for itself; older drivers do not tell the two apart."""
        info = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle, self._nvml.nvmlMemory_v2)
        return None if info is None else int(info.used)

    def _uses(self, handle: Any) -> tuple[Use, ...] | None:
        nvml = self._nvml
        listed = [self._ask(ask, handle) for ask in _listings(nvml)]
        if any(one is None for one in listed):
            return None
        uses: dict[int, int | None] = {}
        for process in (process for one in listed for process in one):
            used, before = process.usedGpuMemory, uses.get(int(process.pid))
            uses[int(process.pid)] = before if used is None else max(int(used), before or 0)
        return tuple(Use(number, used) for number, used in sorted(uses.items()))

    def _ask(self, question: Callable[..., Any], *args: Any) -> Any:
        """An answer that not every board, driver or user gets; None then."""
        nvml = self._nvml
        try:
            return question(*args)
        except nvml.NVMLError as cause:
            if cause.value in _unanswerable(nvml):
                return None
            raise


def _listings(nvml: Any) -> tuple[Callable[..., Any], ...]:
    return nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses


def _unanswerable(nvml: Any) -> tuple[int, ...]:
    return (
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)

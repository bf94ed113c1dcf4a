"""What this machine has: CPUs this process may use, memory, and the GPUs that were seen."""

import os
from pathlib import Path

from moorage.wire.agent import Capacity
from moorage.wire.gpus import Gpu


def capacity(gpus: tuple[Gpu, ...]) -> Capacity:
    """CPU in milli, memory in bytes, and these GPUs."""
    return Capacity(
        cpu_milli=len(os.sched_getaffinity(0)) * 1000,
        memory_bytes=memory_bytes(Path("/proc/meminfo").read_text()),
        gpus=gpus,
    )


def memory_bytes(meminfo: str) -> int:
    """MemTotal of /proc/meminfo."""
    line = next(line for line in meminfo.splitlines() if line.startswith("MemTotal:"))
    return int(line.split()[1]) * 1024

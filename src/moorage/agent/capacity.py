"""What this machine has: CPUs this process may use, memory, declared GPUs."""

import os
from pathlib import Path

from moorage.agent.config import AgentConfig
from moorage.wire.agent import Capacity


def capacity(config: AgentConfig) -> Capacity:
    """CPU in milli, memory in bytes, GPUs as declared."""
    return Capacity(
        cpu_milli=len(os.sched_getaffinity(0)) * 1000,
        memory_bytes=memory_bytes(Path("/proc/meminfo").read_text()),
        gpus=config.gpus,
    )


def memory_bytes(meminfo: str) -> int:
    """MemTotal of /proc/meminfo."""
    line = next(line for line in meminfo.splitlines() if line.startswith("MemTotal:"))
    return int(line.split()[1]) * 1024

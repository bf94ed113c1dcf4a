"""From an intent to what each engine wants to be told at creation. Pure.

Everything is set: the engine's own restart is off (one policy acts, and it is not the engine's), its log is bounded,
the machine's network is used, and labels say whose the container is. The command, where there is one, replaces the
image's entrypoint too, so that it is exactly what runs.
"""

import re
import signal
from collections.abc import Mapping
from typing import Any

from moorage.runners.containers.api import LABEL, LABEL_VALUE, EngineName
from moorage.runners.identity import COOKIE_VARIABLE
from moorage.runners.port import ContainerIntent, Labels, LaunchIntent

OWNER, IDENTITY, EPOCH = "moorage.owner", "moorage.identity", "moorage.epoch"
DIGEST, COOKIE, IMAGE = "moorage.digest", "moorage.cookie", "moorage.image"
LOG_BYTES, LOG_FILES = 16 << 20, 2
"""The engine's own copy of the output; ours is bounded alike."""
CPU_PERIOD_US = 100_000
GPU_DEVICE = "nvidia.com/gpu"
NAME_MAX = 120


def container_name(labels: Labels, cookie: str) -> str:
    """Alike for each attempt of the same thing, so that the engine itself refuses a second one beside the first."""
    wanted = labels.identity or cookie[:16]
    return f"moorage-{re.sub(r'[^a-zA-Z0-9_.-]', '-', wanted)}"[:NAME_MAX]


def labels_of(intent: LaunchIntent) -> dict[str, str]:
    """As the container carries them."""
    given = intent.labels
    image = intent.container.image if intent.container else ""
    return {
        LABEL: LABEL_VALUE,
        OWNER: given.owner,
        IDENTITY: given.identity,
        EPOCH: str(given.epoch),
        DIGEST: given.digest,
        COOKIE: intent.cookie,
        IMAGE: image,
    }


def creation(engine: EngineName, intent: LaunchIntent, wanted: ContainerIntent, image: str) -> dict[str, Any]:
    """The body of the engine's create call.

    Args:
        engine: whose.
        intent, wanted: what to run.
        image: id of the image, so that nothing is resolved a second time.
    """
    env = {**intent.env, COOKIE_VARIABLE: intent.cookie}
    build = _podman if engine == "podman" else _docker
    return build(intent, wanted, image, env)


def _docker(intent: LaunchIntent, wanted: ContainerIntent, image: str, env: Mapping[str, str]) -> dict[str, Any]:
    host: dict[str, Any] = {
        "NetworkMode": "host",
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": str(LOG_BYTES), "max-file": str(LOG_FILES)}},
        "Mounts": [
            {"Type": "bind", "Source": m.source, "Target": m.target, "ReadOnly": m.read_only} for m in wanted.mounts
        ],
    }
    if wanted.memory_bytes:
        host |= {"Memory": wanted.memory_bytes, "MemorySwap": wanted.memory_bytes}
    if wanted.cpu_milli:
        host["NanoCpus"] = wanted.cpu_milli * 1_000_000
    if wanted.cpu_share_milli:
        host["CpuShares"] = _shares(wanted.cpu_share_milli)
    if wanted.gpus:
        ids = [str(index) for index in wanted.gpus]
        host["DeviceRequests"] = [{"Driver": "nvidia", "DeviceIDs": ids, "Capabilities": [["gpu"]]}]
    body: dict[str, Any] = {
        "Image": image,
        "Env": [f"{name}={value}" for name, value in env.items()],
        "Labels": labels_of(intent),
        "StopSignal": wanted.stop_signal,
        "HostConfig": host,
    }
    if intent.argv:
        body |= {"Entrypoint": list(intent.argv), "Cmd": []}
    if intent.workdir:
        body["WorkingDir"] = intent.workdir
    return body


def _podman(intent: LaunchIntent, wanted: ContainerIntent, image: str, env: Mapping[str, str]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if wanted.memory_bytes:
        limits["memory"] = {"limit": wanted.memory_bytes, "swap": wanted.memory_bytes}
    if wanted.cpu_milli:
        limits["cpu"] = {"period": CPU_PERIOD_US, "quota": wanted.cpu_milli * CPU_PERIOD_US // 1000}
    if wanted.cpu_share_milli:
        limits["cpu"] = {**limits.get("cpu", {}), "shares": _shares(wanted.cpu_share_milli)}
    body: dict[str, Any] = {
        "image": image,
        "env": dict(env),
        "labels": labels_of(intent),
        "netns": {"nsmode": "host"},
        "restart_policy": "no",
        "stop_signal": int(signal.Signals[wanted.stop_signal]),
        "log_configuration": {"driver": "k8s-file", "size": LOG_BYTES},
        "mounts": [
            {
                "type": "bind",
                "source": m.source,
                "destination": m.target,
                "options": ["rbind", "ro" if m.read_only else "rw"],
            }
            for m in wanted.mounts
        ],
        "devices": [{"path": f"{GPU_DEVICE}={index}"} for index in wanted.gpus],
        "resource_limits": limits,
    }
    if intent.argv:
        body |= {"entrypoint": list(intent.argv), "command": []}
    if intent.workdir:
        body["work_dir"] = intent.workdir
    return body


def _shares(milli: int) -> int:
    """1024 for a core, and never below what the kernel takes."""
    return max(2, milli * 1024 // 1000)

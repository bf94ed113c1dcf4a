"""How a shim gets its order, and how it makes certain that nobody else lives in the same directory."""

import os


def take_lock(folder: str) -> bool:
    """Hold `lock` until this process ends. False when another holds it or the directory was fenced off."""
    fd = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.lockf(fd, os.F_TLOCK, 0)
    except OSError:
        return False
    return not os.path.exists(f"{folder}/fenced")


def read_order() -> str:
    """The line from the agent; empty when it went away without one."""
    raw = b""
    while not raw.endswith(b"\n"):
        part = os.read(0, 4096)
        if not part:
            return ""
        raw += part
    return raw[:-1].decode("utf-8", "surrogateescape")

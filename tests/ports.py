"""Ports for tests that run beside each other: not among those that the kernel gives out, each for one process only.

A port that was bound to 0 and closed again may be anybody's before the server under test binds it. These lie under the
kernel's own range, and who has some of them holds a name for them (an abstract Unix socket) until that process ends, so
that no other worker of the test run, and no other test run on this machine, is given them.
"""

import random
import socket

FIRST, LAST = 19_000, 31_999  # 18000 and up are the runner library's own defaults; 32768 and up the kernel's
BLOCK = 10

_held: list[socket.socket] = []
_rest: list[int] = []


def free_range(count: int) -> list[int]:
    """First and last of that many consecutive ports, of this process alone until it ends."""
    blocks = -(-count // BLOCK)
    starts = list(range(FIRST, LAST + 1 - blocks * BLOCK, BLOCK))
    random.shuffle(starts)
    for first in starts:
        if _take(first, blocks):
            return [first, first + count - 1]
    raise AssertionError(f"no {count} free ports in a row between {FIRST} and {LAST}")


def free_ports(count: int) -> list[int]:
    """That many ports, of this process alone until it ends."""
    while len(_rest) < count:
        first, last = free_range(BLOCK)
        _rest.extend(range(first, last + 1))
    given, _rest[:count] = _rest[:count], []
    return given


def _take(first: int, blocks: int) -> bool:
    taken: list[socket.socket] = []
    for start in range(first, first + blocks * BLOCK, BLOCK):
        name = socket.socket(socket.AF_UNIX)
        taken.append(name)
        try:
            name.bind(f"\0moorage-test-ports-{start}")
        except OSError:
            break
    else:
        if all(_free(port) for port in range(first, first + blocks * BLOCK)):
            _held.extend(taken)
            return True
    for name in taken:
        name.close()
    return False


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True

"""`python -m moorage.sources.child`: huggingface_hub at work, in a process that can be ended at any point.

An order comes on standard input (`messages`); that its other end closes means that whoever asked is gone, and this ends
too. Where the hub is, which proxy leads there and what this machine may read are huggingface_hub's own settings
(HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_HUB_OFFLINE and others), inherited. Files are written as `PATH.part`, go on where
they ended, are checked against what the hub names, and take their name when they are whole and on disk.
"""

import errno
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any

from moorage.sources.messages import CHECK, FETCH, Order, Plan

MAKE_ROOM = "evict one (`moor cache ls`), or give the disk more room"


class Failed(Exception):
    """It cannot be done.

    Args:
        kind: see `messages.Kind`.
        message: for people.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def main() -> int:
    """Carry out one order; 0 when it is done."""
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    order = Order(**json.loads(sys.stdin.readline() or "{}"))
    threading.Thread(target=_listen, args=(said,), daemon=True).start()
    try:
        _carry_out(order, said)
    except Exception as cause:
        kind, message = _meaning(cause)
        say(error={"kind": kind, "message": message})
        return 1
    return 0


def say(**what: Any) -> None:
    """One line to whoever asked."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _listen(said: "queue.SimpleQueue[str]") -> None:
    for line in _lines():
        said.put(line)
    os._exit(3)


def _lines() -> Iterator[str]:
    while line := sys.stdin.readline():
        yield line.strip()


def _carry_out(order: Order, said: "queue.SimpleQueue[str]") -> None:
    try:
        from moorage.sources import listing
    except ModuleNotFoundError as cause:
        if (cause.name or "").partition(".")[0] != "huggingface_hub":
            raise
        raise Failed("absent", "huggingface_hub is not installed here: pip install 'moorage[hf]'") from None
    plan: Plan = listing.plan(order)
    if order.mode == CHECK:
        listing.check(order, plan)
    say(plan=plan.wire())
    if order.mode == FETCH:
        from moorage.sources import download

        said.get()  # there is room
        say(files=download.fetch(order, plan, lambda done, came: say(done=done, came=came)))


def _meaning(cause: BaseException) -> tuple[str, str]:
    """Which kind of failure it is, and what to say."""
    if isinstance(cause, Failed):
        return cause.kind, str(cause)
    if "huggingface_hub" in sys.modules:
        from moorage.sources.listing import meaning_of

        known = meaning_of(cause)
        if known is not None:
            return known
    text = f"{type(cause).__name__}: {cause}".rstrip(": ")
    if isinstance(cause, (ConnectionError, TimeoutError)):
        return "busy", text
    if isinstance(cause, OSError) and cause.errno is not None:
        if cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return "full", f"no room is left where models are kept ({cause}); {MAKE_ROOM}"
        return "disk", str(cause)
    return "refused", text


if __name__ == "__main__":
    os._exit(main())  # without waiting for threads that still fetch after another has failed

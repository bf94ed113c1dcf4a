"""What master and workers of a gateway say to each other, over a socket pair that ends with either.

Here: the words, and lines of JSON made of them. Not here: who acts on them (`master`, `worker`). Standard library only.

A worker that reads the end of its master goes on, and offers itself to the next one (`handover`).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

PROTOCOL = 3
"""Another number is another release of ours, which a master that is older cannot start."""

SERVING = "serving"
"""A worker: it accepts. `accelerators`: what of its hot path is compiled; `unused`: why not all that was built is."""
FAILED = "failed"
"""A worker: it cannot start. `code` for the exit, `message`."""
LEFT = "left"
"""A worker that retires or ends: `count` of its connections."""
RETIRE = "retire"
"""The master: others serve from now on. Accept no more, end each connection with its next answer."""
END = "end"
"""The master: the gateway ends. As SIGTERM, for a worker that another master started."""
ACCEPT = "accept"
"""The master: accept at these spare `sockets` (their numbers) too, and at no others: nobody else is there to do it."""
ASK = "ask"
"""The master: do you live? Told again and again."""
LIVES = "lives"
"""A worker: the answer to that."""
PROCESSES = "processes"
"""The master: the `ids` of all workers that run; no other one of this gateway does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a worker is started with.

    Args:
        settings: those of the gateway (`GatewayConfig`), as they are written.
        gateway_id: this worker's own, under which it reports and is known in metrics.
        address: `host:port` at which clients reach it.
        master: pid; begins the names of the sockets over which the workers ask each other.
        slot: which of the gateway's processes it is, from 0.
        patience_s: how long to wait for a first routing table before it says that it serves.
        replaces: whether it is there for one that died: what the start had proved is no longer required.
    """

    settings: Mapping[str, Any]
    gateway_id: str
    address: str
    master: int
    slot: int = 0
    patience_s: float = 0.0
    replaces: bool = False
    protocol: int = PROTOCOL

    def line(self) -> bytes:
        """As it is sent."""
        return line(**asdict(self))

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> "Order":
        """From what was received.

        Raises:
            ValueError: the master is of another release.
        """
        if said.get("protocol") != PROTOCOL or set(said) != {f.name for f in fields(cls)}:
            raise ValueError("the gateway's master is of another release; end it, and start it anew")
        return cls(**said)


def line(**said: Any) -> bytes:
    """One message."""
    return json.dumps(said).encode() + b"\n"


class Lines:
    """Messages out of received bytes."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The messages that are whole now."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        for each in whole:
            yield json.loads(each)

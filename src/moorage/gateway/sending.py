"""Bytes to a connection at once, where nothing waits to be written; else by its transport.

Here: the choice between the two. Not here: what is written. An event loop's `write` queues, and looks at the queue once
more before it sleeps; with a core (`native`) the usual write is one system call and nothing after it. Whatever is not
usual goes to the transport: a queue, a full kernel buffer, a connection that broke or closes, TLS. Nothing calls it
yet: the path writes by transports until a measure shows what this saves (decision 0030).
"""

import asyncio
from typing import Final

from moorage.gateway import native

NO_DESCRIPTOR: Final = -1


def descriptor_of(transport: asyncio.Transport) -> int:
    """The number of a connection's socket, for `write`; asked once, when the connection is made.

    NO_DESCRIPTOR where it is of no use: without a core, or where the bytes have to go through TLS first.
    """
    if native.core is None or transport.get_extra_info("sslcontext") is not None:
        return NO_DESCRIPTOR
    own = transport.get_extra_info("socket")
    return NO_DESCRIPTOR if own is None else int(own.fileno())


def write(transport: asyncio.Transport, descriptor: int, data: bytes) -> None:
    """As `transport.write(data)`, if possible at once.

    Args:
        transport: what the kernel does not take now is left to it, and so is every failure.
        descriptor: by `descriptor_of` of this transport. The number is this connection's own only as long as the
            transport is not closing, which is looked at each time.
    """
    core = native.core
    if descriptor < 0 or core is None:
        transport.write(data)
        return
    sent = core.send(transport, descriptor, data)
    if sent != len(data):
        transport.write(data[sent:] if sent else data)

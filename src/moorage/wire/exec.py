"""Messages of `exec`: a command run beside a worker, over WebSockets, from the client through the control plane to the
machine's agent and back.

Every message is binary: one byte says which channel, the rest is what came on it. The client's first message is on
channel TOLD, an `ExecOrder`. Both sides send at most `WINDOW_BYTES` of a stream that the other has not acknowledged: so
a program that does not read, or a terminal that is stopped, holds up its own stream and neither a signal nor a sign of
life, and nobody on the way keeps more than that.

TOLD, JSON objects of one key:  client: {"resize": [rows, columns]} {"signal": "SIGINT"} {"eof": true} {"ack": bytes}
                                machine: {"started": {…}} {"ack": bytes} {"exit": {"code": 0, "error": ""}}
                                either the machine or the control plane: {"error": the public error object}
"""

import json
from typing import Any

from pydantic import Field

from moorage.wire.message import Message

STDIN, STDOUT, STDERR, TOLD = range(4)
WINDOW_BYTES = 256 << 10
PIECE_BYTES = 32 << 10
"""Of a stream in one message."""
ACK_BYTES = 64 << 10
"""So much is taken before it is acknowledged: a quarter of the window, so that a stream need not stop for it."""
MESSAGE_BYTES_MAX = 1 << 20
NOT_FOUND, NOT_EXECUTABLE = 127, 126
SIGNALS = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGTSTP", "SIGCONT", "SIGUSR1", "SIGUSR2", "SIGKILL")
"""What a client may have sent."""


class ExecOrder(Message):
    """What to run, and how the caller is connected to it."""

    command: tuple[str, ...] = Field(min_length=1)
    tty: bool = False
    """with a terminal of its own: one stream of output, keys for signals"""
    stdin: bool = True
    """False: its standard input is empty"""
    rows: int = Field(default=24, ge=1, le=10_000)
    columns: int = Field(default=80, ge=1, le=10_000)
    term: str | None = Field(default=None, max_length=100)
    """what the terminal is (TERM)"""


def data(channel: int, text: bytes) -> bytes:
    """A piece of a stream as a message."""
    return bytes((channel,)) + text


def told(**news: Any) -> bytes:
    """News as a message."""
    return bytes((TOLD,)) + json.dumps(news, separators=(",", ":")).encode()


def read(message: bytes) -> tuple[int, bytes]:
    """Channel and content; an empty message is an empty piece of news."""
    return (message[0], message[1:]) if message else (TOLD, b"{}")


def news_of(content: bytes) -> dict[str, Any]:
    """What was told; something else than an object is nothing."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

"""A server that we did not start and that is to be ours to end: what it is, and its end. Asked with a machine's `Work`,
answered by `POST /agent/claims/{id}`.

Identity first: a pid alone names nobody, so it is claimed with its kernel start ticks and the boot, and only exactly
that process is ever signalled. A container is claimed with its whole id.
"""

from typing import Any, Literal

from pydantic import Field

from moorage.wire.message import Message


class ClaimRequest(Message):
    """Say what it is, or end it."""

    id: str
    action: Literal["identify", "end"] = "identify"
    resource: str
    """`pid:N` or `container:ID`"""
    port: int | None = None
    """where it is said to listen; `identify` tells whether it does"""
    proof: dict[str, Any] = Field(default_factory=dict)
    """of `end`: what `identify` answered; nothing else is signalled"""
    signal: str = "SIGTERM"
    grace_s: float = Field(default=20.0, ge=0)


class ClaimAnswer(Message):
    """What was found, or that it is gone."""

    found: bool = False
    proof: dict[str, Any] = Field(default_factory=dict)
    """{pid, start_ticks, boot_id} or {container, engine}: names it for ever"""
    command: str = ""
    """for people"""
    holds_port: bool | None = None
    """None: it cannot be told, or was not asked"""
    ours: bool = False
    """it was started by this agent already"""
    gone: bool = False
    """of `end`: nothing of it runs"""
    error: str | None = None

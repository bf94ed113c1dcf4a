"""What a machine says is really there: asked for with its `Work`, answered by `POST /agent/inventory/{id}`.

Everything that carries our marks and that the agent's user may see: what its ledger knows and what it does not.
"""

from pydantic import Field

from moorage.wire.message import Message


class InventoryRequest(Message):
    """Look at everything now."""

    id: str


class InventoryItem(Message):
    """One process tree or container with our marks; what it does not carry is empty."""

    resource: str
    """`pid:N` or `container:ID`"""
    runner: str = "process"
    """process, podman or docker"""
    worker: str = ""
    epoch: int = 0
    identity: str = ""
    digest: str = ""
    known: bool = False
    """in the agent's ledger"""
    proven: bool = False
    """of this agent's home, by its cookie and its directory"""
    alive: bool = True
    healthy: bool | None = None


class InventoryAnswer(Message):
    """One look."""

    items: tuple[InventoryItem, ...] = ()
    incomplete: tuple[str, ...] = ()
    """what could not be looked at, and why; empty: this is all"""
    begun_s: float = Field(default=0.0, ge=0)
    """seconds ago, when the look began"""

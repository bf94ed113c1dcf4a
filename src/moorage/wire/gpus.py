"""A GPU as its machine reports it: at a join, and with a heartbeat whenever anything of it changed."""

from moorage.wire.message import Message


class Gpu(Message):
    """One accelerator."""

    index: int
    vendor: str = "nvidia"
    model: str
    memory_bytes: int
    health: str = "ok"
    """ok, at_risk or faulty"""
    uuid: str = ""
    name: str = ""
    """of the product, in full"""
    fault: str | None = None
    """why it is not ok"""
    foreign_bytes: int = 0
    """memory used by processes of nobody that the machine knows, rounded up; 0: none worth mention"""
    foreign_pids: tuple[int, ...] = ()

"""The models that a machine keeps: what is there, and what people want of it. Asked with the machine's `Work`, answered
by `POST /agent/caches/{id}`.
"""

from typing import Literal

from pydantic import Field

from moorage.wire.message import Message

Action = Literal["list", "prefetch", "pin", "unpin", "evict"]


class CacheRequest(Message):
    """Say what is there, after doing something."""

    id: str
    action: Action = "list"
    source: str = ""
    """of all but `list`; with a commit, or as it was asked for"""
    pin: bool = False
    """of `prefetch`: to stay"""


class CachedFile(Message):
    """One file of a model; `proven`: its content is what the hub names, by its sha256 or git id, or only its size."""

    path: str
    size: int
    sha256: str
    proven: Literal["sha256", "git", "size"] = "size"


class CachedModel(Message):
    """A model of a machine's cache."""

    source: str
    """with its commit, where that is known"""
    state: Literal["cached", "fetching", "partial", "failed"]
    """whole; on its way; of which something came and nothing fetches it now; that a prefetch could not get"""
    names: tuple[str, ...] = ()
    """sources without a commit that meant it when they were last looked up"""
    commit: str | None = None
    size: int = 0
    """bytes of the whole; 0: not known yet"""
    done: int = 0
    """bytes that are here"""
    rate: int = 0
    """bytes a second of late"""
    files: tuple[CachedFile, ...] = ()
    path: str | None = None
    """what `{model}` becomes"""
    fetched_at: float | None = None
    used_at: float | None = None
    pinned: bool = False
    restricted: bool = False
    """gated or private at its hub"""
    used_by: tuple[str, ...] = ()
    """uids of workers"""
    error: str | None = None
    """why nothing comes, or came"""


class CacheAnswer(Message):
    """All of it."""

    path: str = ""
    limit_bytes: int | None = None
    """None: what the disk has"""
    disk_bytes: int = 0
    free_bytes: int = 0
    models: tuple[CachedModel, ...] = Field(default=())
    refused: str | None = None
    """why what was asked for was not done"""
    code: str | None = None
    """of the refusal: model_in_use, model_pinned, model_absent, model_ambiguous, invalid_source"""

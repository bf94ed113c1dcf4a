"""Room for one more model: what has to go for it, the longest unused first, and the refusal where nothing may.

Nothing that a worker uses, that is pinned, or that is being fetched goes; where that would not be enough, nothing goes.
Called by `cache`, from a thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moorage.agent.models.shelf import Entry, Partial, Shelf
from moorage.domain.units import show_size
from moorage.sources.hub import SourceError

RESERVE_SHARE, RESERVE_BYTES_MAX = 0.02, 5 << 30
"""So much of the disk is left for everything else: the smaller of both."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A model that is to come.

    Args:
        key: of it.
        size: bytes, whole.
        entries: what is here.
        used: keys of those in use.
        busy: keys of those that are being fetched.
    """

    key: str
    size: int
    entries: Sequence[Entry]
    used: frozenset[str]
    busy: frozenset[str]


class Room:
    """The room of one cache.

    Args:
        shelf: what it is of.
        limit_bytes: for all models together; None: as much as the disk has.
    """

    def __init__(self, shelf: Shelf, limit_bytes: int | None) -> None:
        self.limit_bytes = limit_bytes
        self._shelf = shelf

    @property
    def path(self) -> Path:
        """Where the models are."""
        return self._shelf.base

    def of_disk(self) -> tuple[int, int]:
        """Bytes of its disk: (total, free)."""
        return self._shelf.room()

    def make(self, demand: Demand) -> list[Entry]:
        """Remove what has to go, and answer it.

        Raises:
            SourceError: there is no room, and what may go would not be enough.
        """
        partials = self._shelf.partials()
        here = sum(p.size for p in partials if p.key == demand.key)
        lacking = self._lacking(demand, partials, here)
        idle = [p for p in partials if p.key != demand.key and p.key not in demand.busy]
        may_go = sorted((e for e in demand.entries if not e.pinned and e.key not in demand.used), key=_unused_longest)
        going: list[Partial | Entry] = []
        candidates: list[Partial | Entry] = [*idle, *may_go]
        for candidate in candidates:
            if lacking <= 0:
                break
            going.append(candidate)
            lacking -= candidate.size
        if lacking > 0:
            raise self._full(demand, here, lacking)
        self._shelf.remove([c.folder for c in going])
        return [c for c in going if isinstance(c, Entry)]

    def _lacking(self, demand: Demand, partials: Sequence[Partial], here: int) -> int:
        """Bytes that must become free before it may come."""
        total, free = self._shelf.room()
        reserve = min(int(total * RESERVE_SHARE), RESERVE_BYTES_MAX)
        of_disk = demand.size - here + reserve - free
        if self.limit_bytes is None:
            return of_disk
        others = sum(e.size for e in demand.entries) + sum(p.size for p in partials if p.key != demand.key)
        return max(of_disk, others + demand.size - self.limit_bytes)

    def _full(self, demand: Demand, here: int, lacking: int) -> SourceError:
        _, free = self._shelf.room()
        kept = [e for e in demand.entries if e.pinned or e.key in demand.used]
        limit = "" if self.limit_bytes is None else f" within MOORAGE_AGENT_MODELS_BYTES={show_size(self.limit_bytes)}"
        return SourceError(
            "full",
            f"no room for {show_size(demand.size - here)} more at {self._shelf.base}{limit}: {show_size(free)} of the "
            f"disk are free, {show_size(max(lacking, 0))} are missing, and {len(kept)} of {len(demand.entries)} cached "
            "models are pinned or in use. See `moor cache ls`; unpin or evict one, or give the disk more room",
        )


def _unused_longest(entry: Entry) -> float:
    return entry.used_at

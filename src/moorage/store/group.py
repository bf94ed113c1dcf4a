"""A group: what one transaction knows and will write, in memory.

Filled by `load.py`, changed by `batch.py`, written by `flush.py`. Holds no rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.domain.changes import Hold
from moorage.domain.quotas import Amounts
from moorage.store.rows import Image, Texts

HISTORY = (
    "seq",
    "object_kind",
    "object_uid",
    "root",
    "namespace",
    "name",
    "kind",
    "from_state",
    "to_state",
    "reason",
    "actor",
    "at",
    "version",
)
"""Columns of a history row."""

HistoryValues = tuple[Any, ...]
"""A history row: the columns of `HISTORY`."""

NameKey = tuple[str, str, str]
"""(kind, namespace, name)"""

HoldingKey = tuple[str, int]
"""(worker, epoch)"""


@dataclass(slots=True)
class Taken:
    """What is held of one machine."""

    gpus: set[int] = field(default_factory=set)
    cpu_milli: int = 0
    memory_bytes: int = 0

    def take(self, hold: Hold) -> None:
        """It is held from now on."""
        self.gpus.update(hold.gpus)
        self.cpu_milli += hold.cpu_milli
        self.memory_bytes += hold.memory_bytes

    def give(self, hold: Hold) -> None:
        """It is not held any more."""
        self.gpus.difference_update(hold.gpus)
        self.cpu_milli -= hold.cpu_milli
        self.memory_bytes -= hold.memory_bytes


@dataclass(slots=True)
class Group:
    """What one transaction knows and will write.

    Args:
        now: time of the commit, seconds since the epoch.
        before: the place in history before the group's first row (0 on PostgreSQL, where places count anew in each
            transaction).
        cursors: what a cursor into this store begins with (SQLite).
        safe_cursor: the newest safe place (PostgreSQL; there nobody knows yet when the group's own rows become safe).
        base: rows as loaded, by uid; a uid that was looked for and not found is absent.
        rows: the same rows as changed; None is a removed row.
        names: live names and who has them.
        keys: idempotency keys: (intent, result as JSON).
        leases: generation of each held lease.
        held_before, held: holdings as loaded and as changed.
        held_on, held_by: what is held of each machine; the keys of each worker's holdings.
        used: what namespaces with a quota hold and have, by resource; only of those whose use the group adds to.
        limits: quotas by namespace, each with the row it was read from.
        buried: uids that were removed for good.
        texts: stored forms of the reasons that were written.
    """

    now: float
    before: int = 0
    cursors: str = ""
    safe_cursor: str | None = None
    base: dict[str, Image] = field(default_factory=dict)
    rows: dict[str, Image | None] = field(default_factory=dict)
    names: dict[NameKey, str] = field(default_factory=dict)
    keys: dict[tuple[str, str], tuple[str, Any]] = field(default_factory=dict)
    leases: dict[str, int] = field(default_factory=dict)
    held_before: dict[HoldingKey, Hold] = field(default_factory=dict)
    held: dict[HoldingKey, Hold] = field(default_factory=dict)
    held_on: dict[str, Taken] = field(default_factory=dict)
    held_by: dict[str, tuple[HoldingKey, ...]] = field(default_factory=dict)
    used: dict[str, dict[str, int]] = field(default_factory=dict)
    limits: dict[str, tuple[Image, Amounts]] = field(default_factory=dict)
    buried: set[str] = field(default_factory=set)
    history: list[HistoryValues] = field(default_factory=list)
    tombstones: list[tuple[Any, ...]] = field(default_factory=list)
    new_keys: list[tuple[Any, ...]] = field(default_factory=list)
    texts: Texts = field(default_factory=Texts)

    @property
    def last_seq(self) -> int:
        """The place in history of the last row that the group holds by now."""
        return self.before + len(self.history)

    def cursor(self) -> str:
        """The cursor after what the group holds by now."""
        return self.safe_cursor or f"{self.cursors}{self.before + len(self.history)}"

    def rename(self, names: Mapping[NameKey, str | None]) -> None:
        """Give names to their new owners; None: nobody has it any more."""
        for name, owner in names.items():
            if owner is None:
                self.names.pop(name, None)
            else:
                self.names[name] = owner

    def hold(self, hold: Hold) -> None:
        """Note a holding."""
        key = (hold.worker, hold.epoch)
        self.held[key] = hold
        here = self.held_on.get(hold.machine)
        if here is None:
            here = self.held_on[hold.machine] = Taken()
        here.take(hold)
        before = self.held_by.get(hold.worker)
        self.held_by[hold.worker] = (key,) if before is None else (*before, key)

    def let_go(self, key: HoldingKey) -> Hold | None:
        """Forget a holding, if there is one; it is the answer."""
        hold = self.held.pop(key, None)
        if hold is not None:
            self.held_on[hold.machine].give(hold)
            self.held_by[hold.worker] = tuple(k for k in self.held_by[hold.worker] if k != key)
        return hold

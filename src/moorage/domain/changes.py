"""What a decision asks the store to write: one `Change`, all of it or nothing.

A `Change` is a list of writes with the versions they were decided on, an optional idempotency key and an optional
fence. The store checks versions and the transition tables, writes rows and history in one transaction, and answers
with the new versions. Nothing else in the code writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moorage.domain.nouns import Noun
from moorage.domain.reasons import Reason
from moorage.domain.written import written_once


@written_once
class Step:
    """One edge of a noun's table, taken at `at` (observed time; None: the time of the commit).

    Args:
        to: target state.
        trigger: the table's trigger word.
        reason: why.
    """

    to: str
    trigger: str
    reason: Reason
    at: float | None = None


@written_once
class Create:
    """Insert `row` (its state must be an initial one) with a first history row `from: null`."""

    row: Noun
    reason: Reason


@written_once
class Update:
    """Change one row if it still has `version`.

    Args:
        kind, uid, version: the row, as it was when the decision was made.
        steps: edges taken, in order; the row's state becomes the last one's target and its reason the last one's
            reason. May be empty.
        fields: other fields to set (never the state, version, reason, uid or times of creation).
        reason: a new current reason for a row that takes no step; recorded as a `note`. When equal in code and
            params to the row's present reason nothing is recorded.
        notes: further history rows of kind `note` that do not change the current reason.
    """

    kind: str
    uid: str
    version: int
    steps: tuple[Step, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    reason: Reason | None = None
    notes: tuple[Reason, ...] = ()


@written_once
class Hold:
    """Take whole GPUs of a machine for a worker's epoch; unique per (machine, gpu), so two decisions cannot both win.

    Also written, with `gpus` empty, for workers without GPUs: CPU and memory are summed over holdings in the placing
    transaction and must not exceed the machine's `limit`.

    Args:
        limit_cpu_milli, limit_memory_bytes: of the machine; None: what is there is only written down.
        namespace: whose quota it counts in; empty: nobody's.
        models: of the GPUs, in their order, as far as they are known.
        within_quota: refuse it where the namespace's quota, summed over all that is held, would be exceeded; False for
            what is there already and is only written down.
    """

    machine: str
    worker: str
    epoch: int
    gpus: tuple[int, ...] = ()
    cpu_milli: int = 0
    memory_bytes: int = 0
    limit_cpu_milli: int | None = None
    limit_memory_bytes: int | None = None
    namespace: str = ""
    models: tuple[str, ...] = ()
    within_quota: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Give a worker's holdings up: its process was seen gone (issued is not observed).

    Args:
        worker: whose.
        epoch: only those of this placement; None: all of them.
    """

    worker: str
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete a row if it still has `version`; its history stays, with a last row for the tombstone.

    `digest` of its spec, last state, reason, actor and time are kept in the tombstone.
    """

    kind: str
    uid: str
    version: int
    reason: Reason


Write = Create | Update | Hold | Release | Remove


@dataclass(frozen=True, slots=True)
class Key:
    """Idempotency: the first commit under (namespace, key) wins and keeps `result`; later ones get it back.

    Args:
        intent: digest of the request; the same key with another intent is `KeyReused`.
        result: JSON answer kept for repeats.
    """

    namespace: str
    key: str
    intent: str
    result: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fence:
    """Commit only while lease `name` still has `generation`."""

    name: str
    generation: int


@written_once
class Change:
    """All of it or nothing.

    Args:
        writes: in order; two writes of the same row are not allowed (put several steps into one `Update`).
        actor: who: `person:NAME`, `controller:NAME`, `machine:NAME`, `gateway:ID`.
    """

    writes: tuple[Write, ...]
    actor: str
    key: Key | None = None
    fence: Fence | None = None


@written_once
class Committed:
    """What a commit answers: new version per written uid, and the stored result where a key was given.

    `replayed` is True when the key had been used before: nothing was written, `result` is the first answer.
    """

    versions: Mapping[str, int]
    cursor: str
    at: float
    replayed: bool = False
    result: Mapping[str, Any] | None = None


@written_once
class HistoryRow:
    """One line of history; also one event."""

    cursor: str
    object_kind: str
    object_uid: str
    namespace: str
    name: str
    kind: str
    """change | note"""
    source: str | None
    to: str | None
    reason: Reason
    actor: str
    at: float
    version: int
    root: str
    """uid of the deployment it belongs to, else of the run, else its own: `moor history X` reads one root"""

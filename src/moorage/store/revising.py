"""One update of one row, in memory: what the row becomes, and its lines of history.

Pure: fields and steps are checked, and neither the row that was given nor any group is touched, so that an update that
fails leaves nothing behind. Nearly all that a busy store does passes here; it is written in few calls for that reason.
Called by `batch.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from moorage.domain.changes import Update
from moorage.domain.errors import InvalidSpec
from moorage.domain.reasons import Reason
from moorage.domain.transitions import Table
from moorage.store.group import HistoryValues
from moorage.store.rows import Image, Shape, Texts, canonical, loads, merged

By = tuple[str, float, int, Texts]
"""Who writes, when (seconds since the epoch), the place in history before the first line, and the stored forms of the
reasons that were written."""


def revise(old: Image, write: Update, table: Table, by: By) -> tuple[Image, list[HistoryValues]] | None:
    """The row as `write` leaves it and its history; None if nothing changes.

    Raises:
        InvalidSpec: a field cannot be set or has no stored form.
        IllegalTransition: a step is not in the table.
    """
    fields, steps, reason = write.fields, write.steps, write.reason
    homes = _homes(old.shape, tuple(fields)) if fields else _NOWHERE
    news = reason if reason is not None and _is_news(old, write, reason) else None
    if not (steps or fields or write.notes or news):
        return None
    actor, now, last_seq, texts = by
    new = _with_fields(old, fields, homes, now)
    kind, uid, root, version = old.shape.kind, old.uid, new.root, new.version
    lines: list[HistoryValues] = []
    state, text, last = old.state, old.reason, None
    for seq, step in enumerate(steps, last_seq + 1):
        to, why = str(step.to), step.reason
        table.check(state, to, step.trigger)
        if why is not last:
            text, last = texts.of(why), why
        at = now if step.at is None else step.at
        lines.append((seq, kind, uid, root, new.namespace, new.name, "change", state, to, text, actor, at, version))
        state = to
    new.state, new.reason = state, text
    namespace, name = new.namespace, new.name
    if news is not None:
        new.reason = text = texts.of(news)
        seq = last_seq + len(lines) + 1
        lines.append((seq, kind, uid, root, namespace, name, "note", state, state, text, actor, now, version))
    for note in write.notes:
        seq = last_seq + len(lines) + 1
        lines.append((seq, kind, uid, root, namespace, name, "note", state, state, texts.of(note), actor, now, version))
    return new, lines


def history_line(by: By, row: Image, source: str | None, to: str) -> HistoryValues:
    """The history row of a row that was created or removed, at its present version."""
    actor, now, last_seq, _ = by
    kind, uid, root, reason = row.shape.kind, row.uid, row.root, row.reason
    named = row.namespace, row.name
    return (last_seq + 1, kind, uid, root, *named, "change", source, to, reason, actor, now, row.version)


def _is_news(old: Image, write: Update, reason: Reason) -> bool:
    if write.steps:
        last = write.steps[-1].reason
        return (last.code, canonical(last.params)) != (reason.code, canonical(reason.params))
    if old.reason is None:
        return True
    code, params = _told(old.reason)
    return code != reason.code or params != canonical(reason.params)


@lru_cache(maxsize=4096)
def _told(text: bytes | str) -> tuple[str, bytes]:
    """Code and params of a stored reason; the same texts come again and again."""
    stored = loads(text)
    return stored["code"], canonical(stored.get("params") or {})


@dataclass(frozen=True, slots=True)
class _Homes:
    """Where the fields of an update are kept: the same few sets of fields are written all day.

    Args:
        renames: the name or the namespace is among them.
        searched: those with a column of their own, each with its place among them.
        doc: those kept in `doc`.
    """

    renames: bool
    searched: tuple[tuple[str, int], ...]
    doc: tuple[str, ...]


_NOWHERE = _Homes(False, (), ())


@lru_cache(maxsize=1024)
def _homes(shape: Shape, fields: tuple[str, ...]) -> _Homes:
    if wrong := [name for name in sorted(fields) if name not in shape.settable]:
        raise InvalidSpec(f"an update of {shape.kind} cannot set {', '.join(wrong)}", remedy="states move by steps")
    return _Homes(
        bool({"name", "namespace"} & set(fields)),
        tuple((name, shape.places[name]) for name in fields if name in shape.places),
        tuple(name for name in fields if name in shape.doc),
    )


def _with_fields(old: Image, fields: Mapping[str, Any], homes: _Homes, now: float) -> Image:
    """The next version of the row, with `fields` set; `doc` is only rewritten when a field of it is among them."""
    shape, namespace, name, searched = old.shape, old.namespace, old.name, old.searched
    root, doc = old.root, old.doc
    if homes.renames:
        namespace, name = fields.get("namespace", namespace), fields.get("name", name)
    if homes.searched:
        values = list(searched)
        for column, place in homes.searched:
            values[place] = fields[column]
        searched = tuple(values)
        root = shape.root(old.uid, searched)
    if homes.doc:
        doc = merged(old, fields, homes.doc)
    return Image(
        shape,
        old.uid,
        namespace,
        name,
        old.state,
        old.version + 1,
        old.created_at,
        now,
        old.reason,
        searched,
        root,
        doc,
    )

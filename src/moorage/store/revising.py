"""One update of one row, in memory: what the row becomes, and its lines of history.

Pure: fields and steps are checked, and neither the row that was given nor any group is touched, so that an update that
fails leaves nothing behind. Nearly all that a busy store does passes here; it is written in few calls for that reason.
Called by `batch.py`.
"""

from collections.abc import Mapping
from typing import Any

from moorage.domain.changes import Update
from moorage.domain.errors import InvalidSpec
from moorage.domain.reasons import Reason
from moorage.domain.transitions import Table
from moorage.store.group import HistoryValues
from moorage.store.rows import Image, canonical, loads, merged, reason_text

By = tuple[str, float, int]
"""Who writes, when (seconds since the epoch), and the place in history before the first line."""


def revise(old: Image, write: Update, table: Table, by: By) -> tuple[Image, list[HistoryValues]] | None:
    """The row as `write` leaves it and its history; None if nothing changes.

    Raises:
        InvalidSpec: a field cannot be set or has no stored form.
        IllegalTransition: a step is not in the table.
    """
    fields, steps, reason = write.fields, write.steps, write.reason
    if fields and not old.shape.settable.issuperset(fields):
        wrong = ", ".join(sorted(fields.keys() - old.shape.settable))
        raise InvalidSpec(f"an update of {write.kind} cannot set {wrong}", remedy="states move by steps")
    news = reason if reason is not None and _is_news(old, write, reason) else None
    if not (steps or fields or write.notes or news):
        return None
    actor, now, last_seq = by
    new = _with_fields(old, fields, now)
    kind, uid, root, version = old.shape.kind, old.uid, new.root, new.version
    lines: list[HistoryValues] = []
    state, text, last = old.state, old.reason, None
    for seq, step in enumerate(steps, last_seq + 1):
        to, why = str(step.to), step.reason
        table.check(state, to, step.trigger)
        if why is not last:
            text, last = reason_text(why), why
        at = now if step.at is None else step.at
        lines.append((seq, kind, uid, root, new.namespace, new.name, "change", state, to, text, actor, at, version))
        state = to
    new.state, new.reason = state, text
    if news is not None:
        new.reason = reason_text(news)
        lines.append(history_line((actor, now, last_seq + len(lines)), new, "note", state, state, reason=new.reason))
    for note in write.notes:
        text = reason_text(note)
        lines.append(history_line((actor, now, last_seq + len(lines)), new, "note", state, state, reason=text))
    return new, lines


def history_line(
    by: By, row: Image, kind: str, source: str | None, to: str, *, reason: bytes | str | None
) -> HistoryValues:
    """The next history row, `change` or `note`, of a row at its present version."""
    actor, now, last_seq = by
    return (
        last_seq + 1,
        row.shape.kind,
        row.uid,
        row.root,
        row.namespace,
        row.name,
        kind,
        source,
        to,
        reason,
        actor,
        now,
        row.version,
    )


def _is_news(old: Image, write: Update, reason: Reason) -> bool:
    if write.steps:
        last = write.steps[-1].reason
        return (last.code, canonical(last.params)) != (reason.code, canonical(reason.params))
    if old.reason is None:
        return True
    stored = loads(old.reason)
    if stored["code"] != reason.code:
        return True
    return canonical(stored.get("params") or {}) != canonical(reason.params)


def _with_fields(old: Image, fields: Mapping[str, Any], now: float) -> Image:
    """The next version of the row, with `fields` set; `doc` is only rewritten when a field of it is among them."""
    shape, namespace, name, searched = old.shape, old.namespace, old.name, old.searched
    root, doc = old.root, old.doc
    if fields:
        if not fields.keys() <= shape.doc.keys():
            fields, places, values = dict(fields), shape.places, list(searched)
            namespace, name = fields.pop("namespace", namespace), fields.pop("name", name)
            for column in fields.keys() & places.keys():
                values[places[column]] = fields.pop(column)
            searched = tuple(values)
            root = shape.root(old.uid, searched)
        if fields:
            doc = merged(old, fields)
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

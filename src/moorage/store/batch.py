"""Applies changes to a group's rows in memory: all checks of a commit, item by item, before any write.

A group is what one transaction will write. `load.py` fills it with the rows that its changes name; each change is then
applied in its turn, so that two changes of one row see each other, and a change that fails leaves nothing behind.
`flush.py` writes what is left. No database and no clock here: `now` is given.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from moorage.domain.changes import Change, Create, Fence, Hold, Key, Release, Remove, Update, Write
from moorage.domain.errors import Conflict, Fenced, IllegalTransition, InvalidSpec, KeyReused, StaleVersion
from moorage.domain.reasons import Reason
from moorage.domain.transitions import Table
from moorage.store.group import Applied, Group, HistoryValues, HoldingKey, NameKey
from moorage.store.holds import hold, release
from moorage.store.rows import Image, Shape, canonical, dumps, image_of, loads, reason_text


class Applier:
    """Applies changes to a group by the tables of transitions.

    Args:
        shapes: how each noun is stored.
        tables: the transition table of each noun.
    """

    def __init__(self, shapes: Mapping[str, Shape], tables: Mapping[str, Table]) -> None:
        self._shapes = shapes
        self._tables = tables

    def apply(self, group: Group, change: Change) -> Applied:
        """Apply one change to the group, or raise and leave the group as it was."""
        if change.key is not None:
            replayed = _replay(group, change.key)
            if replayed is not None:
                return replayed
        if change.fence is not None:
            _check_fence(group, change.fence)
        draft = _Draft(group, change.actor)
        for write in change.writes:
            self._write(draft, write)
        if change.key is not None:
            draft.remember(change.key)
        return draft.keep(change.key)

    def _write(self, draft: "_Draft", write: Write) -> None:
        if isinstance(write, Update):
            self._update(draft, write)
        elif isinstance(write, Create):
            self._create(draft, write)
        elif isinstance(write, Hold):
            hold(draft.group, draft.more().held, write)
        elif isinstance(write, Release):
            release(draft.group, draft.more().held, write)
        else:
            self._remove(draft, write)

    def _create(self, draft: "_Draft", write: Create) -> None:
        row, group = write.row, draft.group
        shape = self._shapes[row.kind]
        table = self._tables[row.kind]
        if row.state_word not in table.initial:
            raise IllegalTransition(row.kind, "nothing", row.state_word, "create")
        if draft.row(row.uid) is not None or row.uid in group.buried:
            raise Conflict(f"{row.kind} {row.uid} exists already or did before", remedy="draw a new uid")
        text = reason_text(write.reason)
        image = image_of(shape, row, reason=text, now=group.now)
        draft.put(None, image)
        draft.record(image, None, image.state, text, group.now)

    def _update(self, draft: "_Draft", write: Update) -> None:
        shape = self._shapes[write.kind]
        old = draft.loaded(write.kind, write.uid, write.version)
        fields = write.fields
        if fields and not fields.keys() <= shape.settable:
            wrong = ", ".join(sorted(fields.keys() - shape.settable))
            raise InvalidSpec(f"an update of {write.kind} cannot set {wrong}", remedy="states move by steps")
        news = write.reason if write.reason is not None and _is_news(old, write) else None
        if not (write.steps or fields or write.notes or news):
            draft.versions[old.uid] = old.version
            return
        image = _with_fields(old, fields)
        image.version = old.version + 1
        image.updated_at = draft.group.now
        self._steps(draft, image, write)
        if news is not None:
            draft.note(image, news, current=True)
        for note in write.notes:
            draft.note(image, note)
        draft.put(old, image)

    def _steps(self, draft: "_Draft", image: Image, write: Update) -> None:
        check = self._tables[write.kind].check
        last: Reason | None = None
        for step in write.steps:
            target = str(step.to)
            check(image.state, target, step.trigger)
            if step.reason is not last:
                image.reason, last = reason_text(step.reason), step.reason
            at = draft.group.now if step.at is None else step.at
            draft.record(image, image.state, target, image.reason, at)
            image.state = target

    def _remove(self, draft: "_Draft", write: Remove) -> None:
        old = draft.loaded(write.kind, write.uid, write.version)
        gone = replace(old, version=old.version + 1, reason=reason_text(write.reason))
        draft.record(gone, old.state, "deleted", gone.reason, draft.group.now)
        draft.bury(old, gone)


@dataclass(slots=True)
class _Rest:
    """What only some changes touch; most are one update of one row."""

    names: dict[NameKey, str | None] = field(default_factory=dict)
    held: dict[HoldingKey, Hold | None] = field(default_factory=dict)
    tombstones: list[tuple[Any, ...]] = field(default_factory=list)
    new_keys: list[tuple[Any, ...]] = field(default_factory=list)


class _Draft:
    """One change in the making, seen over its group; kept whole or dropped."""

    __slots__ = ("actor", "group", "history", "rest", "rows", "versions")

    def __init__(self, group: Group, actor: str) -> None:
        self.group = group
        self.actor = actor
        self.versions: dict[str, int] = {}
        self.rows: dict[str, Image | None] = {}
        self.history: list[HistoryValues] = []
        self.rest: _Rest | None = None

    def more(self) -> _Rest:
        """The part of a draft that is only made when needed."""
        if self.rest is None:
            self.rest = _Rest()
        return self.rest

    def row(self, uid: str) -> Image | None:
        return self.rows[uid] if uid in self.rows else self.group.rows.get(uid)

    def loaded(self, kind: str, uid: str, version: int) -> Image:
        """The row at exactly that version."""
        if uid in self.versions:
            raise InvalidSpec(f"one change writes {kind} {uid} twice", remedy="put the steps into one update")
        row = self.group.rows.get(uid)
        if row is None or row.shape.kind != kind:
            raise StaleVersion(
                f"cannot write {kind} {uid}: there is no such row any more",
                remedy="load again and decide anew",
                target=f"{kind} {uid}",
            )
        if row.version != version:
            raise StaleVersion(
                f"cannot write {row.target}: it is at version {row.version}, the decision was made on {version}",
                remedy="load again and decide anew",
                target=row.target,
            )
        return row

    def put(self, old: Image | None, new: Image) -> None:
        """Replace a row; a live one claims its name."""
        self.rows[new.uid] = new
        self.versions[new.uid] = new.version
        if new.shape.claims_name:
            self._claim(old, new)

    def _claim(self, old: Image | None, new: Image) -> None:
        was, now = _name_of(old), _name_of(new)
        if was == now:
            return
        names = self.more().names
        if was is not None:
            names[was] = None
        if now is not None:
            owner = names[now] if now in names else self.group.names.get(now)
            if owner not in (None, new.uid):
                raise Conflict(
                    f"{new.target} exists already",
                    remedy="change that one, delete it first, or choose another name",
                    target=new.target,
                )
            names[now] = new.uid

    def bury(self, old: Image, gone: Image) -> None:
        """Remove a row and keep its tombstone."""
        self.rows[old.uid] = None
        self.versions[old.uid] = gone.version
        name = _name_of(old)
        if name is not None:
            self.more().names[name] = None
        digest, when = _digest(old), self.group.now
        self.more().tombstones.append(
            (old.uid, old.shape.kind, old.namespace, old.name, digest, old.state, gone.reason, self.actor, when)
        )

    def record(self, row: Image, source: str | None, to: str, reason: Any, at: float, *, kind: str = "change") -> None:
        """Append one history row; `at` in seconds since the epoch."""
        self.history.append(
            (
                row.shape.kind,
                row.uid,
                row.root,
                row.namespace,
                row.name,
                kind,
                source,
                to,
                reason,
                self.actor,
                at,
                row.version,
            )
        )

    def note(self, row: Image, reason: Reason, *, current: bool = False) -> None:
        """Append a history row that changes no state; `current` makes it the row's reason too."""
        text = reason_text(reason)
        if current:
            row.reason = text
        self.record(row, row.state, row.state, text, self.group.now, kind="note")

    def remember(self, key: Key) -> None:
        """Keep the key's answer."""
        self.more().new_keys.append((key.namespace, key.key, key.intent, dumps(key.result), self.group.now))

    def keep(self, key: Key | None) -> Applied:
        """Make the draft part of its group."""
        group = self.group
        group.rows.update(self.rows)
        group.history += self.history
        if self.rest is not None:
            self._keep_rest(self.rest)
        return Applied(self.versions, key.result if key else None, False, len(group.history))

    def _keep_rest(self, rest: "_Rest") -> None:
        group = self.group
        for name, owner in rest.names.items():
            _set(group.names, name, owner)
        for holding, taken in rest.held.items():
            group.let_go(holding)
            if taken is not None:
                group.hold(taken)
        group.buried.update(values[0] for values in rest.tombstones)
        group.tombstones += rest.tombstones
        for values in rest.new_keys:
            group.keys[values[0], values[1]] = (values[2], values[3])
        group.new_keys += rest.new_keys


def _set(target: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        target.pop(key, None)
    else:
        target[key] = value


def _name_of(row: Image | None) -> NameKey | None:
    return (row.shape.kind, row.namespace, row.name) if row is not None and row.live else None


def _replay(group: Group, key: Key) -> Applied | None:
    stored = group.keys.get((key.namespace, key.key))
    if stored is None:
        return None
    intent, result = stored
    if intent != key.intent:
        raise KeyReused(
            f"the key {key.key!r} was used for a different request",
            remedy="draw a new key for a new request; repeat the first request unchanged to get its answer",
        )
    return Applied({}, loads(result), replayed=True, history_end=len(group.history))


def _check_fence(group: Group, fence: Fence) -> None:
    held = group.leases.get(fence.name)
    if held != fence.generation:
        now = "nobody holds it" if held is None else f"generation {held} holds it"
        raise Fenced(
            f"the lease {fence.name!r} is no longer held by generation {fence.generation}: {now}; nothing was written",
            remedy="acquire the lease again and load again",
        )


def _is_news(old: Image, write: Update) -> bool:
    assert write.reason is not None
    if write.steps:
        last = write.steps[-1].reason
        return (last.code, canonical(last.params)) != (write.reason.code, canonical(write.reason.params))
    if old.reason is None:
        return True
    stored = loads(old.reason)
    if stored["code"] != write.reason.code:
        return True
    return canonical(stored.get("params") or {}) != canonical(write.reason.params)


def _with_fields(old: Image, fields: Mapping[str, Any]) -> Image:
    """A copy of the row with `fields` set; `doc` is only rewritten when a field of it is among them."""
    new = Image(
        old.shape,
        old.uid,
        old.namespace,
        old.name,
        old.state,
        old.version,
        old.created_at,
        old.updated_at,
        old.reason,
        old.searched,
        old.doc,
        old.values,
    )
    if not fields:
        return new
    if fields.keys() <= old.shape.doc_set:
        new.set_doc(fields)
        return new
    rest = dict(fields)
    new.namespace = rest.pop("namespace", old.namespace)
    new.name = rest.pop("name", old.name)
    columns = old.shape.searched
    if not rest.keys().isdisjoint(columns):
        new.searched = tuple(rest.pop(c, v) for c, v in zip(columns, old.searched, strict=True))
    if rest:
        new.set_doc(rest)
    return new


def _digest(row: Image) -> str:
    """What it was: its own digest where it has one, else of its spec, else of all its fields."""
    doc = loads(row.doc)
    if doc.get("digest"):
        return str(doc["digest"])
    return "sha256:" + hashlib.sha256(canonical(doc.get("spec") or doc)).hexdigest()

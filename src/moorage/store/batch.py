"""Applies changes to a group's rows in memory: all checks of a commit, item by item, before any write.

A group is what one transaction will write. `load.py` fills it with the rows that its changes name; each change is then
applied in its turn, so that two changes of one row see each other, and a change that fails leaves nothing behind.
`flush.py` writes what is left. No database and no clock here: `now` is given.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moorage.domain.changes import Change, Committed, Create, Fence, Hold, Key, Release, Remove, Update, Write
from moorage.domain.errors import Conflict, Fenced, IllegalTransition, InvalidSpec, KeyReused, StaleVersion
from moorage.domain.quotas import add
from moorage.domain.transitions import Table
from moorage.store import quotas
from moorage.store.group import Group, HistoryValues, HoldingKey, NameKey
from moorage.store.holds import hold, release
from moorage.store.revising import By, history_line, revise
from moorage.store.rows import Image, Shape, canonical, dumps, image_of, loads, reason_text
from moorage.store.tables import NAMED_WITH


class Applier:
    """Applies changes to a group by the tables of transitions.

    Args:
        shapes: how each noun is stored.
        tables: the transition table of each noun.
    """

    def __init__(self, shapes: Mapping[str, Shape], tables: Mapping[str, Table]) -> None:
        self._shapes = shapes
        self._tables = tables

    def apply_each(self, group: Group, changes: Sequence[Change]) -> list[Committed | Exception]:
        """Apply changes in their order: what each one's caller will be told once the group is on disk.

        Whatever a change raises is its own failure: it stands in the answer's place, and the group is as before it.
        """
        answers: list[Committed | Exception] = []
        for change in changes:
            try:
                answers.append(self.apply(group, change))
            except Exception as error:
                answers.append(error)
        return answers

    def apply(self, group: Group, change: Change) -> Committed:
        """Apply one change to the group, or raise and leave the group as it was."""
        key, writes = change.key, change.writes
        if key is not None and (replayed := _replay(group, key)) is not None:
            return replayed
        if change.fence is not None:
            _check_fence(group, change.fence)
        if len(writes) == 1 and key is None and type(writes[0]) is Update:
            return self._update_alone(group, writes[0], change.actor)
        if len(writes) == 2 and key is None and type(writes[0]) is Update and type(writes[1]) is Hold:
            return self._place(group, writes[0], writes[1], change.actor)
        return self._drafted(group, writes, change.actor, key)

    def _update_alone(self, group: Group, write: Update, actor: str) -> Committed:
        """Most changes are one update: all of it is checked before any of it is kept, so it needs no draft."""
        history, now = group.history, group.now
        old = _loaded(group, write)
        revised = revise(old, write, self._tables[write.kind], (actor, now, group.before + len(history), group.texts))
        if revised is None:
            return Committed({old.uid: old.version}, group.cursor(), now)
        new, lines = revised
        if new.shape.claims_name:
            if group.used:
                quotas.admit(group, {new.uid: new})
            names: dict[NameKey, str | None] = {}
            _claim(group, names, old, new)
            group.rename(names)
        group.rows[new.uid] = new
        history += lines
        return Committed({new.uid: new.version}, group.cursor(), now)

    def _place(self, group: Group, update: Update, taken: Hold, actor: str) -> Committed:
        """A placement of one worker: all of it is checked before any of it is kept, so it needs no draft."""
        history, now = group.history, group.now
        old = _loaded(group, update)
        if old.shape.claims_name:
            return self._drafted(group, (update, taken), actor)
        revised = revise(old, update, self._tables[update.kind], (actor, now, group.before + len(history), group.texts))
        hold(group, {}, taken)
        version = old.version
        if revised is not None:
            new, lines = revised
            group.rows[new.uid] = new
            history += lines
            version = new.version
        group.hold(taken)
        _count(group, taken, 1)
        return Committed({old.uid: version}, group.cursor(), now)

    def _drafted(self, group: Group, writes: Sequence[Write], actor: str, key: Key | None = None) -> Committed:
        """Any writes, in a draft that is kept whole."""
        draft = _Draft(group, actor)
        for write in writes:
            self._write(draft, write)
        if key is not None:
            draft.remember(key)
        return draft.keep(key)

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
        image = image_of(shape, row, reason=reason_text(write.reason), now=group.now)
        draft.put(None, image)
        draft.record(image, None, image.state)

    def _update(self, draft: "_Draft", write: Update) -> None:
        old = draft.loaded(write)
        revised = revise(old, write, self._tables[write.kind], draft.by())
        if revised is None:
            draft.versions[old.uid] = old.version
            return
        new, lines = revised
        draft.put(old, new)
        draft.history += lines

    def _remove(self, draft: "_Draft", write: Remove) -> None:
        old = draft.loaded(write)
        gone = replace(old, version=old.version + 1, reason=reason_text(write.reason))
        draft.record(gone, old.state, "deleted")
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

    def by(self) -> By:
        """What the next history row says of its making."""
        group = self.group
        return self.actor, group.now, group.last_seq + len(self.history), group.texts

    def row(self, uid: str) -> Image | None:
        return self.rows[uid] if uid in self.rows else self.group.rows.get(uid)

    def loaded(self, write: Update | Remove) -> Image:
        """The row at exactly the version that the write was decided on."""
        if write.uid in self.versions:
            what = f"{write.kind} {write.uid}"
            raise InvalidSpec(f"one change writes {what} twice", remedy="put the steps into one update")
        return _loaded(self.group, write)

    def put(self, old: Image | None, new: Image) -> None:
        """Replace a row; a live one claims its name."""
        self.rows[new.uid] = new
        self.versions[new.uid] = new.version
        if new.shape.claims_name:
            _claim(self.group, self.more().names, old, new)

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

    def record(self, row: Image, source: str | None, to: str) -> None:
        """Append the history row of a row that was created or removed."""
        self.history.append(history_line(self.by(), row, source, to))

    def remember(self, key: Key) -> None:
        """Keep the key's answer."""
        self.more().new_keys.append((key.namespace, key.key, key.intent, dumps(key.result), self.group.now))

    def keep(self, key: Key | None) -> Committed:
        """Make the draft part of its group."""
        group = self.group
        if group.used:
            quotas.admit(group, self.rows)
        group.rows.update(self.rows)
        group.history += self.history
        if self.rest is not None:
            self._keep_rest(self.rest)
        return Committed(self.versions, group.cursor(), group.now, False, key.result if key else None)

    def _keep_rest(self, rest: "_Rest") -> None:
        group = self.group
        group.rename(rest.names)
        for holding, taken in rest.held.items():
            _count(group, group.let_go(holding), -1)
            if taken is not None:
                group.hold(taken)
                _count(group, taken, 1)
        group.buried.update(values[0] for values in rest.tombstones)
        group.tombstones += rest.tombstones
        for values in rest.new_keys:
            group.keys[values[0], values[1]] = (values[2], values[3])
        group.new_keys += rest.new_keys


def _count(group: Group, hold: Hold | None, times: int) -> None:
    """Keep the sums of a namespace whose use this group adds to."""
    if hold is not None and hold.namespace in group.used:
        add(group.used[hold.namespace], quotas.amounts_of(hold), times)


def _loaded(group: Group, write: Update | Remove) -> Image:
    row = group.rows.get(write.uid)
    if row is not None and row.version == write.version and row.shape.kind == write.kind:
        return row
    if row is None or row.shape.kind != write.kind:
        target = f"{write.kind} {write.uid}"
        said = f"cannot write {target}: there is no such row any more"
    else:
        target = row.target
        said = f"cannot write {target}: it is at version {row.version}, the decision was made on {write.version}"
    raise StaleVersion(said, remedy="load again and decide anew", target=target)


def _claim(group: Group, names: dict[NameKey, str | None], old: Image | None, new: Image) -> None:
    """Note in `names` what becomes of the names of a row; what is noted there goes before what the group knows."""
    was, now = _name_of(old), _name_of(new)
    if was == now:
        return
    if was is not None:
        names[was] = None
    if now is not None:
        for kind in (now[0], *(k for k in NAMED_WITH[now[0]] if k != now[0])):
            key = (kind, *now[1:])
            owner = names[key] if key in names else group.names.get(key)
            if owner not in (None, new.uid):
                raise Conflict(
                    f"{kind} {new.namespace}/{new.name} exists already",
                    remedy="change that one, delete it first, or choose another name",
                    target=f"{kind} {new.namespace}/{new.name}",
                )
        names[now] = new.uid


def _name_of(row: Image | None) -> NameKey | None:
    return (row.shape.kind, row.namespace, row.name) if row is not None and row.live else None


def _replay(group: Group, key: Key) -> Committed | None:
    stored = group.keys.get((key.namespace, key.key))
    if stored is None:
        return None
    intent, result = stored
    if intent != key.intent:
        raise KeyReused(
            f"the key {key.key!r} was used for a different request",
            remedy="draw a new key for a new request; repeat the first request unchanged to get its answer",
        )
    return Committed({}, group.cursor(), group.now, True, loads(result))


def _check_fence(group: Group, fence: Fence) -> None:
    held = group.leases.get(fence.name)
    if held != fence.generation:
        now = "nobody holds it" if held is None else f"generation {held} holds it"
        raise Fenced(
            f"the lease {fence.name!r} is no longer held by generation {fence.generation}: {now}; nothing was written",
            remedy="acquire the lease again and load again",
        )


def _digest(row: Image) -> str:
    """What it was: its own digest where it has one, else of its spec, else of all its fields."""
    doc = loads(row.doc)
    if doc.get("digest"):
        return str(doc["digest"])
    return "sha256:" + hashlib.sha256(canonical(doc.get("spec") or doc)).hexdigest()

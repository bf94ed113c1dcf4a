"""Noun ⇄ row. One `Shape` a noun says which field lives in which column and which in `doc`.

`doc` leaves out what has its default, which is most of it: a row is a third as long so, and is read and written in half
the time. A default is therefore part of the stored form, like a field's name: neither may change its meaning.

Forward compatible: unknown keys of `doc` are ignored, missing ones get the field's default, so a row written by the
release before or after can be read. Called by `batch.py` (writes) and `store.py` (reads). No SQL here.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

import orjson

from moorage.domain.errors import InvalidSpec
from moorage.domain.nouns import KINDS, Noun
from moorage.domain.reasons import Reason, ReasonClass
from moorage.domain.states import TERMINAL_RUN
from moorage.store.tables import NAMED_ONCE, searched_fields

N = TypeVar("N", bound=Noun)

FIXED = ("uid", "namespace", "name", "state", "version", "created_at", "updated_at", "reason")
"""Columns of every noun, in the order in which rows are selected; the searched ones and `doc` follow."""

_PROTECTED = frozenset({"uid", "version", "created_at", "updated_at", "reason"})


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """How one noun is stored.

    Args:
        state_of: its states by their words.
        fields: the fields of `columns`, without `doc`.
        searched, places: fields with a column of their own, and where each stands among them.
        doc: fields kept in the `doc` column, each with its default; `doc_of` reads them off a row.
        tuples: those of `doc` that are tuples in the noun and lists in JSON.
        settable: fields that an `Update` may set.
        roots: places in `searched` of the uids under one of which its history is read, the first that is set.
            A row that has none set is its own root.
        claims_name: whether its live rows have (namespace, name) to themselves.
    """

    cls: type[Noun]
    kind: str
    table: str
    state_of: Mapping[str, StrEnum]
    fields: tuple[str, ...]
    searched: tuple[str, ...]
    places: Mapping[str, int]
    doc: Mapping[str, Any]
    doc_of: Callable[[Noun], tuple[Any, ...]]
    tuples: frozenset[str]
    settable: frozenset[str]
    roots: tuple[int, ...]
    claims_name: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns in the order of `decode`."""
        return (*FIXED, *self.searched, "doc")

    def root(self, uid: str, searched: tuple[Any, ...]) -> str:
        """The uid under which the history of everything that belongs together is read."""
        for place in self.roots:
            if searched[place]:
                return str(searched[place])
        return uid


@dataclass(slots=True)
class Image:
    """A row as the writer handles it: columns decoded, `reason` and `doc` still JSON text.

    Decoding and encoding JSON is much of the cost of a write: an update that leaves `doc` alone never touches it. Being
    text, nothing of it can change under us.
    """

    shape: Shape
    uid: str
    namespace: str
    name: str
    state: str
    version: int
    created_at: float
    updated_at: float
    reason: bytes | str | None
    searched: tuple[Any, ...]
    root: str
    doc: bytes | str

    def get(self, field: str) -> Any:
        """A searched column, or None where the noun has none of that name."""
        searched = self.shape.searched
        return self.searched[searched.index(field)] if field in searched else None

    @property
    def live(self) -> bool:
        """Whether the row claims its name."""
        if self.shape.kind in _ALWAYS_LIVE:
            return True
        if self.shape.kind == "Run":
            return bool(self.name) and self.get("deployment") is None and self.state not in _TERMINAL_RUN
        return False

    @property
    def target(self) -> str:
        """What a message about it says."""
        return f"{self.shape.kind} {self.namespace}/{self.name or self.uid}"


_ALWAYS_LIVE = frozenset({"Deployment", "Endpoint", "Key"})
_TERMINAL_RUN = frozenset(str(s) for s in TERMINAL_RUN)


def dumps(value: Any) -> str:
    """JSON text of plain values, tuples and read-only mappings.

    Raises:
        InvalidSpec: the value has no JSON form.
    """
    try:
        return orjson.dumps(value, _plain).decode()
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"a value cannot be stored as JSON: {error}", remedy="use JSON values only") from error


def canonical(value: Any) -> bytes:
    """JSON with sorted keys, to compare and to digest."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SORT_KEYS)


def loads(text: bytes | str) -> Any:
    """The reverse of `dumps`."""
    return orjson.loads(text)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping | MappingProxyType):
        return dict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def shape_of(cls: type[Noun]) -> Shape:
    """The shape of one noun, read off its dataclass."""
    hints = get_type_hints(cls)
    searched = searched_fields(cls)
    kept = (f for f in dataclasses.fields(cls) if f.name not in {*FIXED, *searched, cls.state_field})
    doc = {f.name: _default(f) for f in kept}
    return Shape(
        cls=cls,
        kind=cls.kind,
        table=cls.kind.lower(),
        state_of={str(state): state for state in hints[cls.state_field]},
        fields=tuple(cls.state_field if n == "state" else n for n in (*FIXED, *searched)),
        searched=searched,
        places={n: place for place, n in enumerate(searched)},
        doc=doc,
        doc_of=attrgetter(*doc),
        tuples=frozenset(n for n in doc if getattr(hints[n], "__origin__", None) is tuple),
        settable=frozenset({"namespace", "name", *searched, *doc} - _PROTECTED),
        roots=tuple(searched.index(n) for n in ("deployment", "run", "target") if n in searched),
        claims_name=cls.kind in NAMED_ONCE,
    )


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


@cache
def shapes() -> Mapping[str, Shape]:
    """The shape of every noun by its kind word."""
    return MappingProxyType({kind: shape_of(cls) for kind, cls in KINDS.items()})


def image_of(shape: Shape, row: Noun, *, reason: str, now: float) -> Image:
    """The first image of a row that is created at `now` (seconds since the epoch)."""
    searched = tuple(getattr(row, c) for c in shape.searched)
    values = shape.doc_of(row)
    return Image(
        shape=shape,
        uid=row.uid,
        namespace=row.namespace,
        name=row.name,
        state=row.state_word,
        version=1,
        created_at=row.created_at or now,
        updated_at=now,
        reason=reason,
        searched=searched,
        root=shape.root(row.uid, searched),
        doc=dumps({n: v for n, v, default in zip(shape.doc, values, shape.doc.values(), strict=True) if v != default}),
    )


def merged(old: Image, fields: Mapping[str, Any], names: Iterable[str] | None = None) -> str:
    """`Image.doc` of a row after `fields` of its `doc` are set.

    Args:
        names: which of `fields` are kept in `doc` (default: all of them).

    Raises:
        InvalidSpec: a value has no JSON form.
    """
    doc, defaults = orjson.loads(old.doc), old.shape.doc
    for name in fields if names is None else names:
        value = fields[name]
        if value != defaults[name]:
            doc[name] = value
        elif name in doc:
            del doc[name]
    return dumps(doc)


def image_from(shape: Shape, values: Sequence[Any]) -> Image:
    """An image from columns in the order of `Shape.columns`."""
    uid, namespace, name, state, version, created_at, updated_at, reason = values[:8]
    searched, doc = tuple(values[8:-1]), values[-1]
    root = shape.root(uid, searched)
    return Image(shape, uid, namespace, name, state, version, created_at, updated_at, reason, searched, root, doc)


def decode(shape: Shape, values: Sequence[Any]) -> Noun:
    """A noun from columns in the order of `Shape.columns`."""
    known, stored = dict(zip(shape.fields, values, strict=False)), orjson.loads(values[-1])
    known["reason"], known[shape.cls.state_field] = reason_from(values[7]), shape.state_of[values[3]]
    if stored.keys() <= shape.doc.keys():
        known.update(stored)
    else:
        known.update((n, value) for n, value in stored.items() if n in shape.doc)
    if not shape.tuples.isdisjoint(stored):
        for n in shape.tuples & known.keys():
            known[n] = tuple(known[n])
    return shape.cls(**known)


@lru_cache(maxsize=4096)
def reason_from(text: bytes | str | None) -> Reason | None:
    """A reason from its stored form; the same texts come again and again."""
    return Reason.from_wire(orjson.loads(text)) if text else None


def reason_text(reason: Reason) -> str:
    """A reason as it is stored."""
    if reason.params:
        return dumps(reason.to_wire())
    return _constant_text(reason.code, reason.klass, reason.message, reason.advice)


class Texts:
    """The stored forms of reasons that a group met: one object is often the reason of many of its rows."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[Reason, str]] = {}
        """by identity; the reason is kept with its text, so that no other one comes to have its identity"""

    def of(self, reason: Reason) -> str:
        """A reason as it is stored."""
        found = self._known.get(id(reason))
        if found is None:
            found = self._known[id(reason)] = reason, reason_text(reason)
        return found[1]


@lru_cache(maxsize=1024)
def _constant_text(code: str, klass: ReasonClass, message: str, advice: str | None) -> str:
    """Reasons without params are the same few over and over."""
    return dumps(Reason(code, klass, message, {}, advice).to_wire())

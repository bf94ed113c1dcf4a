"""Who may ask gateways, and how much, as they are told: one rule a key and a namespace, kept from the rows.

Here: reading the rows and making the published form. Not here: making keys, checking them (the gateways do), the ledger
of limits, which asks here what they are. Called by the routing publisher.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeVar, cast

from moorage.domain.nouns import Key, Namespace
from moorage.domain.states import KeyState
from moorage.ports import Store
from moorage.wire.routing import Access, KeyRule, NamespaceRule, RateLimits

R = TypeVar("R", KeyRule, NamespaceRule)


class AccessRows:
    """Keeps them.

    Args:
        store: where the rows are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._keys: dict[str, KeyRule] = {}
        self._namespaces: dict[str, NamespaceRule] = {}
        self._names: dict[str, str] = {}
        """uid of a namespace's row -> its name"""
        self._versions: dict[str, int] = {}
        """of keys' rows, those included that open nothing any more"""
        self._published: Access | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def version(self, uid: str) -> int:
        """Version of the key's row that is kept; 0: there is none."""
        return self._versions.get(uid, 0)

    async def load(self) -> None:
        """Read all, in place of what is kept."""
        keys = await self._store.find(Key)
        self._keys = {row.uid: rule for row in keys if (rule := key_rule(row)) is not None}
        self._versions = {row.uid: row.version for row in keys}
        rows = await self._store.find(Namespace)
        self._names = {row.uid: row.name for row in rows}
        self._namespaces = {row.name: told for row in rows if (told := namespace_rule(row)) is not None}
        self._published = None

    async def refresh(self, kind: str, uid: str) -> bool:
        """Read one key or namespace again; whether gateways must hear of it.

        Args:
            kind: word of the noun.
        """
        if kind == Key.kind:
            row = await self._store.get(Key, uid)
            changed = _put(self._keys, uid, key_rule(row) if row is not None else None)
            self._versions.pop(uid, None)
            if row is not None:
                self._versions[uid] = row.version
        else:
            found = await self._store.get(Namespace, uid)
            name = self._names.setdefault(uid, found.name if found is not None else uid)
            changed = _put(self._namespaces, name, namespace_rule(found) if found is not None else None)
        if changed:
            self._published = None
        return changed

    def limits(self, subject: str) -> RateLimits | None:
        """Of `namespace/NAME` or `key/UID`; None: none."""
        kind, _, name = subject.partition("/")
        rules: Mapping[str, KeyRule | NamespaceRule] = self._namespaces if kind == "namespace" else self._keys
        rule = rules.get(name)
        return None if rule is None else rule.limits

    def published(self, number: int) -> Access:
        """All of it; the number stays until something is another.

        Args:
            number: of the table that tells it first.
        """
        if self._published is None:
            keys, namespaces = tuple(self._keys.values()), tuple(self._namespaces.values())
            self._published = Access(number=number, keys=keys, namespaces=namespaces)
        return self._published


def key_rule(row: Key) -> KeyRule | None:
    """A key as its row says; None of one that opens nothing any more."""
    if row.state == KeyState.REVOKED:
        return None
    return KeyRule(
        uid=row.uid,
        name=row.name,
        namespace=row.namespace,
        digest=row.digest,
        endpoints=tuple(row.endpoints),
        expires_at=row.expires_at,
        limits=_limits(row.limits),
    )


def namespace_rule(row: Namespace) -> NamespaceRule | None:
    """A namespace as its row says; None of one that asks for no key and has no limit."""
    limits = _limits(row.limits)
    if row.keys == "optional" and limits == RateLimits():
        return None
    return NamespaceRule(namespace=row.name, keys=cast(Literal["optional", "required"], row.keys), limits=limits)


def _limits(amounts: Mapping[str, Any]) -> RateLimits:
    return RateLimits(**{name: int(amounts[name]) for name in RateLimits.model_fields if amounts.get(name) is not None})


def _put(rules: dict[str, R], name: str, rule: R | None) -> bool:
    before = rules.pop(name, None)
    if rule is not None:
        rules[name] = rule
    return before != rule

"""Who asks: clients' keys as the control plane published them, looked up by the digest of what a client shows.

A credential is hashed once and remembered, bounded, so that random keys cannot grow the memory. A look-up by hash tells
nothing through its timing of a secret of 256 random bits. Not here: reading heads, limits. Nothing here writes a
credential anywhere.
"""

import hashlib
from collections.abc import Callable
from typing import Final

from moorage.decide.serving.routes import Refuse
from moorage.wire.routing import Access, KeyRule

REMEMBERED_MAX: Final = 4096
PREFIX: Final = b"moor-key."


class Keys:
    """The rules, and which key a credential is.

    Args:
        clock: seconds since the epoch, for expiry.
    """

    __slots__ = ("_by_digest", "_clock", "_known", "_required", "active", "on_change")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_digest: dict[str, KeyRule] = {}
        self._known: dict[bytes, KeyRule] = {}
        self._required: frozenset[str] = frozenset()
        self.active = False
        """whether there is a key, or a namespace that asks for one; one that is shown is looked at in any case"""
        self.on_change: Callable[[], None] = _nobody
        """called after each change of the rules"""

    def configure(self, access: Access | None) -> None:
        """Other rules, in place of those there were."""
        keys = access.keys if access is not None else ()
        rules = access.namespaces if access is not None else ()
        self._by_digest = {rule.digest: rule for rule in keys}
        self._required = frozenset(rule.namespace for rule in rules if rule.keys == "required")
        self._known.clear()
        self.active = bool(keys or self._required)
        self.on_change()

    def admit(self, credential: bytes | None, namespace: str, endpoint: str) -> KeyRule | Refuse | None:
        """The key that was shown and opens the endpoint, None where none was shown and none is needed, or a refusal.

        Args:
            credential: the text of a Moorage key as it came, or None; a foreign credential is none.
            namespace, endpoint: what is asked.
        """
        if credential is None:
            if namespace in self._required:
                return _refused(
                    401, "invalid_api_key", "this endpoint asks for a key: Authorization: Bearer moor-key.…"
                )
            return None
        rule = self.of(credential)
        if rule is None:
            return _refused(401, "invalid_api_key", "the key is unknown, revoked or expired")
        if rule.namespace != namespace or (rule.endpoints and endpoint not in rule.endpoints):
            return _refused(403, "key_not_allowed", "the key does not open this endpoint")
        return rule

    def of(self, credential: bytes) -> KeyRule | None:
        """The key, unless it is unknown or its time is over."""
        rule = self._known.get(credential)
        if rule is None:
            rule = self._by_digest.get(hashlib.sha256(credential).hexdigest())
            if rule is None:
                return None
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[credential] = rule
        return None if self.is_over(rule) else rule

    def is_over(self, rule: KeyRule) -> bool:
        """Whether the key's time is over."""
        return rule.expires_at is not None and self._clock() >= rule.expires_at


def _nobody() -> None:
    """Nobody keeps what the rules meant."""


def _refused(status: int, code: str, message: str) -> Refuse:
    return Refuse(status, code, message)

"""Where requests lead that agree in the key they show and in the name in their body: found once, then looked up.

Here: the look-up, and when it is void. Not here: which requests may be sent on by it (`frontend`), names
(the core), keys (`keys`), limits, which are asked anew for each request. Only ways that are open are kept: whoever has
none goes the long way, where each refusal is made. Owned by `hub`; emptied with each table and each change of keys.
"""

from typing import Final

from moorage.decide.serving.binding import BindingState
from moorage.decide.serving.routes import EndpointState, Refuse
from moorage.decide.serving.routing import Router
from moorage.gateway.keys import Keys
from moorage.wire.routing import KeyRule

KNOWN_MAX: Final = 4096
"""Keys times names; random names and keys are not kept, since they lead nowhere."""


class Way:
    """Where they lead, and whose they are.

    Args:
        name: that they name.
        endpoint: the deployment's own, where they name that.
        binding: the endpoint that people made, where they name one; it draws whose turn it is.
        rule: of the key; None: none was shown and none is needed.
    """

    __slots__ = ("binding", "endpoint", "expiring", "key_name", "straight", "tenant")

    def __init__(
        self, name: str, endpoint: EndpointState | None, binding: BindingState | None, rule: KeyRule | None
    ) -> None:
        self.straight = endpoint if endpoint is not None and _is_straight(endpoint, name) else None
        """the same endpoint, where nothing of a request has to be changed or looked at for it, limits apart"""
        self.endpoint = endpoint
        self.binding = binding
        self.tenant, self.key_name = ("", "") if rule is None else (rule.uid, rule.name)
        self.expiring = None if rule is None or rule.expires_at is None else rule
        """the rule of a key whose time ends"""


class Ways:
    """The ways of one gateway process."""

    __slots__ = ("_keys", "_router", "known")

    def __init__(self, router: Router, keys: Keys) -> None:
        self._router = router
        self._keys = keys
        self.known: dict[tuple[bytes, str], Way] = {}
        """by credential (empty: none) and name; `of` looks at the time of those that have one"""

    def of(self, credential: bytes, name: str) -> Way | None:
        """Where a request leads that shows this and names that; None where that has to be looked into."""
        way = self.known.get((credential, name))
        if way is None:
            return self._learn(credential, name)
        if way.expiring is not None and self._keys.is_over(way.expiring):
            del self.known[credential, name]
            return None
        return way

    def forget(self) -> None:
        """Names or keys may mean something else from now on."""
        self.known.clear()

    def _learn(self, credential: bytes, name: str) -> Way | None:
        endpoint = self._router.find(name)
        binding = None
        if endpoint is not None:
            namespace, called = endpoint.route.namespace, endpoint.route.name
        else:
            binding = self._router.bound(name)
            if binding is None:
                return None
            namespace, called = binding.spec.namespace, binding.spec.name
        rule = self._keys.admit(credential or None, namespace, called)
        if isinstance(rule, Refuse):
            return None
        way = Way(name, endpoint, binding, rule)
        if len(self.known) >= KNOWN_MAX:
            self.known.clear()
        self.known[credential, name] = way
        return way


def _is_straight(endpoint: EndpointState, name: str) -> bool:
    return endpoint.route.limits.affinity == "none" and (endpoint.called is None or name in endpoint.called)

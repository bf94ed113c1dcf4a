"""Where requests lead that agree in the key they show and in the name in their body: found once, then looked up.

Here: the look-up, and when it is void. Not here: which requests may be sent on by it (`frontend`), names
(the core), keys (`keys`), limits, which are asked anew for each request. Only ways that are open are kept: whoever has
none goes the long way, where each refusal is made. Owned by `hub`; emptied with each table and each change of keys.
"""

from collections.abc import Callable
from typing import Final

from moorage.decide.serving.binding import BindingState
from moorage.decide.serving.routes import EndpointState, Refuse
from moorage.decide.serving.routing import Router
from moorage.gateway.keys import Keys

KNOWN_MAX: Final = 4096
"""Keys times names; random names and keys are not kept, since they lead nowhere."""


class Way:
    """Where they lead, and whose they are.

    Args:
        endpoint: the deployment's own, where they name that.
        binding: the endpoint that people made, where they name one; it draws whose turn it is.
        tenant: uid of the key; empty: none was shown and none is needed.
        key_name: its name.
        expires_at: when the key's time is over, seconds since the epoch.
    """

    __slots__ = ("binding", "endpoint", "expires_at", "key_name", "tenant")

    def __init__(
        self,
        endpoint: EndpointState | None,
        binding: BindingState | None,
        tenant: str,
        key_name: str,
        expires_at: float | None,
    ) -> None:
        self.endpoint = endpoint
        self.binding = binding
        self.tenant = tenant
        self.key_name = key_name
        self.expires_at = expires_at


class Ways:
    """The ways of one gateway process.

    Args:
        clock: seconds since the epoch, for keys that expire.
    """

    __slots__ = ("_clock", "_keys", "_router", "known")

    def __init__(self, router: Router, keys: Keys, clock: Callable[[], float]) -> None:
        self._router = router
        self._keys = keys
        self._clock = clock
        self.known: dict[tuple[bytes, str], Way] = {}
        """by credential (empty: none) and name; `of` looks at the time of those that have one"""

    def of(self, credential: bytes, name: str) -> Way | None:
        """Where a request leads that shows this and names that; None where that has to be looked into."""
        way = self.known.get((credential, name))
        if way is None:
            return self._learn(credential, name)
        expires_at = way.expires_at
        if expires_at is not None and self._clock() >= expires_at:
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
        if rule is None:
            way = Way(endpoint, binding, "", "", None)
        else:
            way = Way(endpoint, binding, rule.uid, rule.name, rule.expires_at)
        if len(self.known) >= KNOWN_MAX:
            self.known.clear()
        self.known[credential, name] = way
        return way

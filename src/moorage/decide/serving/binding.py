"""Endpoints that people made: a name, the deployments that answer for it, and whose turn it is.

Here: drawing a deployment's endpoint by weight, by turns that are counted, never by luck. Not here: names (`routing`),
which replica (`picking`). Used by `routing` and by the gateway's rooms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from moorage.decide.serving import refusals
from moorage.decide.serving.routes import DEFAULT_NAMESPACE, EndpointState, Refuse

_CANNOT_SERVE: Final = ("failed", "stopped")
_WHOLE: Final = 1_000_000
"""One turn."""


@dataclass(frozen=True, slots=True)
class BindingSpec:
    """One of the table: deployments of the same namespace by name, with their weights."""

    uid: str
    name: str
    namespace: str = DEFAULT_NAMESPACE
    routes: tuple[tuple[str, int], ...] = ()


class _Way:
    """One deployment behind it. `credit`: its part of the turns so far, less those that were its; in millionths."""

    __slots__ = ("credit", "endpoint", "part", "weight")

    def __init__(self, endpoint: EndpointState, weight: int, credit: int) -> None:
        self.endpoint = endpoint
        self.part = 0
        """of each turn, while it is one of those that may be drawn"""
        self.weight = weight
        self.credit = credit


class BindingState:
    """One of them; kept over changes of the table."""

    __slots__ = ("_able", "_given", "_ways", "public_id", "spec")

    def __init__(self, spec: BindingSpec) -> None:
        self.spec = spec
        self.public_id = _public_id(spec)
        """what clients write as `model`"""
        self._able: list[_Way] = []
        """those that may be drawn, as the table says"""
        self._given = 0
        """all their parts of one turn"""
        self._ways: list[_Way] = []

    @property
    def endpoints(self) -> list[EndpointState]:
        """Of the deployments that may answer for it now."""
        return [way.endpoint for way in self._ways]

    def update(self, spec: BindingSpec, find: Callable[[str, str], EndpointState | None]) -> None:
        """Take what the table says. What each has coming is kept, so that shares hold over all changes.

        Args:
            find: a deployment's own endpoint, by namespace and name; None when the table does not have it.
        """
        before = {way.endpoint: way.credit for way in self._ways}
        ways = []
        for deployment, weight in spec.routes:
            endpoint = find(spec.namespace, deployment) if weight > 0 else None
            if endpoint is not None:
                ways.append(_Way(endpoint, weight, before.get(endpoint, 0)))
        self.spec = spec
        self.public_id = _public_id(spec)
        self._ways = ways
        self._able = [way for way in ways if way.endpoint.route.mode not in _CANNOT_SERVE] or ways
        total = sum([way.weight for way in self._able])
        for way in self._able:
            way.part = _WHOLE * way.weight // total
        self._given = sum([way.part for way in self._able])

    def draw(self) -> EndpointState | Refuse:
        """Whose turn it is, of those that can serve; of all when none can, so that its error is told."""
        ways = self._ways
        if len(ways) == 1:
            return ways[0].endpoint
        if not ways:
            return refusals.leads_nowhere(self.public_id)
        best = self._able[0]
        highest = best.credit + best.part
        for way in self._able:
            way.credit = credit = way.credit + way.part
            if credit > highest:
                best, highest = way, credit
        best.credit = highest - self._given
        return best.endpoint


def _public_id(spec: BindingSpec) -> str:
    return spec.name if spec.namespace == DEFAULT_NAMESPACE else f"{spec.namespace}/{spec.name}"

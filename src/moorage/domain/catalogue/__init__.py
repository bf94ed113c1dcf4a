"""The catalogue of reasons: every code there is, with its class, sentence, params and advice.

Data only, one module a group of nouns. `reasons.reason` builds checked reasons from it, and the reference page is
generated from it. Codes are stable: programs match on them. A param in a sentence may say how it is shown
(`{d:duration}` seconds, `{done:size}` bytes, `{at:time}` seconds since the epoch, `{need:cpu}` thousandths of a
core); see `reasons.render`. Work in another namespace is never named: such a param holds `ANOTHER_NAMESPACE`.
"""

from collections.abc import Mapping
from types import MappingProxyType

from moorage.domain.catalogue import (
    access,
    deployments,
    guard,
    machines,
    namespaces,
    operations,
    parts,
    placement,
    replicas,
    runs,
    stops,
    workers,
)
from moorage.domain.reason_types import ReasonType

ANOTHER_NAMESPACE = "work in another namespace"
"""Stands in a reason's params for the name of work that its reader may not know of."""

GROUPS: Mapping[str, tuple[ReasonType, ...]] = MappingProxyType(
    {
        "Runs": runs.ENTRIES,
        "Workers": workers.ENTRIES,
        "Stops": stops.ENTRIES,
        "The queue": placement.QUEUE,
        "Why a machine does not take a worker": placement.NODES,
        "Machines and gateways": machines.ENTRIES,
        "Namespaces": namespaces.ENTRIES,
        "Keys": access.KEYS,
        "Endpoints": access.ENDPOINTS,
        "Deployments": deployments.ENTRIES,
        "Replicas": replicas.ENTRIES,
        "Revisions": deployments.REVISIONS,
        "The release guard": guard.ENTRIES,
        "Operations": operations.ENTRIES,
        "The parts of one machine": parts.ENTRIES,
    }
)
"""The entries in the order in which the reference shows them."""


def _index() -> Mapping[str, ReasonType]:
    out: dict[str, ReasonType] = {}
    for entry in (entry for group in GROUPS.values() for entry in group):
        if entry.code in out:
            raise ValueError(f"two entries for the code {entry.code}")
        out[entry.code] = entry
    return MappingProxyType(out)


CATALOGUE: Mapping[str, ReasonType] = _index()
"""Code → entry."""

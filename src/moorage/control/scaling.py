"""How a deployment scales, for people: its size, its limits, the last decision with its reason, the load.

`scaling_object` is pure; `Scaling` reads the rows and the history. Called by the API's routes and by `explain`.
"""

from collections.abc import Awaitable, Callable, Sequence

from moorage.control.views import JsonObject, change_object, iso, plain
from moorage.decide.serving.autoscale import Policy
from moorage.decide.serving.phase import desired_replicas
from moorage.decide.serving.snapshot import Load
from moorage.domain.changes import HistoryRow
from moorage.domain.nouns import Deployment
from moorage.domain.reasons import Reason, reason
from moorage.ports import Store

DECISIONS = 20
"""The newest ones that are shown."""

LOOKED_THROUGH = 500
"""Rows of the deployment's own history among which they are looked for."""


def scaling_object(row: Deployment, load: Load | None, decisions: Sequence[HistoryRow] = ()) -> JsonObject:
    """A Scaling.

    Args:
        row: the deployment.
        load: what this control plane watched; None: it watches nothing (it does not lead, or the size is fixed).
        decisions: oldest first.
    """
    policy, kept = Policy.of(row.spec), row.scaling or {}
    slo = policy.slo
    return {
        "kind": "Scaling",
        "id": row.uid,
        "name": row.name,
        "namespace": row.namespace,
        "desired": desired_replicas(row),
        "min": int((row.spec.get("replicas") or {}).get("min", 1)),
        "max": policy.high,
        "scales": policy.scales,
        "target_in_flight": policy.unit,
        "up_after": policy.up_after_s,
        "down_after": policy.down_after_s,
        "slo": {"ttft_p95": slo.ttft_p95_s, "latency_p95": slo.latency_p95_s} if slo else None,
        "reason": last_reason(row).to_wire(),
        "since": iso(kept.get("since")),
        "decided_at": iso(kept.get("at")),
        "goodput": plain(kept.get("goodput")),
        "load": _load(load) if load is not None and policy.scales else None,
        "decisions": [change_object(d) for d in decisions],
    }


def last_reason(row: Deployment) -> Reason:
    """Of the last decision; one that has one size alone does not scale, whether or not that was ever written."""
    kept = (row.scaling or {}).get("reason")
    if kept is None or not Policy.of(row.spec).scales:
        return reason("scale.disabled") if not Policy.of(row.spec).scales else reason("scale.undecided")
    return reason(kept["code"], **dict(kept.get("params") or {}))


def _load(load: Load) -> JsonObject:
    return {
        "stable": round(load.stable, 3),
        "urgent": round(load.urgent, 3),
        "peak": round(load.peak, 3),
        "stable_s": round(load.stable_s, 1),
        "urgent_s": round(load.urgent_s, 1),
        "rate": round(load.rate, 3),
        "ttft_p95": load.ttft_p95_s,
        "latency_p95": load.latency_p95_s,
        "samples": load.samples,
    }


class Scaling:
    """Answers how a deployment scales.

    Args:
        store: where rows and history are.
        find: the deployment of a namespace and name; raises NotFound.
        load: what this control plane watched of a deployment.
    """

    def __init__(
        self,
        store: Store,
        find: Callable[[str, str], Awaitable[Deployment]],
        load: Callable[[Deployment], Load] | None,
    ) -> None:
        self._store = store
        self._find = find
        self._load = load

    async def show(self, namespace: str, name: str) -> JsonObject:
        """A Scaling with its newest decisions.

        Raises:
            NotFound: there is no such deployment.
        """
        row = await self._find(namespace, name)
        rows = await self._store.history(uid=row.uid, limit=LOOKED_THROUGH, newest_first=True)
        told = [r for r in rows if r.reason.code.startswith("scale.")][:DECISIONS]
        return scaling_object(row, self._load(row) if self._load else None, told[::-1])

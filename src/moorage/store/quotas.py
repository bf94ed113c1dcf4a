"""Quotas inside the group's transaction: sums over live rows, read when something is added, and checked item by item.

Nothing is counted up anywhere: what a namespace holds is summed over its holdings, and its runs and deployments are
counted, in the very transaction that adds to them, while the namespace's row is locked. So no two decisions can exceed
a quota together, and nothing can leak. `load` is called by `load.py`, the checks by `holds.py` and `batch.py`.
"""

from collections.abc import Container, Iterable, Mapping

import sqlalchemy as sa

from moorage.domain import quotas
from moorage.domain.changes import Hold
from moorage.domain.errors import QuotaExceeded, StaleVersion
from moorage.domain.ids import namespace_uid
from moorage.domain.quotas import Amounts
from moorage.domain.states import DeploymentStatus
from moorage.store.group import Group, HoldingKey
from moorage.store.rows import Image, loads
from moorage.store.sql import Sql

ROWS = frozenset({"Run", "Deployment"})
"""Nouns whose live rows are counted."""

_OVER = frozenset({str(DeploymentStatus.STOPPED), str(DeploymentStatus.FAILED)})
"""States in which a deployment has no replicas any more."""


def load(
    sql: Sql,
    connection: sa.Connection,
    group: Group,
    *,
    placing: Iterable[str],
    adding: Iterable[str],
    written: Container[str],
) -> None:
    """What the namespaces with a quota hold and have. Their rows are in the group, and locked, already.

    Args:
        placing: namespaces of holdings that are taken.
        adding: namespaces in which runs or deployments are made, or deployments changed.
        written: uids of the namespaces that this group changes: they may have a quota by then.
    """
    held = [ns for ns in placing if limits_of(group, ns) or namespace_uid(ns) in written]
    counted = [ns for ns in adding if limits_of(group, ns) or namespace_uid(ns) in written]
    group.used.update({ns: {} for ns in (*held, *counted)})
    if held:
        _load_held(sql, connection, group, held)
    if counted:
        _load_counts(sql, connection, group, counted)


def limits_of(group: Group, namespace: str) -> Amounts:
    """The quota of a namespace as the group has it by now; empty: unlimited."""
    row = group.rows.get(namespace_uid(namespace))
    if row is None:
        return {}
    if group.limits.get(namespace, (None, {}))[0] is not row:
        group.limits[namespace] = (row, loads(row.doc).get("limits") or {})
    return group.limits[namespace][1]


def _load_held(sql: Sql, connection: sa.Connection, group: Group, namespaces: list[str]) -> None:
    held, gpu = sql.tables.holdings, sql.tables.holding_gpus
    sums = sql.cached(
        "quota_held",
        lambda: (
            sa.select(held.c.namespace, sa.func.sum(held.c.cpu_milli), sa.func.sum(held.c.memory_bytes))
            .where(sql.one_of(held.c.namespace, "names"))
            .group_by(held.c.namespace)
        ),
    )
    for namespace, cpu_milli, memory_bytes in sums.rows(connection, names=sql.many(namespaces)):
        quotas.add(group.used[namespace], {quotas.CPU: int(cpu_milli), quotas.MEMORY: int(memory_bytes)})
    models = sql.cached(
        "quota_gpus",
        lambda: (
            sa.select(gpu.c.namespace, gpu.c.model, sa.func.count())
            .where(sql.one_of(gpu.c.namespace, "names"))
            .group_by(gpu.c.namespace, gpu.c.model)
        ),
    )
    for namespace, model, count in models.rows(connection, names=sql.many(namespaces)):
        used = {quotas.GPUS: int(count), **({quotas.of_model(model): int(count)} if model else {})}
        quotas.add(group.used[namespace], used)


def _load_counts(sql: Sql, connection: sa.Connection, group: Group, namespaces: list[str]) -> None:
    run, deployment = sql.tables.nouns["Run"], sql.tables.nouns["Deployment"]
    runs = sql.cached(
        "quota_runs",
        lambda: (
            sa.select(run.c.namespace, sa.func.count())
            .where(run.c.live, sql.one_of(run.c.namespace, "names"))
            .group_by(run.c.namespace)
        ),
    )
    for namespace, count in runs.rows(connection, names=sql.many(namespaces)):
        quotas.add(group.used[namespace], {quotas.RUNS: int(count)})
    deployments = sql.cached(
        "quota_deployments",
        lambda: sa.select(deployment.c.namespace, deployment.c.state, deployment.c.doc).where(
            sql.one_of(deployment.c.namespace, "names")
        ),
    )
    for namespace, state, doc in deployments.rows(connection, names=sql.many(namespaces)):
        quotas.add(group.used[namespace], {quotas.DEPLOYMENTS: 1, quotas.REPLICAS: _replicas(state, doc)})


def _replicas(state: str, doc: str | bytes) -> int:
    if state in _OVER:
        return 0
    asked = (loads(doc).get("spec") or {}).get("replicas") or {}
    return int(asked.get("max") or 1)


def counts_of(row: Image | None) -> Amounts:
    """What one row counts as."""
    if row is None or not row.live or row.shape.kind not in ROWS:
        return {}
    if row.shape.kind == "Run":
        return {quotas.RUNS: 1}
    return {quotas.DEPLOYMENTS: 1, quotas.REPLICAS: _replicas(row.state, row.doc)}


def amounts_of(hold: Hold) -> dict[str, int]:
    """What one holding counts as."""
    return quotas.held(len(hold.gpus), hold.models[: len(hold.gpus)], hold.cpu_milli, hold.memory_bytes)


def check_hold(group: Group, drafted: Mapping[HoldingKey, Hold | None], write: Hold) -> None:
    """See that a placement stays within its namespace's quota.

    Args:
        drafted: what the change in the making has taken and given up so far.

    Raises:
        StaleVersion: it does not: the scheduler decided on other sums.
    """
    limits = limits_of(group, write.namespace)
    if not limits:
        return
    used = dict(group.used.get(write.namespace, {}))
    for key, taken in drafted.items():
        before = group.held.get(key)
        if before is not None and before.namespace == write.namespace:
            quotas.add(used, amounts_of(before), -1)
        if taken is not None and taken.namespace == write.namespace:
            quotas.add(used, amounts_of(taken))
    for over in quotas.exceeded(limits, used, amounts_of(write)):
        raise StaleVersion(
            f"the quota of {write.namespace} is {over.limit} {over.resource}: {over.used} are held and {over.asked} "
            "were asked for",
            remedy="load again and decide anew",
        )


def admit(group: Group, rows: Mapping[str, Image | None]) -> None:
    """See that changed rows stay within the quotas that count them, and count them in the group.

    Raises:
        QuotaExceeded: a run or deployment more, or more replicas, than the namespace may have.
    """
    more: dict[str, dict[str, int]] = {}
    for uid, new in rows.items():
        old = group.rows.get(uid)
        row = new or old
        if row is not None and row.shape.claims_name and row.namespace in group.used:
            news = more.setdefault(row.namespace, {})
            quotas.add(news, counts_of(new))
            quotas.add(news, counts_of(old), -1)
    for namespace, asked in more.items():
        for over in quotas.exceeded(limits_of(group, namespace), group.used[namespace], asked):
            if over.asked > 0:
                raise _refused(namespace, over)
    for namespace, asked in more.items():
        quotas.add(group.used[namespace], asked)


def _refused(namespace: str, over: quotas.Over) -> QuotaExceeded:
    what = {quotas.RUNS: "runs that are not over", quotas.DEPLOYMENTS: "deployments"}.get(
        over.resource, "replicas, summed over the `max` of its deployments"
    )
    return QuotaExceeded(
        f"the namespace {namespace} may have {over.limit} {what}: it has {over.used} and this would add {over.asked}",
        remedy=f"end or delete others first (`moor quota get {namespace}` shows the use), or have an administrator "
        f"raise it: moor quota set {namespace} --{over.resource} {over.used + over.asked}",
        target=f"Namespace {namespace}",
    )

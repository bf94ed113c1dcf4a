"""The transition tables of every noun, one module each, rows as the lifecycle contract has them.

Only data lives here: which state may follow which, and on what trigger word. What decides that a trigger happened is
in `decide`; what writes the state is the store, through `Table.check`. The reference pages are generated from these
tables and from each module's `TRIGGERS` (trigger word → one sentence).
"""

from collections.abc import Mapping
from types import MappingProxyType

from moorage.domain.lifecycles import (
    deployment,
    endpoint,
    key,
    machine,
    namespace,
    operation,
    replica,
    revision,
    run,
    runner,
    worker,
)
from moorage.domain.lifecycles.deployment import DEPLOYMENT
from moorage.domain.lifecycles.endpoint import ENDPOINT
from moorage.domain.lifecycles.key import KEY
from moorage.domain.lifecycles.machine import MACHINE
from moorage.domain.lifecycles.namespace import NAMESPACE
from moorage.domain.lifecycles.operation import OPERATION
from moorage.domain.lifecycles.replica import REPLICA
from moorage.domain.lifecycles.revision import REVISION
from moorage.domain.lifecycles.run import RUN
from moorage.domain.lifecycles.runner import RUNNER
from moorage.domain.lifecycles.worker import WORKER
from moorage.domain.transitions import Table

TABLES: Mapping[str, Table] = MappingProxyType(
    {
        t.noun: t
        for t in (
            *(DEPLOYMENT, REVISION, REPLICA, RUN, WORKER, MACHINE),
            *(OPERATION, NAMESPACE, KEY, ENDPOINT, RUNNER),
        )
    }
)
"""Every table by the noun's kind word (`Worker`)."""

TRIGGERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        DEPLOYMENT.noun: deployment.TRIGGERS,
        REVISION.noun: revision.TRIGGERS,
        REPLICA.noun: replica.TRIGGERS,
        RUN.noun: run.TRIGGERS,
        WORKER.noun: worker.TRIGGERS,
        MACHINE.noun: machine.TRIGGERS,
        OPERATION.noun: operation.TRIGGERS,
        NAMESPACE.noun: namespace.TRIGGERS,
        KEY.noun: key.TRIGGERS,
        ENDPOINT.noun: endpoint.TRIGGERS,
        RUNNER.noun: runner.TRIGGERS,
    }
)
"""For each kind word, what each trigger word means."""

__all__ = [
    "DEPLOYMENT",
    "ENDPOINT",
    "KEY",
    "MACHINE",
    "NAMESPACE",
    "OPERATION",
    "REPLICA",
    "REVISION",
    "RUN",
    "RUNNER",
    "TABLES",
    "TRIGGERS",
    "WORKER",
]

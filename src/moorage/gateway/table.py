"""The routing table between its wire form, the core's form and the disk.

Here: conversion, and the atomic file from which a gateway starts while the control plane is absent. Not here: when a
table is taken. Called by `control`.
"""

import fcntl
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from moorage.decide.serving.binding import BindingSpec
from moorage.decide.serving.routes import Generation, Limits, RevisionSpec, RouteSpec, TargetSpec
from moorage.wire.routing import EndpointRoute, RoutingTable

FILE_NAME = "routing-table.json"
_LOCK_NAME = "routing-table.lock"
_BEGINNING_BYTES: Final = 512
_BEGINS = re.compile(rb'\{"protocol":\d+,"incarnation":("[^"]*"),"number":(\d+),')


def generation_of(table: RoutingTable) -> Generation:
    """What orders the table."""
    return Generation(table.incarnation, table.number)


@dataclass(frozen=True, slots=True)
class Part:
    """What one process has of the counts that its gateway may have.

    Args:
        slot: which process, from 0.
        processes: how many there are.
    """

    slot: int = 0
    processes: int = 1

    def at_replica(self, most: int) -> int:
        """Of the requests in flight: what does not divide goes to the first ones. One at least, to be of use."""
        return max(1, most // self.processes + (self.slot < most % self.processes))

    def of_queue(self, most: int) -> int:
        """Of those that wait."""
        return -(-most // self.processes)


def routes_of(table: RoutingTable, part: Part) -> list[RouteSpec]:
    """The table as the core of one process takes it."""
    return [_route(endpoint, part) for endpoint in table.endpoints]


def bindings_of(table: RoutingTable) -> list[BindingSpec]:
    """Its endpoints that people made, as the core takes them."""
    return [
        BindingSpec(
            uid=binding.uid,
            name=binding.name,
            namespace=binding.namespace,
            routes=tuple((route.deployment, route.weight) for route in binding.routes),
        )
        for binding in table.bindings
    ]


def _route(endpoint: EndpointRoute, part: Part) -> RouteSpec:
    limits = endpoint.limits
    return RouteSpec(
        name=endpoint.name,
        mode=endpoint.mode,
        namespace=endpoint.namespace,
        model=endpoint.model,
        aliases=endpoint.aliases,
        targets=tuple(
            TargetSpec(
                replica=target.replica,
                revision=target.revision,
                host=target.host,
                port=target.port,
                worker=target.worker,
                machine=target.machine,
                weight=target.weight,
            )
            for target in endpoint.targets
        ),
        limits=Limits(
            max_in_flight=part.at_replica(limits.max_in_flight),
            max_queue=part.of_queue(limits.max_queue),
            queue_of_all=limits.max_queue if part.processes > 1 else None,
            queue_timeout_s=limits.queue_timeout_s,
            connect_timeout_s=limits.connect_timeout_s,
            first_byte_timeout_s=limits.first_byte_timeout_s,
            affinity=limits.affinity,
            retry=limits.retry,
            hold_comments_s=limits.hold_comments_s,
        ),
        error=endpoint.error,
        error_code=endpoint.error_code,
        wake_failures=endpoint.wake_failures,
        retry_after_s=endpoint.retry_after_s,
        deployment=endpoint.deployment,
        revisions=tuple(
            RevisionSpec(
                revision=told.revision,
                number=told.number,
                name=told.name,
                role=told.role,
                by=told.by,
                share=told.share,
            )
            for told in endpoint.revisions
        ),
        evidence_id=endpoint.evidence_id,
    )


class UnreadableTable(Exception):
    """The kept table cannot be used; the message says why."""


def load(state_dir: Path) -> RoutingTable | None:
    """The table kept last, None when there is none.

    Raises:
        UnreadableTable: a file is there and cannot be read.
    """
    path = state_dir / FILE_NAME
    try:
        return RoutingTable.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise UnreadableTable(f"{path}: {error}") from error


def save(state_dir: Path, table: RoutingTable) -> None:
    """Keep a table: whole or not at all, and on disk when this returns. Blocks; call it off the event loop.

    The processes of one gateway share the file: what another one has written is not replaced by a table before it.

    Raises:
        OSError: the disk would not take it.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    path = state_dir / FILE_NAME
    with (state_dir / _LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_after(path, table):
            _write(path, table)


def _is_after(path: Path, table: RoutingTable) -> bool:
    """Whether the file has a table after this one."""
    kept = _kept_generation(path)
    return kept is not None and kept.incarnation == table.incarnation and kept.number > table.number


def _kept_generation(path: Path) -> Generation | None:
    """What the kept table is ordered by; None: there is none, or one that nobody can start from.

    Its beginning tells it as `_write` writes it, and it has come whole where it ends as it should: a table may be of
    megabytes, and comes with each change.
    """
    try:
        with path.open("rb") as file:
            begins = _BEGINS.match(file.read(_BEGINNING_BYTES))
            file.seek(-1, os.SEEK_END)
            if begins is not None and file.read(1) == b"}":
                return Generation(json.loads(begins[1]), int(begins[2]))
        kept = json.loads(path.read_bytes())
        return Generation(kept["incarnation"], int(kept["number"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, table: RoutingTable) -> None:
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)  # one that was left would keep its mode
    # It tells digests of keys: nobody else reads it.
    with os.fdopen(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(table.model_dump_json().encode())
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def forget(state_dir: Path) -> None:
    """Remove the kept table: none is better than one older than what was confirmed."""
    (state_dir / FILE_NAME).unlink(missing_ok=True)

"""How a replica fails: the reason that its status shows, and whether trying again could help.

A replica's fail reason is found from the code with which its worker ended and from whether it was ever ready; the
status matters only for a code that this table does not know. Fatal means that the same spec will fail in the same way
again, so that a deployment with nothing else left fails with it.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from moorage.domain.states import ReplicaStatus


class FailReason(StrEnum):
    """Why a replica failed."""

    IMAGE_PULL_FAILED = "image_pull_failed"
    """denied, no such tag, a bad token, a private model"""
    IMAGE_PULL_UNAVAILABLE = "image_pull_unavailable"
    """time-out, server error, rate limit"""
    CONFIG_INVALID = "config_invalid"
    """the machine refuses the spec"""
    SETUP_FAILED = "setup_failed"
    """a secret is missing, ports are spent, the disk is full"""
    CONTAINER_INIT_FAILED = "container_init_failed"
    """it exits or is out of memory while it loads, or serves the wrong model"""
    NOT_READY_IN_TIME = "not_ready_in_time"
    """it lives and does not become ready"""
    CONTAINER_CRASHED = "container_crashed"
    """it ended, or was lost with its machine, or its probe failed for good"""


class ReplicaFailure(NamedTuple):
    """What a replica's failure means.

    Args:
        reason: the word its status shows.
        fatal: whether the same spec would fail in the same way again.
    """

    reason: FailReason
    fatal: bool


ALWAYS_FATAL = frozenset({FailReason.IMAGE_PULL_FAILED, FailReason.CONFIG_INVALID, FailReason.CONTAINER_INIT_FAILED})
"""`not_ready_in_time` is fatal the second time in a row; all others are not."""

LOST = frozenset(
    {
        "machine.lost",
        "machine.removed",
        "machine.rebooted",
        "machine.lease_expired",
        "heartbeat.expired",
        "container.missing",
        "exit.unknown",
        "live.failed",
    }
)
"""Codes that say nothing against the spec, however early they come: it was lost, or nothing says how it ended."""

_PULLS = frozenset({"image.pull_failed", "model.fetch_failed"})

BEFORE_READY: Mapping[str, FailReason] = MappingProxyType(
    {
        "image.absent": FailReason.IMAGE_PULL_FAILED,
        "pull.stalled": FailReason.IMAGE_PULL_UNAVAILABLE,
        "start.invalid": FailReason.CONFIG_INVALID,
        "config.write_failed": FailReason.CONFIG_INVALID,
        "prepare.timed_out": FailReason.SETUP_FAILED,
        "setup.failed": FailReason.SETUP_FAILED,
        "create.failed": FailReason.CONTAINER_INIT_FAILED,
        "start.failed": FailReason.CONTAINER_INIT_FAILED,
        "start.timed_out": FailReason.CONTAINER_INIT_FAILED,
        "exited": FailReason.CONTAINER_INIT_FAILED,
        "oom_killed": FailReason.CONTAINER_INIT_FAILED,
        "ready.wrong_model": FailReason.CONTAINER_INIT_FAILED,
        "ready.failed": FailReason.CONTAINER_INIT_FAILED,
        "ready.request_failed": FailReason.NOT_READY_IN_TIME,
        "ready.timed_out": FailReason.NOT_READY_IN_TIME,
        "ready.stalled": FailReason.NOT_READY_IN_TIME,
    }
)
"""Worker code → fail reason while the replica was never ready (pull codes apart: they say whether it is permanent)."""

_BY_STATUS: Mapping[ReplicaStatus, FailReason] = MappingProxyType(
    {
        ReplicaStatus.PENDING: FailReason.SETUP_FAILED,
        ReplicaStatus.PULLING: FailReason.IMAGE_PULL_UNAVAILABLE,
        ReplicaStatus.INITING: FailReason.CONTAINER_INIT_FAILED,
        ReplicaStatus.RUNNING: FailReason.CONTAINER_CRASHED,
    }
)


def replica_failure(
    code: str,
    params: Mapping[str, Any],
    *,
    was_ready: bool,
    status: ReplicaStatus,
    not_ready_before: bool = False,
) -> ReplicaFailure:
    """What a worker's end means for its replica.

    Args:
        code: the reason code with which the worker ended.
        params: that reason's params (`permanent` of a failed pull is read).
        was_ready: whether the replica was ready at any time.
        status: the replica's status then; decides only for a code that the table does not know.
        not_ready_before: whether the replica before it, on the same ordinal, ended with `not_ready_in_time` too.

    Raises:
        ValueError: the replica had ended already.
    """
    reason = _fail_reason(code, params, was_ready, status)
    if reason is FailReason.NOT_READY_IN_TIME:
        return ReplicaFailure(reason, fatal=not_ready_before)
    return ReplicaFailure(reason, fatal=reason in ALWAYS_FATAL)


def _fail_reason(code: str, params: Mapping[str, Any], was_ready: bool, status: ReplicaStatus) -> FailReason:
    if status not in _BY_STATUS:
        raise ValueError(f"a replica that is {status} cannot fail")
    if was_ready or code in LOST:
        return FailReason.CONTAINER_CRASHED
    if code in _PULLS:
        return FailReason.IMAGE_PULL_FAILED if params.get("permanent") else FailReason.IMAGE_PULL_UNAVAILABLE
    return BEFORE_READY.get(code) or _BY_STATUS[status]

"""Reasons of a stop: why a worker was asked to end, and how that went."""

from moorage.domain.catalogue.entry import by_person, failed, progress

_SEE_FIRST = "See the reason of the worker that ended first: `moor workers` on the run."
_TIME_LIMIT = "Raise the time limit, or let the program save its work and go on in a new run."

ENTRIES = (
    by_person("stop.user", "Stopped by a person: {text}", "text", optional=("by",)),
    progress("stop.default", "Stopped"),
    progress("stop.preempted", "Preempted by work of higher priority ({run})", "run"),
    failed("stop.time_limit", "Ran past its time limit of {d:duration}", "d", advice=_TIME_LIMIT),
    failed("stop.worker_time_limit", "Stopped because a worker of the run ran past its time limit", advice=_TIME_LIMIT),
    failed(
        "stop.member_time_limit", "Stopped because a member of its gang ran past its time limit", advice=_TIME_LIMIT
    ),
    failed(
        "stop.member_exhausted", "Stopped because the restarts of a member of its gang are spent", advice=_SEE_FIRST
    ),
    failed("stop.worker_failed", "Stopped because a worker failed, and the run fails with it", advice=_SEE_FIRST),
    failed("stop.run_failed", "Stopped because the run failed", advice=_SEE_FIRST),
    progress("stop.run_completed", "Stopped because the run completed"),
    by_person("stop.run_cancelled", "Stopped because the run was cancelled"),
    failed(
        "stop.barrier_timeout",
        "Stopped because its gang was not ready together in time",
        advice="See why the missing members are late with `moor why`; the gang is queued again.",
    ),
    by_person("stop.drain", "Stopped because {machine} is drained", "machine"),
    failed(
        "stop.disconnected",
        "Its machine got no answer from the control plane for {d:duration} and stopped it, as its spec asks",
        "d",
        advice="See what cut that machine off. With `on_disconnect: keep` work goes on while a machine is cut off.",
    ),
    progress("stop.confirmed", "Stopped; its process is gone", optional=("code", "signal", "killed")),
    failed(
        "stop.machine_lost",
        "Its machine was lost while it was stopping",
        optional=("machine",),
        advice="It counts as stopped. Should its machine come back with it still running, it is stopped there first.",
    ),
    by_person("stop.machine_removed", "Its machine was removed while it was stopping", optional=("machine",)),
    failed(
        "stop.unkillable",
        "Asked to stop, and its process has not gone since {since:time}",
        "since",
        optional=("pid",),
        advice="It keeps its place until it is gone. A process that even SIGKILL does not end hangs in the kernel (a "
        "device or a network file system): mend that, or reboot the machine.",
    ),
)

"""Reasons of a replica: the serving view of its run, and whether requests are routed to it."""

from moorage.domain.catalogue.entry import by_person, failed, progress, waiting

ENTRIES = (
    progress("replica.created", "Created", optional=("ordinal", "attempt")),
    waiting(
        "replica.queued",
        "Waits to be placed[: {why}]",
        optional=("why",),
        advice="Run `moor why` on it to see what keeps it off each machine.",
    ),
    progress("replica.pulling", "Fetching its image or model"),
    progress("replica.starting", "Its server is starting and loading the model"),
    waiting(
        "replica.not_ready",
        "Not ready yet: {why}",
        "why",
        advice="It is asked again by itself; `moor logs` shows what its server says.",
    ),
    progress("replica.ready", "Ready: healthy, and it lists the expected model", optional=("d", "address")),
    progress("replica.routed", "Requests are routed to it"),
    waiting(
        "replica.withdrawn",
        "No requests are routed to it: {why}",
        "why",
        advice="It is routed again when it is ready, or replaced; `moor logs` shows what its server says.",
    ),
    progress("replica.candidate", "Ready; its revision is a candidate, which gets no requests of clients"),
    progress("replica.revision_over", "Stopped: its revision was {state}", "state"),
    progress("replica.draining", "Draining: {streams} streams are still open", "streams", optional=("until",)),
    progress("replica.drained", "Drained: nothing of it is in flight"),
    progress("replica.scaled_down", "Stopped: fewer replicas are wanted"),
    by_person("replica.stopped", "Stopped with its deployment", optional=("by",)),
    progress("replica.replaced", "Replaced by {by}", "by"),
    progress("replica.preempted", "Preempted by work of higher priority ({run})", "run"),
    by_person("replica.machine_drained", "Stopped because {machine} is drained", "machine"),
    failed(
        "replica.barrier_timeout",
        "Stopped because its workers were not ready together in time",
        advice="See with `moor why` what the missing workers wait for; it is replaced by itself.",
    ),
    failed(
        "replica.failed",
        "Failed ({reason})[: {detail}]",
        "reason",
        optional=("detail", "exit_code", "probe", "fatal"),
        advice="What it wrote last is kept: `moor logs NAME` of its deployment shows it.",
    ),
    by_person("replica.deleted", "Deleted with its deployment"),
)

"""Reasons of an operation: durable work and the lease under which it is done."""

from moorage.domain.catalogue.entry import by_person, failed, progress, waiting

ENTRIES = (
    progress("op.created", "Accepted", optional=("operation",)),
    progress("op.leased", "A controller took it up", optional=("owner", "generation")),
    progress("op.started", "At its first step, {step}", "step"),
    waiting("op.lease_lost", "Its holder's lease is over; the next holder goes on", optional=("owner",)),
    progress("op.resumed", "Goes on at the step {step}", "step"),
    progress("op.step_done", "Step {step} is done", "step"),
    waiting("op.waiting", "Waits: {why}", "why", advice="Run `moor operations` with its id to see the step it is at."),
    waiting(
        "op.retry",
        "Tries again at {at:time}, after: {error}",
        "at",
        "error",
        optional=("attempt",),
        advice="If the message does not go away by itself, mend what it names; the operation goes on alone.",
    ),
    failed(
        "op.attempts_exhausted",
        "Every attempt allowed failed[; the last: {error}]",
        optional=("error", "n"),
        advice="Mend what the last error names, then ask for the same again under a new key.",
    ),
    by_person("op.cancel_requested", "Asked to end", optional=("by", "text")),
    by_person("op.cancelled", "Cancelled", optional=("by",)),
    progress("op.succeeded", "Done"),
    failed(
        "op.failed",
        "Failed: {error}",
        "error",
        optional=("step",),
        advice="Mend what the error names, then ask for the same again under a new key.",
    ),
    failed(
        "op.needs_attention",
        "Cannot tell for certain what is there, so nothing is touched: {evidence}",
        "evidence",
        advice="Look at what the evidence names, then end it with `moor operations resolve ID --adopt RESOURCE` or "
        "`--absent`.",
    ),
    by_person("op.resolved", "A person resolved it: {how}", "how", optional=("by", "evidence")),
    progress("op.certain", "What could not be told is certain by now"),
    by_person("op.deleted", "Pruned with what it was for"),
)

"""Reasons of a run, derived from those of its workers."""

from moorage.domain.catalogue.entry import by_person, failed, progress, waiting

_SEE_WORKER = "Run `moor logs` on the run and `moor inspect worker` on the worker: exit code and last lines are kept."

ENTRIES = (
    progress("run.created", "Accepted; the scheduler has not looked at it yet"),
    progress("run.planning", "Its workers are being planned"),
    waiting(
        "run.workers_waiting",
        "Its workers wait to start",
        optional=("waiting", "total"),
        advice="Run `moor why` on it to see what each worker waits for.",
    ),
    waiting(
        "run.cannot_plan",
        "Cannot be split into workers on these machines now ({why})[: {detail}]",
        "why",
        optional=("detail", "group", "gpus", "machines", "per_worker", "free"),
        advice="It is looked at again every 60 s and when the fleet changes. Ask for a number of GPUs that divides "
        "over the machines there are, or set how many each worker gets.",
    ),
    waiting("run.requeued", "Waits to run again ({cause})", "cause", optional=("run", "machine")),
    progress("run.starting", "Starting together: {ready} of {total} workers ready", "ready", "total"),
    progress("run.running", "{ready} of {total} workers running", "ready", "total"),
    progress("run.serving", "{ready} of {total} workers serving", "ready", "total"),
    progress("run.stopping", "Stopping: its machine ends {worker}[ ({why})]", "worker", optional=("why",)),
    progress("run.completed", "Every worker completed"),
    progress("run.group_completed", "Worker group {group} completed, and with it the run", "group"),
    failed(
        "run.worker_failed",
        "Worker {worker} failed on {machine}: {reason}",
        "worker",
        "machine",
        "reason",
        optional=("exit_code",),
        advice=_SEE_WORKER,
    ),
    failed(
        "run.worker_lost",
        "Worker {worker} was lost on {machine} and is not started again: {reason}",
        "worker",
        "machine",
        "reason",
        advice="See `moor get machine` for what became of the machine; a restart policy other than Never starts lost "
        "workers again.",
    ),
    failed(
        "run.gang_member_failed",
        "Worker {worker} failed on {machine}: {reason}; its gang does not run without it",
        "worker",
        "machine",
        "reason",
        optional=("exit_code",),
        advice=_SEE_WORKER,
    ),
    failed(
        "run.workers_failed",
        "{k} of {n} workers failed; the first: {first}",
        "k",
        "n",
        "first",
        advice="Run `moor workers` on it to see each worker's end, and `moor logs` for what they wrote.",
    ),
    failed(
        "run.time_limit",
        "Worker {worker} ran past its time limit of {d:duration}",
        "worker",
        "d",
        advice="Raise the time limit, or let the program save its work and go on in a new run.",
    ),
    failed(
        "run.group_needed",
        "Worker {worker} of group {group} failed for good, and the run cannot complete without that group: {reason}",
        "group",
        "worker",
        "reason",
        advice=_SEE_WORKER,
    ),
    failed(
        "run.queue_time",
        "Not placed within its queue time of {d:duration}",
        "d",
        advice="Allow a longer queue time, raise its priority, or ask for less; its history shows what it waited for.",
    ),
    by_person(
        "run.cancelled", "Every worker ended and at least one was cancelled[: {text}]", optional=("cause", "text")
    ),
    by_person("run.cancel_requested", "A person asked to end it[: {text}]", optional=("text", "by")),
    by_person("run.deleting", "Deleted; it is removed once nothing of it is left on any machine", optional=("by",)),
    by_person("run.deleted", "Deleted[ by {by}][ with its deployment {deployment}]", optional=("by", "deployment")),
    progress("run.expired", "Removed: it ended {d:duration} ago, which is how long ended runs are kept", "d"),
    by_person("run.changed", "Changed at once: {fields}", "fields", optional=("by",)),
    waiting("run.scheduled", "Makes its next run at {next_at:time}", "next_at", optional=("cron", "timezone")),
    progress("run.schedule_made", "Made the run {run}, due at {due:time}", "run", "due"),
    waiting(
        "run.schedule_skipped",
        "Made no run for {count} due times up to {until:time}: {why}",
        "count",
        "until",
        "why",
        advice="Nothing is made up for: the next run is made at the next due time.",
    ),
    waiting(
        "quota.reached",
        "Waits on the namespace's quota: {why}",
        "why",
        advice="It starts when other work of the namespace ends; an administrator can raise the quota.",
    ),
)

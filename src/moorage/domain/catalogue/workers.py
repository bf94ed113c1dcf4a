"""Reasons of a worker, from its creation to its end: preparation, image and model, start, readiness, exit, restart."""

from moorage.domain.catalogue.entry import by_person, failed, progress, waiting

_DRIVES = "See `moor drives` for the state of the drive and of its machine's data location."
_SECRETS = "It is set up as soon as the secret is there: see `moor secrets`."
_LOST = "Nothing needs doing where a restart policy or a deployment covers it; see `moor get machine` for the machine."

_PREPARATION = (
    progress("worker.created", "Created; not placed yet"),
    progress("worker.placed", "Placed on {machine}", "machine", optional=("gpus",)),
    waiting(
        "worker.unplaced",
        "{machine} was lost, removed or cordoned before it picked the worker up; waits to be placed again",
        "machine",
    ),
    failed(
        "worker.gpu_fault",
        "Its GPU {index} has a fault: {fault}; it is left running",
        "index",
        "fault",
        advice="Restart it if its results cannot be trusted: it gets another GPU.",
    ),
    progress("worker.gpu_ok", "Its GPU {index} is well again", "index"),
    progress("prepare.started", "Its machine is setting it up"),
    waiting("prepare.network", "Waits for its machine's network"),
    waiting("prepare.external_port", "Waits for its external port", optional=("port",)),
    waiting("prepare.volume", "Waits for the data volume {d}: {why}", "d", "why", advice=_DRIVES),
    waiting("prepare.drive_filling", "Waits until the drive {d} is filled on {machine}", "d", "machine"),
    waiting(
        "prepare.secret",
        "Waits for the key {key} of the secret {name} to reach its machine",
        "name",
        "key",
        advice=_SECRETS,
    ),
    waiting(
        "prepare.registry_secret",
        "Waits for the registry secret {name} to reach its machine",
        "name",
        advice=_SECRETS,
    ),
    waiting("prepare.identity", "Waits for its identity certificate: {why}", "why"),
    failed(
        "prepare.timed_out",
        "Its machine made no progress for {d:duration} while preparing: {step}",
        "step",
        "d",
        advice="Look at that step on the machine (network, secret, drive); `moor inspect worker` has its details.",
    ),
    failed(
        "config.write_failed",
        "Could not write the config file {path}: {error}",
        "path",
        "error",
        advice="Check the file's path and the space and rights at it on the machine.",
    ),
    failed(
        "setup.failed",
        "Could not set up {feature}: {error}",
        "feature",
        "error",
        advice="Mend what the message names on the machine, or leave the feature out of the spec.",
    ),
    failed(
        "depends.failed",
        "Worker group {group}, which it depends on, failed for good",
        "group",
        advice="See why that group failed: its own reason comes first.",
    ),
    failed(
        "depends.failed_run",
        "The run {run}, which it depends on, failed for good",
        "run",
        advice="See `moor why` on that run, mend it, then submit this one again.",
    ),
)

_IMAGE_AND_MODEL = (
    progress("image.pulling", "Pulling {image}: {done:size} of {total:size}", "image", "done", "total"),
    failed(
        "image.pull_failed",
        "Could not pull the image: {error}",
        "error",
        "permanent",
        optional=("image",),
        advice="Check the image's name and tag, and the registry secret if it is private.",
    ),
    failed(
        "image.absent",
        "The image is not on the machine, and the spec forbids pulling it",
        optional=("image",),
        advice="Load the image on the machine, or allow pulling it in the spec.",
    ),
    progress(
        "model.fetching",
        "Fetching {source}: {done:size} of {total:size}[, {rate:size} a second][ (interrupted: {trouble})]",
        "source",
        "done",
        "total",
        optional=("rate", "trouble"),
    ),
    progress("model.fetched", "Its model is here: {source}, {size:size}", "source", "size", optional=("commit",)),
    failed(
        "model.fetch_failed",
        "Could not fetch the model: {error}",
        "error",
        "permanent",
        optional=("source",),
        advice="Check the model's source and revision; if it is private or gated, its token (the secret HF_TOKEN).",
    ),
    failed(
        "pull.stalled",
        "Nothing more was fetched for {d:duration}",
        "d",
        optional=("source", "image"),
        advice="Check the machine's way to the registry or model source, and the room on its disk.",
    ),
)

_START = (
    waiting(
        "gang.barrier", "Ready; waits at the barrier for the other members of its gang", optional=("ready", "total")
    ),
    progress("gang.barrier_open", "Every member of its gang is ready; starting"),
    progress("container.started", "Started", optional=("pid", "container")),
    progress("container.running", "Running"),
    progress("exec.started", "{who} runs a command beside it: {command}", "who", "command"),
    failed(
        "create.failed",
        "Could not create its process or container: {error}",
        "error",
        advice="Read the message: the engine or the system refused what the spec asks for.",
    ),
    failed(
        "start.failed",
        "Could not start: {error}",
        "error",
        optional=("command",),
        advice="Check that the command exists and can be executed on that machine, or in the image.",
    ),
    failed(
        "start.timed_out",
        "Did not start within {d:duration}",
        "d",
        advice="Look at the machine's container engine and disk; a start normally takes seconds.",
    ),
    failed(
        "start.invalid",
        "The machine refuses the spec: {error}",
        "error",
        advice="Change what the message names in the spec, then apply again.",
    ),
)

_READINESS = (
    waiting(
        "ready.waiting",
        "Its server does not answer {path} as healthy yet[ (status {status})][: {error}]",
        "path",
        optional=("status", "error"),
    ),
    failed(
        "ready.failed",
        "Its server answers {path} with an error[ (status {status})][: {error}]",
        "path",
        optional=("status", "error"),
        advice="Read the server's log: it is up and says that it cannot serve.",
    ),
    failed(
        "ready.wrong_model",
        "Its server lists {listed}[, but not {missing}][ and not the expected model {expected}]",
        "listed",
        optional=("missing", "expected"),
        advice="The server has to list `model.id` and every one of `model.aliases`: start it under these names, or "
        "take out of the spec what it is not called.",
    ),
    failed(
        "ready.request_failed",
        "Its server is healthy, and the request that must work does not: {error}",
        "error",
        optional=("status",),
        advice="Send `ready.request` of the spec to the server by hand, and read the server's log.",
    ),
    failed(
        "ready.timed_out",
        "Not ready within {d:duration}",
        "d",
        optional=("last",),
        advice="Read the server's log for what it was doing. If it only needs longer, raise `ready.timeout`.",
    ),
    failed(
        "ready.stalled",
        "Not ready, and no visible progress (log, disk, memory) for {d:duration}",
        "d",
        optional=("last",),
        advice="Read the server's log for where it stopped. If it is only silent, raise `ready.stall`.",
    ),
    progress("ready.passed", "Its server is healthy and lists the expected model", optional=("model", "d")),
    failed(
        "live.failing",
        "{n} probes in a row failed[: {error}][; ended if it goes on for {d:duration}]",
        "n",
        optional=("error", "status", "path", "d"),
        advice="Read the server's log; it gets no requests until the probe passes again. Once it has failed for "
        "`runtime.live.fail_after` (5 minutes unless the spec says otherwise) its process is ended, and a deployment "
        "replaces it.",
    ),
    failed(
        "live.failed",
        "Its probe has failed without a break for {d:duration}[: {error}]",
        "d",
        optional=("error", "status", "path"),
        advice="Read the server's log: its process lives and does not answer.",
    ),
)

_EXIT = (
    failed(
        "exited",
        "Exited with code {code}[, killed by signal {signal}]",
        "code",
        optional=("signal",),
        advice="Read the last lines of its log. 126: the command is not executable; 127: it was not found; 137: it was "
        "killed; 143: it was told to terminate.",
        progress_when=("code", 0),
    ),
    failed(
        "oom_killed",
        "Killed because it was out of memory[ (limit {limit:size})]",
        optional=("limit", "code", "signal"),
        advice="Give it more memory, or make it use less (smaller batch, shorter context).",
    ),
    failed(
        "exit.unknown",
        "Gone, and nothing says how it ended",
        advice="Its machine's agent was not there to see it; read the log and the machine's own records.",
    ),
    failed(
        "container.missing",
        "Its container or process was not found on its machine",
        advice="It was removed there from outside Moorage; see who else manages that machine's containers.",
    ),
)

_LIVENESS = (
    waiting("heartbeat.late", "Its heartbeat is late", optional=("since",)),
    progress("heartbeat.back", "Its heartbeat came again"),
    failed("heartbeat.expired", "No heartbeat for its whole time to live after it went stale", advice=_LOST),
    failed("machine.lost", "Its machine stopped answering and the lease is over", optional=("machine",), advice=_LOST),
    progress("worker.returned", "Its machine came back and it still runs", optional=("machine",)),
    progress("worker.gone", "Nothing of it is left on its machine; its place is free"),
    failed(
        "worker.late_report",
        "Its machine reported late how it ended: {reason}",
        "reason",
        optional=("code",),
        advice="The report is of the same placement and stands; read its log.",
    ),
)

_EARLIER = (
    progress(
        "worker.earlier_ended",
        "Its earlier placement {epoch} ended after it had been given up ({reason}); that changes nothing",
        "epoch",
        "reason",
        optional=("code",),
    ),
)

_RESTARTS = (
    by_person("restart.requested", "A person asked for a restart", optional=("text",)),
    progress("restart.policy", "Started again by its restart policy (restart {n} of {limit})", "n", "limit"),
    waiting("restart.backoff", "Starts again at {at:time}", "at", optional=("n", "limit")),
    failed(
        "restart.exhausted",
        "Its restarts are spent ({n} of {limit})",
        "n",
        "limit",
        advice="Its last failure says why it keeps ending: mend that, then `moor restart`.",
    ),
    progress("gang.ended", "Stopped with its gang, whose member {worker} ended or was stopped", "worker"),
    progress("gang.restart", "Its gang starts again as a whole: {worker} failed", "worker"),
    waiting("preempt.requeued", "Preempted by {run}; waits to run again", "run"),
    by_person("worker.deleted", "Deleted with its run"),
)

ENTRIES = (*_PREPARATION, *_IMAGE_AND_MODEL, *_START, *_READINESS, *_EXIT, *_LIVENESS, *_EARLIER, *_RESTARTS)

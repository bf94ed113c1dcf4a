"""Reasons of a deployment, of its revisions, and of its scaling."""

from moorage.domain.catalogue.entry import by_person, failed, progress, waiting

_FIX_AND_APPLY = (
    "Mend what the message names in the spec, then `moor delete NAME --yes --wait` and `moor apply -f FILE` again."
)
_CAPACITY = "See `moor why` for what its new replicas wait for."

_STATUS = (
    progress("deploy.created", "Accepted"),
    progress("deploy.initial_zero", "Accepted at zero replicas; the first request wakes it"),
    progress("deploy.rollout", "Woken to roll out a new revision[ ({revision})]", optional=("revision",)),
    by_person("deploy.adopted", "Adopted from {url}, in mode {mode}", "url", "mode", optional=("by",)),
    progress("deploy.upstream_ready", "{url} answers[, and lists {model}]", "url", optional=("model",)),
    waiting(
        "deploy.upstream_unready",
        "{url} does not serve: {why}",
        "url",
        "why",
        advice="It is run by somebody else: mend it there. It is looked at every few seconds, and used as it answers.",
    ),
    progress("deploy.upstream_gone", "The server at {url} is gone, as asked", "url"),
    waiting("deploy.upstream_stays", "The server at {url} is not gone: {why}", "url", "why"),
    progress("deploy.canary", "{weight} % of the requests go to revision {revision} now", "weight", "revision"),
    progress("deploy.window_over", "Revision {revision} is not held against the one before any more", "revision"),
    progress("deploy.sent_back", "Revision {revision} proved worse than {to}, and is gone back from", "revision", "to"),
    progress("deploy.ready", "{ready} of {desired} replicas ready[: {why}]", "ready", "desired", optional=("why",)),
    waiting(
        "deploy.unready",
        "{ready} of {desired} replicas ready: {why}",
        "ready",
        "desired",
        "why",
        advice="`moor status` shows each replica and why it is not ready; `moor logs` shows what its server says.",
    ),
    progress("deploy.idle", "Paused at zero replicas: idle[ for {idle:duration}]", optional=("idle",)),
    progress("deploy.pausing", "Pausing: waits until every gateway confirms that nothing is in flight or held"),
    progress("deploy.pause_aborted", "Not paused: {why}", "why"),
    by_person("deploy.paused_by_person", "Paused by a person; the next request wakes it", optional=("by",)),
    progress("deploy.wake_request", "Woken[ by {by}][; requests that wait: {held}]", optional=("held", "by")),
    failed(
        "deploy.wake_failed",
        "Could not wake: {error}",
        "error",
        advice="Mend what the error names; the next request tries again.",
    ),
    failed(
        "deploy.failed_fatal",
        "Replica {replica} failed for good and no other is left: {reason}",
        "replica",
        "reason",
        advice="What it wrote last is kept: `moor logs NAME`. " + _FIX_AND_APPLY,
    ),
    by_person("deploy.stopped", "Stopped by a person", optional=("by", "text")),
    by_person("deploy.deleting", "Being deleted", optional=("by",)),
    by_person(
        "deploy.deleted",
        "Deleted[ by {by}][; its server runs on, its ownership is {ownership}]",
        optional=("by", "ownership"),
    ),
    by_person("deploy.scaled", "Scaled from {from} to {to}", "from", "to", optional=("by",)),
    by_person("deploy.bound", "The endpoint {endpoint} names it", "endpoint", optional=("by",)),
    by_person("deploy.unbound", "The endpoint {endpoint} does not name it any more", "endpoint", optional=("by",)),
    by_person("deploy.changed", "Changed at once: {fields}", "fields", optional=("by",)),
    waiting(
        "deploy.retry",
        "Its last replica failed[: {last}]; the next try is at {at:time}[ (failures in a row: {n})]",
        "at",
        optional=("n", "last"),
        advice="See `moor history NAME` and `moor logs NAME` for why they fail; it goes on trying by itself.",
    ),
)

_SCALING = (
    progress("scale.up", "Scaled up[ from {from} to {to}][: {why}]", optional=("from", "to", "why")),
    progress("scale.down", "Scaled down[ from {from} to {to}][: {why}]", optional=("from", "to", "why")),
    waiting(
        "scale.held_stability",
        "Holds its size: the load has not lasted long enough to act on[ (wants {to})]",
        optional=("from", "to", "until"),
    ),
    waiting(
        "scale.held_cooldown",
        "Holds its size: it changed too short a time ago[ (wants {to})]",
        optional=("from", "to", "until"),
    ),
    progress("scale.steady", "Its size fits the load[: {to} replicas]", optional=("to",)),
    progress(
        "scale.at_min",
        "At its minimum[ of {min}][ of {awake} while it is awake]",
        optional=("min", "awake", "to"),
    ),
    waiting(
        "scale.at_max",
        "At its maximum[ of {max}]; the load asks for more",
        optional=("max", "to"),
        advice="Raise `replicas.max` with `moor scale` if there is room.",
    ),
    waiting(
        "scale.no_capacity",
        "The load asks for more replicas than there is room for",
        optional=("to", "why"),
        advice=_CAPACITY,
    ),
    progress("scale.undecided", "Nothing was decided yet: it has not reached its first size"),
    progress("scale.disabled", "Does not scale by itself"),
    waiting(
        "scale.unqualified",
        "Scales on requests in flight, not yet on its SLO[: {why}]",
        optional=("why", "seen", "needed"),
        advice="`scaling.slo` acts once there are 20 requests at load and an earlier measurement to compare.",
    ),
)

ENTRIES = (*_STATUS, *_SCALING)

REVISIONS = (
    progress("revision.created", "Created", optional=("digest", "number")),
    progress("revision.provisioning", "Its first replica is starting"),
    progress("revision.evaluating", "A replica is ready; it is compared with the active revision"),
    progress("revision.promoting", "Accepted; it is scaled to the size of the active revision"),
    progress("revision.promoted", "Active: it serves", optional=("decision",)),
    progress("revision.draining", "Draining: another revision was promoted[ ({by})]", optional=("by", "until")),
    progress("revision.superseded", "Drained; another revision serves", optional=("by",)),
    by_person("revision.rolled_back", "Rolled back to revision {to}[ by {by}][: {why}]", "to", optional=("by", "why")),
    failed(
        "revision.rejected",
        "Rejected[ by {by}][ by the release guard ({decision})][: {why}]",
        optional=("decision", "why", "by"),
        advice="`moor rollout X explain` shows the decision with its numbers; the active revision goes on serving.",
    ),
    failed("revision.failed", "Failed: {why}", "why", optional=("replica",), advice=_FIX_AND_APPLY),
    by_person("revision.cancelled", "Cancelled by {by}", "by"),
    failed(
        "revision.lost_ready",
        "It lost its ready replicas while it was compared",
        advice="Its replicas are started again; `moor history` says why they went.",
    ),
    waiting("revision.decision_stale", "The decision no longer holds and is made again", optional=("why",)),
    progress("revision.capacity_gone", "Nothing of it runs any more"),
    by_person("revision.deleted", "Deleted with its deployment"),
)

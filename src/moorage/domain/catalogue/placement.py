"""Reasons of the queue (why a worker is not placed now) and of a machine (why it does not take a worker)."""

from moorage.domain.catalogue.entry import failed, impossible, waiting
from moorage.domain.reason_types import ReasonType

PER_MACHINE = "Run `moor why` on it: it lists what keeps it off each machine and the smallest change that would help."
"""Last in an advice; `moor why` itself leaves it out."""
_QUOTA = "It starts when other work of the namespace ends; `moor quota` shows the use, an administrator can raise it."
_TIME_LIMIT = "Give it a time limit: work that ends in time may run in the gaps before the work ahead of it."

QUEUE = (
    waiting(
        "place.no_machine_fits",
        "No machine fits now: {ready} of {total} machines ready",
        "ready",
        "total",
        advice=PER_MACHINE,
    ),
    waiting(
        "place.gang_not_whole",
        "Its gang does not fit whole now: {ready} of {total} machines ready",
        "ready",
        "total",
        advice="Wait for room, ask for fewer GPUs or members, or loosen its topology rules. " + PER_MACHINE,
    ),
    waiting(
        "place.min_not_whole",
        "The minimum of its gang does not fit together now: {ready} of {total} machines ready",
        "ready",
        "total",
        advice="Wait for room, or lower `min_available`. " + PER_MACHINE,
    ),
    waiting(
        "place.no_machines",
        "No machine has joined that it may use",
        advice="Join a machine with `moor agent join`, or look at which machines the namespace may use.",
    ),
    impossible(
        "place.never_fits",
        "No machine could ever take it: {why}",
        "why",
        advice="Ask for less or for something else, or join a machine that has what it asks for. " + PER_MACHINE,
    ),
    waiting(
        "place.data_location",
        "Its drive needs a data location on {machine}",
        "machine",
        advice="Choose where that machine keeps data, then it is placed.",
    ),
    waiting(
        "quota.waiting",
        "Waits for the namespace's quota: {resource} {used} in use + {asked} asked is above {limit}",
        "resource",
        "used",
        "asked",
        "limit",
        "gang",
        advice=_QUOTA,
    ),
    impossible(
        "quota.never",
        "Asks for more than the namespace's whole quota: {resource} {asked} asked, limit {limit}",
        "resource",
        "asked",
        "limit",
        "total",
        advice="Ask for less, or have an administrator raise the quota.",
    ),
    waiting(
        "depends.waiting",
        "Waits until worker group {group} is {condition}",
        "group",
        "condition",
        advice="See what that group waits for with `moor why`.",
    ),
    waiting(
        "depends.waiting_run",
        "Waits until the run {run} is {condition}[ ({note})]",
        "run",
        "condition",
        optional=("note",),
        advice="See with `moor ls runs` whether there is such a run, and with `moor why` what it waits for.",
    ),
    waiting(
        "array.limit", "Its array runs at most {k} workers at once", "k", advice="Raise `max_parallel` to run more."
    ),
    waiting(
        "topology.patience",
        "Waits until {until:time} for the fabric {fabric}; could start now on {alternative}",
        "fabric",
        "until",
        "alternative",
        advice="Shorten its topology patience to start sooner on what there is.",
    ),
    waiting(
        "queue.head",
        "Next to run (priority {priority}): starts by {starts_by:time}, as running work ends",
        "priority",
        "starts_by",
        advice="Room is held for it. Only running work that ends earlier, or a higher priority, brings it forward.",
    ),
    waiting(
        "queue.head_unknown",
        "Next to run (priority {priority}): waits for running work whose end is not known",
        "priority",
        advice="Room is held for it. Time limits on running work make its start known.",
    ),
    waiting(
        "queue.behind_priority",
        "Queued behind work of higher priority ({run})",
        "run",
        advice="Raise its priority. " + _TIME_LIMIT,
    ),
    waiting(
        "queue.behind",
        "Queued behind {run}[, which starts by {starts_by:time}]",
        "run",
        optional=("starts_by",),
        advice=_TIME_LIMIT,
    ),
    waiting(
        "preempt.stopping",
        "Stopping {k} workers of lower priority ({runs}) to make room for it",
        "k",
        "runs",
        advice="It starts once they are gone.",
    ),
    waiting(
        "preempt.waiting",
        "Waits until {k} preempted workers are gone",
        "k",
        advice="It starts once they are gone; each has its grace period to save its work.",
    ),
)


def _lacking(code: str, what: str, shown: str, advice: str) -> ReasonType:
    sentence = f"Not enough {what}: needs {{need{shown}}}, {{free{shown}}} free"
    return waiting(code, sentence, "need", "free", advice=advice)


NODES = (
    waiting(
        "node.not_ready",
        "The machine is not ready ({state})",
        "state",
        advice="See `moor get machine`; work goes there again once its agent answers.",
    ),
    waiting("node.no_capacity", "The machine has not said what it has", advice="Look at the agent's log on it."),
    waiting(
        "node.pressure",
        "The machine is under pressure: {condition}",
        "condition",
        advice="Free what it is short of; it takes new work again by itself.",
    ),
    waiting(
        "node.refuses_runs",
        "The machine does not take runs: {why}",
        "why",
        advice="Select other machines, or `moor uncordon` it when the cause is over.",
    ),
    waiting(
        "node.cordoned",
        "The machine is cordoned: {why}",
        "why",
        advice="`moor uncordon` it when the cause is over.",
    ),
    impossible(
        "node.label_not_accepted",
        "It selects none of the labels that the machine insists on",
        optional=("accepts",),
        advice="Select one of the machine's accepted labels if the work belongs there.",
    ),
    impossible(
        "node.not_selected",
        "The machine is not among those selected",
        advice="Add the machine to the node selection, or drop the selection.",
    ),
    impossible(
        "node.outside_pool",
        "The namespace may use only machines labelled {labels}",
        "labels",
        advice="Label the machine, or have an administrator change which machines the namespace may use.",
    ),
    impossible(
        "node.lacks_label",
        "The machine lacks the label {k}={v}",
        "k",
        "v",
        advice="Label the machine, or drop the label from the node selection.",
    ),
    impossible(
        "node.no_rdma", "The machine has no active RDMA port", advice="Drop RDMA from the spec, or mend the port."
    ),
    impossible(
        "node.slow_fabric",
        "The machine has no active InfiniBand port of {gbps} Gb/s or more",
        "gbps",
        optional=("fastest",),
        advice="Ask for less speed, or mend the port.",
    ),
    waiting(
        "node.holds_worker",
        "Another worker of this run is on the machine already",
        advice="Its workers take one machine each: join more machines, or ask for fewer workers.",
    ),
    _lacking("node.cpu", "CPU cores", ":cpu", "Wait for running work to end, or ask for fewer cores."),
    _lacking("node.memory", "memory", ":size", "Wait for running work to end, or ask for less memory."),
    _lacking("node.gpus", "GPUs", "", "Wait for running work to end, or ask for fewer GPUs."),
    waiting(
        "node.healthy_gpus",
        "Not enough healthy GPUs: needs {need}, {free} free ({at_risk} more free and at risk)",
        "need",
        "free",
        "at_risk",
        advice="Wait, ask for fewer, or drop `healthy_only` to take GPUs at risk too.",
    ),
    impossible(
        "node.no_gpu_match",
        "No GPU of the machine matches: wanted {wanted}",
        "wanted",
        optional=("has",),
        advice="Ask for a model or memory size that the machines have.",
    ),
    waiting(
        "node.gpu_fault",
        "GPU {index} has a fault: {fault}",
        "index",
        "fault",
        advice="Reset or replace the GPU; a reboot of the machine clears most faults.",
    ),
    waiting(
        "node.gpu_foreign",
        "GPU {index} holds {bytes:size} of a process that is not ours",
        "index",
        "bytes",
        advice="End that process (see `nvidia-smi`), or keep the GPU out of the machine's reserve.",
    ),
    waiting(
        "node.kept_machine",
        "The run is kept on one machine, {m}",
        "m",
        advice="Wait for room there, or loosen the run's topology rule.",
    ),
    waiting(
        "node.kept_rack",
        "The run is kept within the rack {r}",
        "r",
        advice="Wait for room there, or loosen the run's topology rule.",
    ),
    impossible("node.no_rack_label", "The machine has no rack label", advice="Label the machine with its rack."),
    waiting(
        "node.max_machines",
        "The run may use at most {n} machines",
        "n",
        advice="Raise the limit in the run's topology rule, or wait for room on its machines.",
    ),
    waiting(
        "node.rack_used",
        "The rack {r} has a worker of this run already",
        "r",
        advice="Loosen the spread in the run's topology rule, or join machines in other racks.",
    ),
    impossible(
        "node.drive_missing", "The drive {drive} does not exist", "drive", advice="Create it, or mend its name."
    ),
    waiting(
        "node.drive_unusable",
        "The drive {drive} cannot be used: {why}",
        "drive",
        "why",
        advice="See `moor drives` for its state.",
    ),
    impossible(
        "node.drive_elsewhere",
        "The drive {drive} is on {machine}, in another site ({site})",
        "drive",
        "machine",
        "site",
        advice="Copy the drive to this site, or select machines of that one.",
    ),
    waiting(
        "node.drive_no_room",
        "The drive {drive} needs {need:size} where the machine keeps data, {free:size} free",
        "drive",
        "need",
        "free",
        advice="Free room at the machine's data location, or choose another one.",
    ),
    impossible(
        "node.no_outbound",
        "The machine cannot enforce an outbound policy: {why}",
        "why",
        advice="Give the machine that capability, or select one that has it.",
    ),
    impossible(
        "node.no_sandbox",
        "The machine cannot run sandboxed work: {why}",
        "why",
        advice="Give the machine that capability, or select one that has it.",
    ),
    impossible(
        "node.no_tool_gateway",
        "The machine has no tool gateway for its workers: {why}",
        "why",
        advice="Give the machine that capability, or select one that has it.",
    ),
    impossible(
        "node.no_models",
        "The machine cannot fetch models from hubs: {why}",
        "why",
        advice="Install what fetches them for its agent (pip install 'moorage[hf]') and start it again, or give the "
        "path of a model that is on the machine.",
    ),
    impossible(
        "node.no_mounts",
        "The machine cannot show mounts or config files to plain processes: {why}",
        "why",
        advice="Run its agent as root or where user namespaces are allowed, or use a container runner.",
    ),
    waiting(
        "node.port_taken",
        "Another worker on the machine exposes port {port} already",
        "port",
        advice="Wait until that worker ends, join more machines, or expose another port.",
    ),
    impossible(
        "node.no_engine",
        "The machine has no {runner} runner",
        "runner",
        optional=("has",),
        advice="Install that engine on the machine and start its agent again, or choose another runner in the spec.",
    ),
    failed(
        "node.ports_spent",
        "Every port of the machine's pool is in use ({first} to {last})",
        "first",
        "last",
        advice="Stop something there, or widen the agent's port pool.",
    ),
)

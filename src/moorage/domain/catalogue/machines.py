"""Reasons of a machine and of a gateway: joining, liveness, reconciling, and what a person did."""

from moorage.domain.catalogue.entry import by_person, failed, progress, waiting

_LEASE = "Look at the machine and at its agent's log; it reconciles by itself when its agent answers again."

ENTRIES = (
    progress("machine.joined", "Joined", optional=("host",)),
    waiting("machine.late", "Its heartbeat is late", optional=("since",), advice=_LEASE),
    progress("machine.back", "Its heartbeats come again"),
    failed("machine.lease_expired", "Its agent stopped answering and the lease is over", advice=_LEASE),
    progress("machine.agent_restarted", "Its agent started again and says what it still runs", optional=("held",)),
    progress("machine.returned", "Its agent is back and says what it still runs", optional=("held",)),
    progress("machine.reconciled", "Ready; workers it kept: {kept}, stopped: {stopped}", "kept", "stopped"),
    failed(
        "machine.rebooted",
        "The machine booted again; the processes it ran are gone",
        optional=("machine",),
        advice="Work that it ran is started again under its policy; look at the machine if nobody rebooted it.",
    ),
    by_person("machine.cordoned", "Cordoned: {why}", "why", optional=("by",), advice="`moor uncordon` takes it back."),
    by_person("machine.uncordoned", "Takes new work again", optional=("by",)),
    by_person("machine.draining", "Draining until {until:time}", "until", optional=("by", "left")),
    progress("machine.drained", "Drained: nothing of ours runs there"),
    by_person("machine.removed", "Machine removed from the cluster", optional=("machine", "by")),
    failed(
        "machine.gpu_faulty",
        "GPU {index} is faulty: {fault}",
        "index",
        "fault",
        advice="Nothing new is placed on it, and what runs there goes on. Reset or replace it; a reboot of the machine "
        "clears most faults.",
    ),
    waiting(
        "machine.gpu_at_risk",
        "GPU {index} is at risk: {fault}",
        "index",
        "fault",
        advice="It is still given, but not to work that asks for `healthy_only`. Reset it when nothing runs there.",
    ),
    waiting(
        "machine.gpu_foreign",
        "GPU {index} holds {bytes:size} of processes that are not ours",
        "index",
        "bytes",
        optional=("pids",),
        advice="Nothing new is placed on it until they end; see `nvidia-smi` on the machine.",
    ),
    progress("machine.gpu_ok", "GPU {index} is well and free of strangers", "index"),
    waiting(
        "machine.pressure",
        "Short of {condition}: takes no new work",
        "condition",
        advice="Free what it is short of; it takes new work again by itself.",
    ),
    progress("machine.pressure_over", "No longer short of {condition}", "condition"),
    progress("gateway.joined", "The gateway joined", optional=("gateway",)),
    progress("gateway.confirmed", "The gateway confirmed routing generation {generation}", "generation"),
    failed(
        "gateway.silent",
        "The gateway has stopped answering",
        optional=("gateway", "since"),
        advice="Look at the gateway's process and its log; it goes on serving the last generation it was given.",
    ),
    progress("gateway.gone", "The gateway is gone and its lease is over", optional=("gateway",)),
)

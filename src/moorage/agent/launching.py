"""From a `Launch` to a command and an environment with nothing left to fill in. Pure but for `check_source`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from moorage.agent import meeting
from moorage.wire.agent import Assignment

STOP_CAUSE_FILE, HEARTBEAT_FILE = "stop-cause", "heartbeat"


@dataclass(frozen=True, slots=True)
class Place:
    """Where and with what a worker runs on this machine.

    Args:
        host: address of this machine; what its server should listen on.
        port: its port of the pool, or None.
        folder: its own directory.
        output: directory kept across attempts on this machine.
        contained: in a container: nothing is inherited, and its GPUs are numbered from 0 there.
        has_gpus: whether this machine has any, so that a worker without must be kept from seeing them.
        model: where its model is on this machine; None: where its spec says.
    """

    host: str
    port: int | None
    folder: Path
    output: Path
    has_gpus: bool = False
    contained: bool = False
    model: Path | None = None


def command(assignment: Assignment, place: Place) -> tuple[str, ...]:
    """The argv with `{port} {host} {model} {name} {rank} {gpus}` filled in; other braces stay as they are."""
    words = _words(assignment, place)
    return tuple(fill(part, words) for part in assignment.launch.command)


def environment(
    assignment: Assignment, place: Place, inherited: Mapping[str, str], secrets: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What the worker's process gets, later ones winning.

    First what is inherited (a container inherits nothing of this machine: its image brings what it needs), the names
    of others by which a gang meets, the spec's own, its secrets, and ours.
    """
    launch = assignment.launch
    words = _words(assignment, place)
    env = {} if place.contained else dict(inherited)
    env |= meeting.conventional(assignment)
    env |= {name: fill(value, words) for name, value in launch.env.items()} | dict(secrets or {})
    env |= {
        "MOORAGE_RUN": assignment.run,
        "MOORAGE_WORKER": assignment.worker,
        "MOORAGE_RANK": str(launch.rank),
        "MOORAGE_WORLD_SIZE": str(launch.world_size),
        "MOORAGE_ATTEMPT": str(assignment.attempt),
        "MOORAGE_EPOCH": str(assignment.epoch),
        "MOORAGE_IDENTITY": assignment.identity,
        "MOORAGE_DIGEST": assignment.digest,
        "MOORAGE_HEARTBEAT_FILE": str(place.folder / HEARTBEAT_FILE),
        "MOORAGE_STOP_CAUSE_FILE": str(place.folder / STOP_CAUSE_FILE),
        "MOORAGE_OUTPUT_DIR": str(place.output),
    }
    env |= meeting.variables(assignment, place.host)
    if launch.gpus or (place.has_gpus and not place.contained):
        env["CUDA_VISIBLE_DEVICES"] = words["gpus"]
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the driver counts; else the fastest is the first
    return env


def fill(text: str, words: Mapping[str, str]) -> str:
    """Replace each `{word}` that is known."""
    for word, value in words.items():
        text = text.replace("{" + word + "}", value)
    return text


def missing_source(assignment: Assignment) -> str | None:
    """Why the path of its model cannot be used on this machine, or None; what comes from a hub is not looked at."""
    source = assignment.launch.source
    if source is None or "://" in source or Path(source).exists():
        return None
    return f"{source} does not exist on this machine"


def _words(assignment: Assignment, place: Place) -> dict[str, str]:
    launch = assignment.launch
    gpus = range(len(launch.gpus)) if place.contained else launch.gpus
    return {
        "port": str(place.port) if place.port is not None else "",
        "host": place.host,
        "model": str(place.model or launch.source or ""),
        "name": launch.name,
        "rank": str(launch.rank),
        "gpus": ",".join(str(g) for g in gpus),
    }

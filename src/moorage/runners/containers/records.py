"""What is kept on disk of a container beside its log: who it is, how it ended, that nothing of it is left.

Files of the attempt's own directory: `container.json` (before anything can run), `stop` (before the first signal),
`exit.json`, `gone`. Labels in the engine say the same of the identity; these say what the engine forgets.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from moorage.runners.identity import Exit
from moorage.runners.shimming.kernel import write_whole

RECORD, STOP, EXIT, GONE = "container.json", "stop", "exit.json", "gone"

RUNNING = frozenset({"running", "paused", "stopping", "restarting"})
OVER = frozenset({"exited", "dead", "stopped", "removing"})
NEVER_RAN = frozenset({"created", "configured", "initialized"})
"""What engines call the states of a container."""


@dataclass(frozen=True, slots=True)
class ContainerIdentity:
    """One container of one engine, and its first process.

    Args:
        engine: podman or docker.
        container: id.
        name: as the engine lists it.
        boot_id: of the machine's start in which it was created.
        digest: of its image as the registry knows it, or None.
        pid, start_ticks: of its first process as this machine sees it; 0 while, or where, that is not known.
        cgroup: directory of its own cgroup v2, or empty.
    """

    engine: str
    container: str
    name: str
    boot_id: str
    digest: str | None = None
    pid: int = 0
    start_ticks: int = 0
    cgroup: str = ""

    def to_wire(self) -> dict[str, Any]:
        """As reports carry it."""
        out = {"engine": self.engine, "container": self.container, "name": self.name, "boot_id": self.boot_id}
        if self.digest:
            out["image_digest"] = self.digest
        return {**out, **({"pid": self.pid, "start_ticks": self.start_ticks} if self.pid else {})}

    def save(self, folder: Path) -> None:
        """On disk when this returns."""
        write_whole(str(folder / RECORD), json.dumps(asdict(self)), sync=True)


def load_identity(folder: Path) -> ContainerIdentity | None:
    """The identity kept in a directory, without its process (that is looked up anew)."""
    try:
        kept = json.loads((folder / RECORD).read_text())
    except FileNotFoundError:
        return None
    return replace(ContainerIdentity(**kept), pid=0, start_ticks=0, cgroup="")


def save_exit(folder: Path, how: Exit) -> None:
    """Keep how it ended; on disk when this returns."""
    write_whole(str(folder / EXIT), json.dumps(asdict(how)), sync=True)


def load_exit(folder: Path) -> Exit | None:
    """How it ended, as kept."""
    try:
        return Exit(**json.loads((folder / EXIT).read_text()))
    except FileNotFoundError:
        return None


def note(folder: Path, name: str) -> None:
    """Keep a bare fact (`STOP`, `GONE`); on disk when this returns."""
    write_whole(str(folder / name), "", sync=True)

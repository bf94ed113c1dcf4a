"""What a master writes in the state folder of its gateway, and what it removes there. Called by `master` alone.

Here: `master.json`, and the sockets of workers that ended. Not here: what is told (`master`), the lock (`holding`), and
what the workers keep there. Standard library only.
"""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from moorage.gateway.handover import SOCKETS
from moorage.gateway.holding import STATUS


class StateFolder:
    """The folder, for one master.

    Args:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told = ""
        self.family = os.getpid()
        """begins the names under which the workers find each other: our pid, or that of the master before us whose
        workers still serve"""

    @property
    def status(self) -> Path:
        """Where the master tells how it does."""
        return self._path / STATUS

    def tell(self, said: dict[str, Any]) -> None:
        """Write what is so, where it changed.

        Raises:
            OSError: the disk does not take it; it is tried again once something else is so.
        """
        text = json.dumps(said)
        if text == self._told:
            return
        self._told = text
        part = self.status.with_suffix(f".{os.getpid()}")
        self._path.mkdir(parents=True, exist_ok=True)
        part.write_text(text + "\n")
        part.replace(self.status)

    def forget(self) -> None:
        """All has ended: leave nothing."""
        with contextlib.suppress(OSError):
            self.status.unlink()
        self.clear(and_family=True)

    def clear(self, *, and_family: bool) -> None:
        """Remove what workers of masters that are gone left behind.

        Args:
            and_family: and what ours did, none of which runs.
        """
        for path in (self._path / SOCKETS).glob("*-*"):
            master = path.name.partition("-")[0]
            if not master.isdigit():
                continue
            ours = int(master) in (self.family, os.getpid())
            if and_family if ours else not Path(f"/proc/{master}").exists():
                with contextlib.suppress(OSError):
                    path.unlink()

    def remove_socket(self, pid: int) -> None:
        """Remove that of a worker that ended."""
        with contextlib.suppress(OSError):
            (self._path / SOCKETS / f"{self.family}-{pid}.sock").unlink()

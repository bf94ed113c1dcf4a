"""That a gateway runs from a state folder: a lock that its master holds for as long as it lives, and who that is.

Here: taking the lock, and the words for who finds it taken. The lock is the kernel's (flock), so it ends with its
process, however that ends. Not here: anything that runs. Called by `master`, and before a gateway's settings are
written. Standard library and errors only.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from moorage.domain.errors import Conflict

STATUS = "master.json"
"""File in which a master tells how it does."""
_LOCK = "master.lock"


def hold(state_dir: Path) -> int:
    """Take the lock, until the descriptor that is returned is closed.

    Raises:
        Conflict: another gateway holds it.
        OSError: there can be no such file here.
    """
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(state_dir / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as cause:
        os.close(lock)
        raise taken(state_dir) from cause
    return lock


def require_free(state_dir: Path) -> None:
    """Nothing where no gateway runs from this folder.

    Raises:
        Conflict: one does.
    """
    if (state_dir / _LOCK).exists():
        os.close(hold(state_dir))


def taken(state_dir: Path) -> Conflict:
    """The refusal of a second gateway of one folder: they would take each other's settings, table and shares."""
    said = told(state_dir)
    where = f" at {said['scheme']}://{said['address']}" if said.get("address") else ""
    pid = (said.get("identity") or {}).get("pid")
    return Conflict(
        f"the gateway of {state_dir.parent} runs already{where}{f' (pid {pid})' if pid else ''}",
        remedy="a second one on this machine needs a MOORAGE_HOME of its own, another --gateway-port, and MOORAGE_URL "
        "and MOORAGE_TOKEN of the control plane; other settings for this one: `moor gateway --reload`",
        code="gateway_runs",
    )


def told(state_dir: Path) -> dict[str, Any]:
    """What the master tells of itself; nothing where it tells nothing."""
    try:
        said = json.loads((state_dir / STATUS).read_text())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}

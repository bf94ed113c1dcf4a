"""Whether plain processes can be shown mounts on this machine, and the places at which they are shown.

The mounts themselves are made by `shimming/mounts.py` in the command's own process. Called by the agent: once for what
its machine reports, and while a worker is set up.
"""

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from moorage.domain.errors import RunnerError
from moorage.runners.port import MountIntent

PROBE_TIMEOUT_S = 20.0
_PROBE = "import sys; sys.path.insert(0, sys.argv[1]); from shimming import mounts; mounts.probe(sys.argv[2])"


def why_no_mounts(python: str) -> str | None:
    """Why a process here cannot be given mounts of its own, tried in a process that ends at once; None: it can.

    Args:
        python: interpreter of the shims.
    """
    rooms = str(Path(__file__).parent)
    with tempfile.TemporaryDirectory(prefix="moorage-mounts-") as folder:
        command = [python, "-I", "-S", "-c", _PROBE, rooms, folder]
        try:
            tried = subprocess.run(
                command, capture_output=True, env={}, text=True, timeout=PROBE_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as cause:
            return str(cause)
    if tried.returncode == 0:
        return None
    lines = tried.stderr.strip().splitlines()
    return lines[-1] if lines else f"the trial ended with exit code {tried.returncode}"


def check_sources(mounts: Iterable[MountIntent]) -> None:
    """Nothing if everything that is to be shown is there.

    Raises:
        RunnerError: something is not (code `start_invalid`).
    """
    for mount in mounts:
        if not Path(mount.source).is_absolute():
            raise _invalid(f"the mount source {mount.source} is not an absolute path")
        if not Path(mount.source).exists():
            raise _invalid(f"the mount source {mount.source} does not exist on this machine")


def make_points(mounts: Iterable[MountIntent]) -> None:
    """Have something at each target that can be mounted over: an empty directory or file, where there is nothing.

    What is made stays: removing it would take the mount away from every other worker that has it too.

    Raises:
        RunnerError: it is of another sort than its source, or cannot be made (code `setup_failed`).
    """
    for mount in mounts:
        source, target = Path(mount.source), Path(mount.target)
        if target.exists():
            if source.is_dir() != target.is_dir():
                kinds = ("a directory", "a file") if source.is_dir() else ("a file", "a directory")
                raise _invalid(f"{source} is {kinds[0]} and cannot be mounted at {target}, which is {kinds[1]}")
            continue
        try:
            (target if source.is_dir() else target.parent).mkdir(parents=True, exist_ok=True)
            if not source.is_dir():
                target.touch(mode=0o644)
        except OSError as cause:
            raise RunnerError(
                f"there is no {target}, and it cannot be made to mount {source} at: {cause.strerror}",
                code="setup_failed",
                remedy="make it on the machine, or mount somewhere that this user may write to",
            ) from cause


def _invalid(text: str) -> RunnerError:
    return RunnerError(text, code="start_invalid", remedy="mend the paths of the spec, or the machine's files")

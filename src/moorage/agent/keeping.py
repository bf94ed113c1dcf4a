"""What of ended workers stays on disk: their directories, for the logs, the newest few; and what they wrote as output.

Called by the roster at each worker that is forgotten, and by the agent at its start. A directory that cannot be removed
is named in the log and tried again the next time: nothing else waits for it.
"""

import shutil
from collections.abc import Collection
from pathlib import Path

import structlog


def prune_logs(base: Path, held: Collection[Path], keep: int, log: structlog.stdlib.BoundLogger) -> None:
    """Remove directories of ended workers but the newest.

    Args:
        base: holds a directory a worker, and in it one an attempt.
        held: directories still in use.
        keep: how many of the others stay, of all workers together.
        log: told of what cannot be removed.
    """
    ended = [(changed, p) for p in base.glob("*/*-*") if p not in held and (changed := _changed(p)) is not None]
    ended.sort(key=lambda one: one[0], reverse=True)
    for _, folder in ended[keep:]:
        try:
            shutil.rmtree(folder)
        except OSError as cause:
            log.warning("cannot remove an ended worker's directory", folder=str(folder), why=str(cause))
    in_use = {p.parent for p in held}
    for worker in base.glob("*"):
        if worker not in in_use:
            _remove_empty(worker)


def prune_outputs(base: Path, used: Collection[Path]) -> None:
    """Remove output directories in which nothing was written. What was written is the user's and stays.

    Args:
        base: holds a directory a run, and in it one a rank.
        used: those of workers that may still write.
    """
    for rank in base.glob("*/*"):
        if rank not in used:
            _remove_empty(rank)
    runs_in_use = {p.parent for p in used}
    for run in base.glob("*"):
        if run not in runs_in_use:
            _remove_empty(run)


def _changed(folder: Path) -> float | None:
    try:
        return folder.stat().st_mtime
    except FileNotFoundError:
        return None


def _remove_empty(folder: Path) -> None:
    """Remove it if nothing is in it; decided by the kernel, so that nothing written meanwhile is lost."""
    try:
        folder.rmdir()
    except OSError:
        return  # something is in it, or it is no directory of ours

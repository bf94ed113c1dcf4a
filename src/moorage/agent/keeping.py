"""What of ended workers stays on disk: their directories, for the logs, the newest few."""

import shutil
from collections.abc import Collection
from pathlib import Path


def prune_logs(base: Path, held: Collection[Path], keep: int) -> None:
    """Remove directories of ended workers but the newest.

    Args:
        base: holds a directory a worker, and in it one an attempt.
        held: directories still in use.
        keep: how many of the others stay.
    """
    ended = [p for p in base.glob("*/*-*") if p not in held]
    ended.sort(key=lambda p: p.stat().st_mtime, reverse=True)
    for folder in ended[keep:]:
        shutil.rmtree(folder)
    in_use = {p.parent for p in held}
    for worker in base.glob("*"):
        if worker not in in_use and not any(worker.iterdir()):
            worker.rmdir()

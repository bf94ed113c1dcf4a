"""The disk under MOORAGE_HOME when it is full: known by its error, named by its mount, and what to do about it.

Nothing is freed or removed here. Called by `home`, `up` and `app.commands`.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from moorage.domain.errors import Unavailable

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system answers when there is no room: on the disk, or for this user on it."""

LITTLE_BYTES = 64 << 10
"""With less than this left no database can be written, whatever small file still may."""

REMEDY = "free some, then `moor up`"


def mount_of(path: Path) -> Path:
    """Where the file system that holds `path` is mounted."""
    found = path.absolute()
    while not found.is_mount() and found != found.parent:
        found = found.parent
    return found


def is_full(path: Path) -> bool:
    """Whether nothing of use can be written where `path`, which exists, lies."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize < LITTLE_BYTES


def no_space(path: Path) -> Unavailable:
    """The error for people, with the disk and what to do."""
    return Unavailable(f"no space left on {mount_of(path)}, where {path} lies", remedy=REMEDY, code="no_space")


@contextlib.contextmanager
def told_when_full(path: Path) -> Iterator[None]:
    """Turn the system's error for a full disk into one for people; every other passes.

    Raises:
        Unavailable: the disk of `path` is full.
    """
    try:
        yield
    except OSError as cause:
        if cause.errno not in FULL:
            raise
        raise no_space(path) from cause

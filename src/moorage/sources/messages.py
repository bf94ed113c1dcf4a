"""What `hub` and its child say to each other: one JSON object a line. Plain values; no imports of others of ours.

To the child: an `Order`, then `go` once there is room. From it: `plan`, `done` (bytes that are here) with `came` (those
that were brought now), and at its end `files` or `error`.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

RESOLVE, FETCH, CHECK = "resolve", "fetch", "check"

Kind = Literal["missing", "revision", "denied", "refused", "busy", "corrupt", "full", "disk", "absent"]
"""Of an error. missing: no such repository or file, as far as it may be seen; revision: no such revision of it;
denied: gated, private, or a token that is not taken; refused: anything else that stays so; busy: try again; corrupt:
the bytes are not those that the hub names; full, disk: of this machine; absent: huggingface_hub is not installed."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to do.

    Args:
        mode: resolve (say what is there), check (and whether its files may be read), fetch.
        repo, revision, files: as in a source.
        token: of the hub; None: what the machine itself has.
        folder: where a fetch puts its files, and goes on from what it finds.
    """

    mode: str
    repo: str
    revision: str | None = None
    files: str | None = None
    token: str | None = field(default=None, repr=False)
    folder: str | None = None

    def line(self) -> bytes:
        """As it is sent."""
        return json.dumps(asdict(self)).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class File:
    """One file of a revision.

    Args:
        path: within the repository.
        size: bytes.
        sha256: of its content, where the hub says so.
        git: its git blob id, where the hub says so.
    """

    path: str
    size: int
    sha256: str | None = None
    git: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a source is now.

    Args:
        commit: its revision.
        files: in order of their paths.
        restricted: not everybody may read them.
    """

    commit: str
    files: tuple[File, ...]
    restricted: bool = False

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(file.size for file in self.files)

    def wire(self) -> dict[str, Any]:
        """As it is sent."""
        return {"commit": self.commit, "files": [asdict(f) for f in self.files], "restricted": self.restricted}

    @staticmethod
    def of(told: dict[str, Any]) -> "Plan":
        """As it was sent."""
        return Plan(str(told["commit"]), tuple(File(**f) for f in told["files"]), bool(told["restricted"]))

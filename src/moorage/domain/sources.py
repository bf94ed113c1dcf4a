"""Where a model comes from, as a spec says it: a path on the machine, or files of a repository on a hub.

`hf://ORG/NAME[@REVISION][/FILE]`: FILE is one file, a folder, or a pattern (`*.safetensors`); without it, all files. A
revision that is a commit (40 hex digits) always means the same bytes; a branch, a tag or none may move. Pure; called by
the spec's checks, by whoever pins revisions, and by agents.
"""

import re
from dataclasses import dataclass, replace

from moorage.domain.errors import InvalidSpec

HUB = "hf://"
_FORM = re.compile(
    r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>refs/(?:pr|convert)/[^/@]+|[^/@]+))?(?:/(?P<files>.+))?"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class HubSource:
    """Files of a model repository on a hub.

    Args:
        repo: `ORG/NAME`.
        revision: commit, branch or tag; None: the hub's usual branch.
        files: one file, a folder or a pattern; None: all of them.
    """

    repo: str
    revision: str | None = None
    files: str | None = None

    @property
    def pinned(self) -> bool:
        """Whether it means the same bytes for ever."""
        return self.revision is not None and _COMMIT.fullmatch(self.revision) is not None

    @property
    def one_file(self) -> bool:
        """Whether `files` may name a single file: it is no pattern."""
        return self.files is not None and not _WILD.search(self.files)

    def at(self, commit: str) -> "HubSource":
        """The same at a commit."""
        return replace(self, revision=commit)

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision is not None else ""
        return f"{HUB}{self.repo}{revision}" + (f"/{self.files}" if self.files is not None else "")


def hub_source(source: str) -> HubSource | None:
    """The source as files of a hub; None: it is a path on the machine.

    Raises:
        InvalidSpec: it is an address that is not known, or not of the form.
    """
    if "://" not in source:
        return None
    if not source.startswith(HUB):
        raise _unreadable(source, f"models come from a path or from {HUB}ORG/NAME")
    match = _FORM.fullmatch(source)
    if match is None:
        raise _unreadable(source, f"write {HUB}ORG/NAME, {HUB}ORG/NAME@REVISION or {HUB}ORG/NAME@REVISION/FILE")
    files = match["files"]
    parts = files.rstrip("/").split("/") if files else []
    if files is not None and (not all(parts) or {".", ".."} & set(parts)):
        raise _unreadable(source, "the file is a path within the repository, without . and ..")
    return HubSource(match["repo"], match["revision"], files)


def _unreadable(source: str, how: str) -> InvalidSpec:
    return InvalidSpec(f"cannot read the model source {source!r}: {how}", remedy=how)

"""What a source is now, by huggingface_hub, and what its errors mean. Runs in `child` only."""

import fnmatch
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_url, snapshot_download
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from moorage.sources.child import Failed
from moorage.sources.messages import File, Order, Plan

SHA256_DIGITS, GIT_DIGITS = 64, 40
TIMEOUT_S = 20.0


def plan(order: Order) -> Plan:
    """What the order's source is now.

    Raises:
        Failed: no file of it is meant.
        Exception: whatever huggingface_hub raises; see `meaning_of`.
    """
    if constants.HF_HUB_OFFLINE:
        found = _kept(order)
    else:
        info = HfApi(token=order.token).model_info(
            order.repo, revision=order.revision, files_metadata=True, timeout=TIMEOUT_S
        )
        listed = [_listed(order, info.sha or "", sibling) for sibling in info.siblings or ()]
        found = Plan(info.sha or "", tuple(listed), bool(info.private or info.gated))
    meant = tuple(sorted((f for f in found.files if _meant(f.path, order.files)), key=lambda f: f.path))
    if not meant:
        what = f"no file matches {order.files}" if order.files else "there are no files"
        raise Failed("missing", f"{what} in {order.repo} at {order.revision or 'its usual branch'}")
    return Plan(found.commit, meant, found.restricted)


def check(order: Order, found: Plan) -> None:
    """That its files may be read: of a gated repository everybody may read the list.

    Raises:
        Exception: they may not.
    """
    if not constants.HF_HUB_OFFLINE:
        url = hf_hub_url(order.repo, found.files[0].path, revision=found.commit)
        get_hf_file_metadata(url, token=order.token, timeout=TIMEOUT_S)


def snapshot(order: Order) -> Path:
    """The folder of the machine's own huggingface_hub cache that has it (HF_HUB_OFFLINE)."""
    return Path(snapshot_download(order.repo, revision=order.revision, local_files_only=True))


def meaning_of(cause: BaseException) -> tuple[str, str] | None:
    """Kind and message of an error of huggingface_hub's; None: it is none of theirs."""
    told = _message(cause)
    if isinstance(cause, (OfflineModeIsEnabled, LocalEntryNotFoundError)):
        return "refused", "HF_HUB_OFFLINE is set and the machine's own cache of huggingface_hub (HF_HOME) lacks it"
    if isinstance(cause, (GatedRepoError, DisabledRepoError)):
        return "denied", told
    if isinstance(cause, RevisionNotFoundError):
        return "revision", told
    if isinstance(cause, RepositoryNotFoundError):
        status = _status(cause)
        return ("denied" if status in (401, 403) else "missing"), told
    if isinstance(cause, EntryNotFoundError):
        return "missing", told
    if isinstance(cause, HFValidationError):
        return "refused", told
    if isinstance(cause, HfHubHTTPError):
        return _by_status(_status(cause)), told
    if type(cause).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2", "requests"):
        return "busy", told
    return None


def _by_status(status: int | None) -> str:
    if status in (401, 403):
        return "denied"
    if status in (404, 410, 451):
        return "missing"
    return "refused" if status is not None and 400 <= status < 500 and status not in (408, 425, 429) else "busy"


def _status(cause: Any) -> int | None:
    response = getattr(cause, "response", None)
    return None if response is None else int(response.status_code)


def _message(cause: BaseException) -> str:
    """Its first sentence that says something: theirs are followed by advice for those who call the library."""
    server = getattr(cause, "server_message", None)
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return str(server or (lines[0] if lines else type(cause).__name__))


def _listed(order: Order, commit: str, sibling: Any) -> File:
    lfs = sibling.lfs
    sha256 = getattr(lfs, "sha256", None) or (lfs.get("sha256") if isinstance(lfs, dict) else None)
    size = sibling.size
    if size is None and _meant(sibling.rfilename, order.files):  # a mirror that does not say
        url = hf_hub_url(order.repo, sibling.rfilename, revision=commit)
        size = get_hf_file_metadata(url, token=order.token, timeout=TIMEOUT_S).size
    return File(sibling.rfilename, int(size or 0), sha256, None if sha256 else sibling.blob_id)


def _meant(path: str, files: str | None) -> bool:
    if files is None or path == files:
        return True
    folder = files.rstrip("/") + "/"
    return path.startswith(folder) or fnmatch.fnmatchcase(path, files)


def _kept(order: Order) -> Plan:
    """What the machine's own cache has; its blobs are named by what they must be."""
    folder = snapshot(order)
    paths: Sequence[Path] = sorted(p for p in folder.rglob("*") if p.is_file())
    return Plan(folder.name, tuple(_kept_file(folder, path) for path in paths))


def _kept_file(folder: Path, path: Path) -> File:
    name = path.resolve().name
    hexadecimal = all(c in "0123456789abcdef" for c in name)
    sha256 = name if hexadecimal and len(name) == SHA256_DIGITS else None
    git = name if hexadecimal and len(name) == GIT_DIGITS else None
    return File(posixpath.join(*path.relative_to(folder).parts), path.stat().st_size, sha256, git)

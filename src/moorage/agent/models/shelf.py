"""Models on disk, under one folder: `entries/KEY` whole ones, `partial/KEY` those on their way. No network, no waiting.

An entry takes its place by one rename once all of it is on disk, with `entry.json` saying what it is (source, commit,
each file with its size and sha256). `use.json` beside it says what changes: last use, pinned, for whom it was opened.
What is removed is renamed first, so that nothing half removed is ever taken for a model. Called by `cache`, from
threads where it takes time.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moorage.domain.sources import HubSource, hub_source

ENTRY, USE, ORDER, FILES = "entry.json", "use.json", "order.json", "files"
ASIDE = ".gone-"


@dataclass(frozen=True, slots=True)
class Entry:
    """A model that is here.

    Args:
        key: names its folder.
        source: with its commit.
        files: {path, size, sha256, proven} of each.
        fetched_at: seconds since the epoch.
        restricted: not everybody may read it at its hub.
        folder: of the entry.
        used_at: when a worker was last given it, seconds since the epoch.
        pinned: it is not removed to make room.
        opened_for: namespaces that proved that they may read it.
        names: sources without a commit that meant this one when they were last looked up.
    """

    key: str
    source: HubSource
    files: tuple[Mapping[str, Any], ...]
    fetched_at: float
    restricted: bool
    folder: Path
    used_at: float = 0.0
    pinned: bool = False
    opened_for: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(int(file["size"]) for file in self.files)

    @property
    def path(self) -> Path:
        """What `{model}` becomes: the file, where the source names one, else the folder of all of them."""
        files = self.folder / FILES
        alone = self.source.one_file and len(self.files) == 1 and self.files[0]["path"] == self.source.files
        return files / str(self.source.files) if alone else files

    def sound(self) -> bool:
        """Whether its files are there with their sizes."""
        try:
            return all((self.folder / FILES / f["path"]).stat().st_size == f["size"] for f in self.files)
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Partial:
    """A model that is on its way, or was: what came stays to go on from.

    Args:
        key, source: of the entry that it becomes.
        ordered: a person asked for it, and not only a worker; `pin`: to stay.
        size: bytes on disk.
        touched_at: seconds since the epoch.
    """

    key: str
    source: HubSource
    folder: Path
    ordered: bool
    pin: bool
    size: int
    touched_at: float


def key_of(source: HubSource) -> str:
    """The folder's name for a source with its commit: readable, and its own."""
    name = source.repo.replace("/", "--")[:80]
    digest = hashlib.sha256(str(source).encode()).hexdigest()[:12]
    return f"{name}-{(source.revision or '')[:12]}-{digest}"


class Shelf:
    """What lies under a folder.

    Args:
        base: the folder.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self._entries = base / "entries"
        self._partial = base / "partial"

    def load(self) -> dict[str, Entry]:
        """Every whole model by key; what is half removed goes for good."""
        if not self.base.is_dir():
            return {}
        for aside in self.base.glob(f"{ASIDE}*"):
            shutil.rmtree(aside, ignore_errors=True)
        folders = sorted(self._entries.iterdir()) if self._entries.is_dir() else []
        found = (_read_entry(folder) for folder in folders)
        return {entry.key: entry for entry in found if entry is not None}

    def partials(self) -> list[Partial]:
        """Those on their way, the longest untouched first."""
        folders = self._partial.iterdir() if self._partial.is_dir() else ()
        found = [p for p in (_read_partial(folder) for folder in folders) if p is not None]
        return sorted(found, key=lambda p: p.touched_at)

    def begin(self, source: HubSource, *, ordered: bool, pin: bool) -> Path:
        """The folder into which files of a source come, with what is there already."""
        folder = self._partial / key_of(source)
        (folder / FILES).mkdir(mode=0o755, parents=True, exist_ok=True)
        known = _json(folder / ORDER) or {}
        ordered, pin = ordered or bool(known.get("ordered")), pin or bool(known.get("pin"))
        _write(folder / ORDER, {"source": str(source), "ordered": ordered, "pin": pin})
        return folder / FILES

    def finish(self, source: HubSource, files: Iterable[Mapping[str, Any]], *, now: float, restricted: bool) -> Entry:
        """All files are there: it is a model from now on. Files that do not belong to it go."""
        key = key_of(source)
        folder, target = self._partial / key, self._entries / key
        order = _json(folder / ORDER) or {}
        entry = Entry(key, source, tuple(files), now, restricted, target, now, bool(order.get("pin")))
        _drop_strangers(folder / FILES, {str(f["path"]) for f in entry.files})
        told = {"source": str(source), "files": list(entry.files), "fetched_at": now, "restricted": restricted}
        _write(folder / ENTRY, told)
        _write(folder / USE, _use(entry))
        _sync_tree(folder)
        self._entries.mkdir(mode=0o755, parents=True, exist_ok=True)
        if target.exists():
            self.remove((target,))
        folder.rename(target)
        _sync(self._entries)
        return entry

    def reopen(self, entry: Entry) -> None:
        """Something of it is missing: back to those on their way, to be completed and proven again."""
        folder = self._partial / entry.key
        folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if folder.exists():
            self.remove((folder,))
        entry.folder.rename(folder)
        _write(folder / ORDER, {"source": str(entry.source), "ordered": False, "pin": entry.pinned})

    def note(self, entry: Entry, **changed: Any) -> Entry:
        """The entry with something of its use changed, on disk."""
        entry = replace(entry, **changed)
        _write(entry.folder / USE, _use(entry))
        return entry

    def drop_partial(self, key: str) -> None:
        """Remove what came of one."""
        folder = self._partial / key
        if folder.exists():
            self.remove((folder,))

    def remove(self, folders: Iterable[Path]) -> None:
        """Remove folders: gone for everybody at once, and their room free when this returns."""
        aside = []
        for folder in folders:
            aside.append(Path(tempfile.mkdtemp(prefix=ASIDE, dir=self.base)))
            folder.rename(aside[-1] / folder.name)
        for folder in aside:
            shutil.rmtree(folder)

    def room(self) -> tuple[int, int]:
        """Bytes of its disk: (total, free)."""
        self.base.mkdir(mode=0o755, parents=True, exist_ok=True)
        usage = shutil.disk_usage(self.base)
        return usage.total, usage.free


def _read_entry(folder: Path) -> Entry | None:
    told, use = _json(folder / ENTRY), _json(folder / USE) or {}
    source = hub_source(str(told["source"])) if told else None
    if told is None or source is None:
        return None
    return Entry(
        folder.name,
        source,
        tuple(told["files"]),
        float(told["fetched_at"]),
        bool(told["restricted"]),
        folder,
        float(use.get("used_at") or told["fetched_at"]),
        bool(use.get("pinned")),
        tuple(use.get("opened_for") or ()),
        tuple(use.get("names") or ()),
    )


def _read_partial(folder: Path) -> Partial | None:
    order = _json(folder / ORDER)
    source = hub_source(str(order["source"])) if order else None
    if order is None or source is None:
        return None
    stats = [path.stat() for path in folder.rglob("*") if path.is_file()]
    size, touched = sum(s.st_size for s in stats), max((s.st_mtime for s in stats), default=0.0)
    return Partial(folder.name, source, folder, bool(order.get("ordered")), bool(order.get("pin")), size, touched)


def _use(entry: Entry) -> dict[str, Any]:
    named = {"opened_for": list(entry.opened_for), "names": list(entry.names)}
    return {"used_at": entry.used_at, "pinned": entry.pinned, **named}


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):  # not there, or broken by a crash of the machine: as good as not there
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, value: Mapping[str, Any]) -> None:
    new = path.with_name(path.name + ".new")
    with new.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    _sync(path.parent)


def _drop_strangers(files: Path, known: set[str]) -> None:
    """Parts of an earlier try, and folders of a fetch in chunks."""
    for path in sorted(files.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif str(path.relative_to(files)) not in known:
            path.unlink()


def _sync_tree(folder: Path) -> None:
    for path in (folder, *(p for p in folder.rglob("*") if p.is_dir())):
        _sync(path)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

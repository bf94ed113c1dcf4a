"""Compiled forms of the gateway's hot path: what was built, whether it is of these sources, putting it in use.

Here: the list of compiled modules, the manifest that a build leaves beside the code (`moorage/accelerated/`), and the
finder that answers for those modules. Not here: the build (`tools/build_accelerators.py`), what they do. Called by
`worker` before any of those modules is imported, by the build and by tests. Standard library only.

    native      the inner loops in C (`native/*.c`), asked by the modules, which can do without
    compiled    the modules of `COMPILED` as mypyc makes them out of the same Python

Each works without the other, and all works without both. What cannot be used for certain is not used: another Python,
another source, a file that is damaged or missing. That is told once and costs speed, never an answer.
"""

import hashlib
import importlib
import importlib.machinery
import importlib.util
import json
import sys
import sysconfig
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast

from moorage.domain.errors import InvalidSpec
from moorage.gateway import native

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
NATIVE: Final = "native"
COMPILED: Final = "compiled"
PARTS: Final = (NATIVE, COMPILED)
LIBRARY: Final[Mapping[str, str]] = {NATIVE: "moorage_gateway_native", COMPILED: "moorage_gateway__mypyc"}
"""The extension module of each part. That of `compiled` holds all the modules below."""
MODULES: Final = (
    *(
        f"moorage.gateway.{name}"
        for name in (
            "access_lines",
            "arrivals",
            "counting",
            "exchange",
            "fields",
            "framing",
            "frontend",
            "heads",
            "hub",
            "intake",
            "keys",
            "limit_answers",
            "limits",
            "link",
            "measures",
            "naming",
            "pools",
            "records",
            "rewriting",
            "shapes",
            "skim",
            "spending",
            "straight",
            "switching",
            "tokens",
            "toplevel",
            "upstream",
            "usage",
            "ways",
            "windows",
        )
    ),
    *(f"moorage.decide.serving.{name}" for name in ("affinity", "binding", "picking", "queueing", "routes", "routing")),
)
"""What is compiled: all that a request passes. Their last names differ, since one library starts all of them."""
REMEDY: Final = "make accelerators (it needs a C compiler and Python's headers), or gateway_accelerators = off"
_PACKAGE: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Installed:
    """What is in use.

    `parts`: of `PARTS`. `fault`: why not all that was built is, in words; empty where nothing is amiss.
    """

    parts: tuple[str, ...] = ()
    fault: str = ""


PURE: Final = Installed()
"""Nothing."""


class Unusable(Exception):
    """A part that is not to be used, with the reason."""


def install(
    choice: str = "auto",
    *,
    folder: Path = _PACKAGE / "accelerated",
    package: Path = _PACKAGE,
    wanted: Collection[str] = PARTS,
    insist: bool = True,
) -> Installed:
    """Use what was built, from now on in this process; before any of `MODULES` is imported.

    Args:
        choice: `auto` takes what is usable; `require` takes all or refuses; `off` takes nothing.
        folder: where the build lies.
        package: of the sources of which it must be.
        wanted: parts to take.
        insist: whether `require` refuses. A process that replaces one that died does not: no service is worse.

    Raises:
        InvalidSpec: `require`, which is insisted on, and a part cannot be used.
    """
    if choice == "off":
        return PURE
    early = [name for name in MODULES if name in sys.modules]
    if early:
        raise RuntimeError(f"{early[0]} was imported before it was chosen in which form")
    parts: list[str] = []
    faults: list[str] = []
    try:
        manifest = _read_manifest(folder)
    except FileNotFoundError:
        faults = ["no accelerators were built"] if choice == "require" else []
        manifest = None
    except Unusable as error:
        faults = [str(error)]
        manifest = None
    for part in PARTS if manifest is not None else ():
        if part in wanted:
            try:
                _take(part, library_of(manifest, part, folder, package))
                parts.append(part)
            except Unusable as error:
                faults.append(str(error))
    if choice == "require" and faults and insist:
        raise InvalidSpec(f"gateway: accelerators are required, but {'; '.join(faults)}", remedy=REMEDY)
    return Installed(tuple(parts), "; ".join(faults))


# --- the manifest ----------------------------------------------------------------------------------------------------


def tag() -> str:
    """Of Pythons that can use the same build."""
    return f"{sysconfig.get_config_var('EXT_SUFFIX')} {sysconfig.get_platform()}"


def digest_of(path: Path) -> str:
    """Of a file's exact bytes.

    Raises:
        OSError: it cannot be read.
    """
    return hashlib.sha256(path.read_bytes()).hexdigest()


def manifest_of(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What a build says of itself.

    Args:
        parts: of each part that was built, `file` below the folder, its `digest`, and `sources`: the digest of each
            file below the package of which it is made.
    """
    return {"format": FORMAT, "tag": tag(), "modules": list(MODULES), "parts": parts}


def library_of(manifest: Mapping[str, Any] | None, part: str, folder: Path, package: Path) -> Path:
    """The library of a part, once it is certain to be the one that was built of these sources.

    Raises:
        Unusable: it is not, or there is none.
    """
    told = manifest["parts"].get(part) if manifest is not None else None
    if told is None:
        raise Unusable(f"the {part} part was not built")
    for name, digest in told["sources"].items():
        if _digest_or_none(_below(package, name, folder)) != digest:
            raise Unusable(f"the {part} part was built before {name} changed")
    library = _below(folder, told["file"], folder)
    found = _digest_or_none(library)
    if found != told["digest"]:
        raise Unusable(f"{library} {'is missing' if found is None else 'is damaged'}")
    return library


def is_current(folder: Path, package: Path, parts: Collection[str] = PARTS) -> bool:
    """Whether these parts are built, of these sources and for this Python."""
    try:
        manifest = _read_manifest(folder)
        for part in parts:
            library_of(manifest, part, folder, package)
    except (FileNotFoundError, Unusable):
        return False
    return True


def _read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest, of this release's form and for this Python.

    Raises:
        FileNotFoundError: nothing was built.
        Unusable: what was built is for others.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{path} cannot be read: it is not JSON") from error
    if not isinstance(manifest, dict):
        raise Unusable(f"{path} cannot be read: it is no JSON object")
    lacks = [name for name in ("format", "tag", "modules", "parts") if name not in manifest]
    if lacks:
        raise Unusable(f"{path} cannot be read: it has no {' and no '.join(lacks)}")
    if manifest["format"] != FORMAT or manifest["modules"] != list(MODULES):
        raise Unusable("they were built for another release")
    if manifest["tag"] != tag():
        raise Unusable(f"they were built for another Python ({manifest['tag']}, and this is {tag()})")
    if not isinstance(manifest["parts"], dict) or not all(map(_is_whole, manifest["parts"].values())):
        raise Unusable(f"{path} cannot be read: it does not say of each part its file, its digest and its sources")
    return manifest


def _is_whole(part: object) -> bool:
    """Whether what a manifest says of a part has the form that this release writes."""
    if not isinstance(part, dict) or not isinstance(part.get("sources"), dict):
        return False
    return all(isinstance(each, str) for each in (part.get("file"), part.get("digest"), *part["sources"].values()))


def _below(place: Path, name: str, folder: Path) -> Path:
    """The file of this name.

    Raises:
        Unusable: it would be elsewhere, where no build puts anything.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise Unusable(f"{folder / MANIFEST} names {name}, which is outside {place}")
    return place / name


def _digest_or_none(path: Path) -> str | None:
    try:
        return digest_of(path)
    except (OSError, ValueError):  # no such file, or no name of one
        return None


# --- use -------------------------------------------------------------------------------------------------------------


class Finder(MetaPathFinder):
    """Answers for the modules in one library, and for no other."""

    def __init__(self, names: Collection[str], library: Path) -> None:
        self._names = frozenset(names)
        self._library = str(library)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of this library is."""
        if fullname not in self._names:
            return None
        loader = ExtensionFileLoader(fullname, self._library)
        return importlib.util.spec_from_file_location(fullname, self._library, loader=loader)


def _take(part: str, library: Path) -> None:
    names = (LIBRARY[part],) if part == NATIVE else (LIBRARY[part], *MODULES)
    finder = Finder(names, library)
    before = set(sys.modules)
    sys.meta_path.insert(0, finder)
    try:
        for name in names:
            importlib.import_module(name)
    except Exception as error:  # whatever it is: Python's own form of the same modules has it not
        sys.meta_path.remove(finder)
        _forget(set(sys.modules) - before)
        raise Unusable(f"the {part} part does not start: {type(error).__name__}: {error}") from error
    if part == NATIVE:
        native.use(cast(native.NativeCore, sys.modules[LIBRARY[part]]))


def _forget(names: Collection[str]) -> None:
    """What came with a part that does not start is imported anew: it may have got hold of the part's classes."""
    for name in names:
        if name.partition(".")[0] == "moorage" or name in LIBRARY.values():
            del sys.modules[name]

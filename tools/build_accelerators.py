"""`make accelerators`: compiles the gateway's hot path into `src/moorage/accelerated/`, where its processes find it.

    .venv/bin/python tools/build_accelerators.py            build what is not current
    .venv/bin/python tools/build_accelerators.py --check    whether all is current; builds nothing

Here: a copy of the sources, C out of them (mypyc), the compiler's runs, a trial of what came out, and its place. Not
here: what is compiled, and when it is used (`moorage.gateway.accelerators`). Called by `make accelerators`, `.ci/run`
and the build of a wheel (`tools/hatch_accelerators.py`). Nothing is written beside the code before all of it works.
"""

import argparse
import ast
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from moorage.gateway import accelerators
from moorage.gateway.accelerators import COMPILED, LIBRARY, MANIFEST, MODULES, NATIVE

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "moorage"
FOLDER = PACKAGE / "accelerated"
CACHE = ROOT / ".cache" / "accelerators"
"""What mypy knows of everything that is not compiled, for the next time."""
CORE = "gateway/native"
"""The folder of the C."""
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
COMPILE = ("-O2", "-g0", "-fPIC", "-fvisibility=hidden", "-fstack-protector-strong", "-fno-plt", "-DNDEBUG", "-fwrapv")
"""As the Python that we run in was made, besides hidden names and guarded stacks. Nothing that only this machine's
processor knows: a wheel is for others."""
STRICT = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-D_FORTIFY_SOURCE=2")
"""For what we write in C ourselves."""
LINK = ("-shared", "-Wl,-z,relro,-z,now", "-Wl,--as-needed")
MYPY = "[mypy]\nignore_missing_imports = True\nfollow_imports = silent\n"
TRIAL = """
import sys
from pathlib import Path
from moorage.gateway import accelerators
folder, package, *parts = sys.argv[1:]
found = accelerators.install("auto", folder=Path(folder), package=Path(package), wanted=parts)
sys.exit(found.fault or (0 if set(found.parts) == set(parts) else f"only {found.parts} start"))
"""


class NotBuilt(Exception):
    """Why there is no build, with what to do."""


@dataclass(frozen=True)
class Unit:
    """One run of the compiler."""

    source: Path
    output: Path
    options: tuple[str, ...] = ()


def main(arguments: list[str] | None = None) -> int:
    """The command. Exit code 1 where nothing can be built here, or with `--check` where it is not current."""
    parser = argparse.ArgumentParser(description="Compile the gateway's hot path.")
    parser.add_argument("--check", action="store_true", help="only say whether all is current")
    parser.add_argument("--force", action="store_true", help="build what is current, too")
    options = parser.parse_args(arguments)
    if accelerators.is_current(FOLDER, PACKAGE) and not options.force:
        print("accelerators: current")
        return 0
    if options.check:
        print("accelerators: not current; make accelerators")
        return 1
    began = time.monotonic()
    try:
        build(FOLDER)
    except NotBuilt as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"accelerators: built in {time.monotonic() - began:.0f} s; a gateway that runs takes them up with its reload")
    return 0


def build(folder: Path) -> None:
    """Compile all, try it, and put it in `folder` at once.

    Raises:
        NotBuilt: there is no compiler, or something does not compile or start.
    """
    _require_tools()
    with tempfile.TemporaryDirectory(prefix="moorage-accelerators-") as scratch:
        work = Path(scratch)
        package = _copied(work / "src" / "moorage")
        made = work / "made"
        made.mkdir()
        files = {
            NATIVE: _native(package, work / "native", made),
            COMPILED: _compiled(package, work / "compiled", made),
        }
        sources = {NATIVE: native_sources(package), COMPILED: compiled_sources(package)}
        parts = {
            part: {
                "file": file.name,
                "digest": accelerators.digest_of(file),
                "sources": {name: accelerators.digest_of(package / name) for name in sorted(sources[part])},
            }
            for part, file in files.items()
        }
        manifest = accelerators.manifest_of(parts)
        (made / MANIFEST).write_text(json.dumps(manifest, indent=1))
        _try(made, package)
        _publish(made, folder)


# --- of what it is made ----------------------------------------------------------------------------------------------


def compiled_sources(package: Path) -> set[str]:
    """The compiled modules, and all that they import: constants and types of those are compiled in, too."""
    own = {_file_of(package, name) for name in MODULES}
    return own.union(*(_imported(package, name) for name in own))


def native_sources(package: Path) -> set[str]:
    """The C, and the Python with which it must agree: the modules that ask it."""
    asking = (path.relative_to(package).as_posix() for path in (package / "gateway").glob("*.py"))
    own = {path.relative_to(package).as_posix() for path in (package / "gateway" / "native").iterdir()}
    own = {name for name in own if name.endswith((".py", ".c", ".h"))}
    return own | {name for name in asking if "gateway/native/__init__.py" in _imported(package, name)}


def _imported(package: Path, name: str) -> set[str]:
    """Files of ours that this one imports, at its top or for types."""
    found = set()
    for node in ast.walk(ast.parse((package / name).read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "moorage":
            found |= {
                _file_of(package, node.module),
                *(_file_of(package, f"{node.module}.{a.name}") for a in node.names),
            }
    return {file for file in found if file}


def _file_of(package: Path, module: str) -> str:
    """Of a module below the package; nothing where the name is none of a module."""
    path = module.replace(".", "/").removeprefix("moorage").removeprefix("/")
    for file in (f"{path}.py", f"{path}/__init__.py".removeprefix("/")):
        if path and (package / file).is_file():
            return file
    return ""


def _copied(package: Path) -> Path:
    """The sources as they are now: somebody may be writing them."""
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "accelerated", "*.so"))
    return package


# --- compiling -------------------------------------------------------------------------------------------------------


def _require_tools() -> None:
    if shutil.which(_compiler()[0]) is None:
        raise NotBuilt(f"there is no C compiler ({_compiler()[0]}): install one, such as the package gcc")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        where = sysconfig.get_path("include")
        raise NotBuilt(f"Python's headers are not in {where}: install them, such as the package python3-dev")
    try:
        import mypyc  # noqa: F401 - whether it is there
        import setuptools  # noqa: F401 - of which mypyc needs a class
    except ImportError as error:
        raise NotBuilt(f"{error.name} is missing: make setup") from error


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc"))


def _native(package: Path, work: Path, made: Path) -> Path:
    """The library of the C core, of all the C that lies there."""
    work.mkdir()
    sources = sorted((package / CORE).glob("*.c"))
    units = [Unit(source, work / f"{source.stem}.o", STRICT) for source in sources]
    _compile("native", units)
    return _link([unit.output for unit in units], made / f"{LIBRARY[NATIVE]}{SUFFIX}")


def _compiled(package: Path, work: Path, made: Path) -> Path:
    """The library of the compiled modules: mypyc's own, with what starts each module linked into it."""
    work.mkdir()
    _say("compiled: types, and C out of Python")
    units = list(_units(_translated(package, work), work))
    _compile("compiled", units)
    return _link([unit.output for unit in units], made / f"{LIBRARY[COMPILED]}{SUFFIX}")


@dataclass(frozen=True)
class Extension:
    """What mypyc says of one extension module."""

    name: str
    sources: tuple[Path, ...]
    options: tuple[str, ...]


def _translated(package: Path, work: Path) -> list[Extension]:
    from mypyc.build import mypycify

    config = work / "mypy.ini"
    config.write_text(MYPY)
    CACHE.mkdir(parents=True, exist_ok=True)
    files = [f"moorage/{_file_of(package, name)}" for name in MODULES]
    with contextlib.chdir(package.parent):  # mypyc names modules by the folders from here
        try:
            found = mypycify(
                [f"--config-file={config}", f"--cache-dir={CACHE}", *files],
                multi_file=True,
                group_name=LIBRARY[COMPILED].removesuffix("__mypyc"),
                target_dir=str(work),
            )
        except SystemExit as error:
            raise NotBuilt(f"mypyc cannot translate these modules ({error.code}); what it says stands above") from error
    return [
        Extension(each.name, tuple(map(Path, each.sources)), (*_defined(each), *_included(each.include_dirs)))
        for each in found
    ]


def _defined(extension: object) -> Iterator[str]:
    for name, value in getattr(extension, "define_macros", ()):
        yield f"-D{name}" if value is None else f"-D{name}={value}"


def _included(folders: Iterable[str]) -> Iterator[str]:
    return (f"-I{folder}" for folder in folders)


def _units(extensions: Iterable[Extension], work: Path) -> Iterator[Unit]:
    for extension in extensions:
        for source in extension.sources:
            plain = extension.name.replace(".", "_")
            # Each would start a package of any name as well; linked together they must not all be called the same.
            apart = () if extension.name == LIBRARY[COMPILED] else (f"-DPyInit___init__=PyInit___init___{plain}",)
            output = work / f"{plain}-{source.stem}.o"
            yield Unit(source, output, ("-w", f"-I{work}", *extension.options, *apart))


def _compile(part: str, units: Sequence[Unit]) -> None:
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for number, _ in enumerate(pool.map(_compile_one, units), 1):
            if number == len(units) or number % 10 == 0:
                _say(f"{part}: {number} of {len(units)} files compiled")


def _compile_one(unit: Unit) -> None:
    include = sysconfig.get_path("include")
    _run([*_compiler(), *COMPILE, *unit.options, f"-I{include}", "-c", str(unit.source), "-o", str(unit.output)])


def _link(objects: Iterable[Path], library: Path) -> Path:
    _run([*_compiler(), *LINK, *map(str, objects), "-o", str(library)])
    return library


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotBuilt(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")


# --- its place -------------------------------------------------------------------------------------------------------


def _try(made: Path, package: Path) -> None:
    """Start all of it in a process of its own, each part alone and both together."""
    env = {**os.environ, "PYTHONPATH": str(package.parent)}
    for parts in ((NATIVE,), (COMPILED,), (NATIVE, COMPILED)):
        command = [sys.executable, "-P", "-c", TRIAL, str(made), str(package), *parts]
        done = subprocess.run(command, env=env, cwd=made, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotBuilt(f"what was built does not start ({' and '.join(parts)}):\n{done.stderr.strip()}")
    _say("each part starts, and both together")


def _publish(made: Path, folder: Path) -> None:
    """Libraries first, under names of their own; then, in one step, the manifest that names them."""
    folder.mkdir(exist_ok=True)
    manifest = json.loads((made / MANIFEST).read_text())
    for part in manifest["parts"].values():
        own = f"{part['digest'][:12]}/{part['file']}"
        (folder / own).parent.mkdir(exist_ok=True)
        shutil.copyfile(made / part["file"], folder / f"{own}.part")
        (folder / f"{own}.part").replace(folder / own)
        part["file"] = own
    before = _named_by(folder)
    part_file = folder / f"{MANIFEST}.part"
    part_file.write_text(json.dumps(manifest, indent=1))
    part_file.replace(folder / MANIFEST)
    _remove_others(folder, before | _named_by(folder))


def _named_by(folder: Path) -> set[str]:
    """Folders of the libraries that the manifest there names."""
    try:
        parts: Mapping[str, Mapping[str, str]] = json.loads((folder / MANIFEST).read_text())["parts"]
        return {part["file"].partition("/")[0] for part in parts.values()}
    except (OSError, ValueError, KeyError):
        return set()


def _remove_others(folder: Path, kept: Collection[str]) -> None:
    """Those of the build before stay: a process may just be starting with them."""
    for path in folder.iterdir():
        if path.is_dir() and path.name not in kept:
            shutil.rmtree(path)


def _say(what: str) -> None:
    print(f"  {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

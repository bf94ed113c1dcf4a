"""What was built is used only where it is whole, of these sources and for this Python; else all is Python.

Libraries of the real size are not built here: the C library of these tests is compiled in a moment, and the trials run
in processes of their own, since a process takes its form once.
"""

import json
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from moorage.domain.errors import InvalidSpec
from moorage.gateway import accelerators, crew
from moorage.gateway.accelerators import COMPILED, LIBRARY, MANIFEST, MODULES, NATIVE

SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
STARTS = """
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "moorage_gateway_native", 0, -1, 0};
PyMODINIT_FUNC PyInit_moorage_gateway_native(void) { return PyModule_Create(&module); }
"""
BREAKS = """
#include <Python.h>
static struct PyModuleDef library = {PyModuleDef_HEAD_INIT, "moorage_gateway__mypyc", 0, -1, 0};
static struct PyModuleDef first = {PyModuleDef_HEAD_INIT, "FIRST", 0, -1, 0};
PyMODINIT_FUNC PyInit_moorage_gateway__mypyc(void) { return PyModule_Create(&library); }
PyMODINIT_FUNC PyInit_FIRST(void) { return PyModule_Create(&first); }
PyMODINIT_FUNC PyInit_SECOND(void) { PyErr_SetString(PyExc_TypeError, "planted"); return NULL; }
""".replace("FIRST", MODULES[0].rpartition(".")[2]).replace("SECOND", MODULES[1].rpartition(".")[2])
"""Modules of which the first starts and the second refuses to."""
LOOK = """
import json, sys
from pathlib import Path
from moorage.domain.errors import InvalidSpec
from moorage.gateway import accelerators, native
folder, package, choice, wanted, insist = sys.argv[1:]
try:
    found = accelerators.install(
        choice, folder=Path(folder), package=Path(package), wanted=wanted.split(), insist=bool(insist)
    )
    told = {"parts": found.parts, "fault": found.fault}
except InvalidSpec as error:
    told = {"refused": error.message, "remedy": error.remedy}
import importlib.util
told["core"] = native.core is not None
told["left"] = [name for name in accelerators.MODULES if name in sys.modules]
told["origins"] = [importlib.util.find_spec(name).origin for name in accelerators.MODULES]
told["finders"] = sum(type(each).__name__ == "Finder" for each in sys.meta_path)
print(json.dumps(told))
"""


@dataclass
class Built:
    """A build, as `tools/build_accelerators.py` leaves it, of a package of two sources."""

    folder: Path
    package: Path

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / MANIFEST).read_text())
        return found

    def change(self, **values: object) -> None:
        (self.folder / MANIFEST).write_text(json.dumps({**self.manifest, **values}))

    def library(self, part: str) -> Path:
        return self.folder / str(self.manifest["parts"][part]["file"])

    def look(
        self, choice: str = "auto", *, wanted: tuple[str, ...] = accelerators.PARTS, insist: bool = True
    ) -> dict[str, Any]:
        """What a process uses that is told so."""
        command = [sys.executable, "-c", LOOK, str(self.folder), str(self.package), choice, " ".join(wanted)]
        command.append("yes" if insist else "")
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One that starts and one that does not, compiled once."""
    compiler = shlex.split(str(sysconfig.get_config_var("CC") or "cc"))
    headers = Path(sysconfig.get_path("include"))
    if shutil.which(compiler[0]) is None or not (headers / "Python.h").is_file():
        pytest.skip(f"no C compiler ({compiler[0]}), or no Python.h in {headers}")
    place = tmp_path_factory.mktemp("libraries")
    for part, text in ((NATIVE, STARTS), (COMPILED, BREAKS)):
        source = place / f"{part}.c"
        source.write_text(text)
        output = place / f"{LIBRARY[part]}{SUFFIX}"
        subprocess.run([*compiler, "-shared", "-fPIC", f"-I{headers}", str(source), "-o", str(output)], check=True)
    return {part: place / f"{LIBRARY[part]}{SUFFIX}" for part in (NATIVE, COMPILED)}


@pytest.fixture
def built(tmp_path: Path, libraries: dict[str, Path]) -> Built:
    """Whose native part starts and whose compiled one does not."""
    package, folder = tmp_path / "moorage", tmp_path / "accelerated"
    package.mkdir()
    folder.mkdir()
    parts = {}
    for part, library in libraries.items():
        (package / f"{part}.py").write_text(f"of = '{part}'\n")
        shutil.copy(library, folder)
        sources = {f"{part}.py": accelerators.digest_of(package / f"{part}.py")}
        parts[part] = {"file": library.name, "digest": accelerators.digest_of(library), "sources": sources}
    (folder / MANIFEST).write_text(json.dumps(accelerators.manifest_of(parts)))
    return Built(folder, package)


def assert_pure(told: dict[str, Any]) -> None:
    assert_modules_are_python(told)
    assert not told["core"]
    assert told["finders"] == 0


def assert_modules_are_python(told: dict[str, Any]) -> None:
    assert not told["left"]
    assert {origin[-3:] for origin in told["origins"]} == {".py"}


def test_a_part_that_is_right_is_used_and_no_other(built: Built) -> None:
    told = built.look(wanted=(NATIVE,))
    assert (told["parts"], told["fault"], told["core"]) == ([NATIVE], "", True)
    assert_modules_are_python(told)


def test_off_uses_nothing(built: Built) -> None:
    told = built.look("off")
    assert (told["parts"], told["fault"]) == ([], "")
    assert_pure(told)


def test_a_part_that_does_not_start_costs_only_itself_and_says_why(built: Built) -> None:
    told = built.look()
    assert told["parts"] == [NATIVE]
    assert "planted" in told["fault"]
    assert told["core"]
    assert_modules_are_python(told)  # the one that had started, too
    assert told["finders"] == 1


def test_what_is_required_and_does_not_start_is_refused_with_what_to_do(built: Built) -> None:
    told = built.look("require")
    assert "planted" in told["refused"]
    assert "make accelerators" in told["remedy"]


def test_another_source_makes_a_build_stale(built: Built) -> None:
    (built.package / f"{NATIVE}.py").write_text("of = 'something else'\n")
    told = built.look(wanted=(NATIVE,))
    assert told["fault"] == f"the {NATIVE} part was built before {NATIVE}.py changed"
    assert_pure(told)


def test_a_source_that_is_gone_makes_a_build_stale(built: Built) -> None:
    (built.package / f"{NATIVE}.py").unlink()
    assert "before" in built.look(wanted=(NATIVE,))["fault"]


def test_another_python_uses_nothing(built: Built) -> None:
    built.change(tag=".cpython-399-vax.so linux-vax")
    told = built.look()
    assert "another Python (.cpython-399-vax.so" in told["fault"]
    assert_pure(told)


@pytest.mark.parametrize("values", [{"format": 0}, {"modules": [*MODULES, "moorage.gateway.more"]}])
def test_another_releases_build_is_not_used(built: Built, values: dict[str, object]) -> None:
    built.change(**values)
    told = built.look()
    assert told["fault"] == "they were built for another release"
    assert_pure(told)


def test_a_library_that_is_missing_is_told(built: Built) -> None:
    library = built.library(NATIVE)
    library.unlink()
    told = built.look(wanted=(NATIVE,))
    assert told["fault"] == f"{library} is missing"
    assert_pure(told)


def test_a_damaged_library_is_not_even_loaded(built: Built) -> None:
    library = built.library(NATIVE)
    library.write_bytes(library.read_bytes()[:-1000])  # loading it may kill the process
    told = built.look(wanted=(NATIVE,))
    assert told["fault"] == f"{library} is damaged"
    assert_pure(told)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is not JSON"),
        ("\x00", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "it is no JSON object"),
        ('{"format": 1, "parts": {}}', "it has no tag and no modules"),
    ],
    ids=["cut", "bytes", "deep", "list", "lacking"],
)
def test_a_manifest_that_cannot_be_read_is_as_none_but_told(built: Built, text: str, why: str) -> None:
    (built.folder / MANIFEST).write_text(text)
    told = built.look()
    assert told["fault"] == f"{built.folder / MANIFEST} cannot be read: {why}"
    assert_pure(told)


def test_a_manifest_that_may_not_be_read_is_told_in_words(built: Built) -> None:
    (built.folder / MANIFEST).unlink()
    (built.folder / MANIFEST).mkdir()
    assert built.look()["fault"] == f"{built.folder / MANIFEST} cannot be read: Is a directory"


@pytest.mark.parametrize(
    "parts", [[], {NATIVE: "x"}, {NATIVE: {}}, {NATIVE: {"file": "x", "digest": None, "sources": {}}}], ids=repr
)
def test_a_manifest_that_says_too_little_of_a_part_is_as_none_but_told(built: Built, parts: object) -> None:
    built.change(parts=parts)
    told = built.look()
    assert "does not say of each part its file, its digest and its sources" in told["fault"]
    assert_pure(told)


@pytest.mark.parametrize("of", ["file", "sources"])
@pytest.mark.parametrize("absolute", [True, False])
def test_a_manifest_that_names_a_file_outside_its_folder_is_not_followed(built: Built, of: str, absolute: bool) -> None:
    outside = shutil.copy(built.library(NATIVE), built.folder.parent)  # whole, and of the right digest
    name = str(outside) if absolute else f"../{Path(outside).name}"
    native = built.manifest["parts"][NATIVE]
    native[of] = name if of == "file" else {name: native["digest"]}
    built.change(parts={NATIVE: native})
    told = built.look(wanted=(NATIVE,))
    place = built.folder if of == "file" else built.package
    assert told["fault"] == f"{built.folder / MANIFEST} names {name}, which is outside {place}"
    assert_pure(told)


def test_without_a_build_all_is_python_and_nothing_is_amiss(tmp_path: Path) -> None:
    told = Built(tmp_path / "nothing", tmp_path).look()
    assert (told["parts"], told["fault"]) == ([], "")
    assert_pure(told)
    assert "no accelerators were built" in Built(tmp_path / "nothing", tmp_path).look("require")["refused"]


def test_a_process_that_replaces_one_that_died_does_without_what_is_required_and_gone(
    built: Built, tmp_path: Path
) -> None:
    gone = Built(tmp_path / "nothing", tmp_path).look("require", insist=False)
    assert (gone["parts"], gone["fault"]) == ([], "no accelerators were built")
    assert_pure(gone)
    built.library(NATIVE).unlink()
    told = built.look("require", wanted=(NATIVE,), insist=False)
    assert told["fault"].endswith("is missing")
    assert_pure(told)


@pytest.mark.parametrize("how", ["killed by SIGSEGV", "killed by SIGBUS", "killed by SIGILL", "killed by SIGABRT"])
def test_a_fault_of_memory_is_followed_by_python_where_they_are_required_only_after_the_start(how: str) -> None:
    required = {"port": 0, "accelerators": "require"}
    assert crew.safer(required, how, served=False) is None
    assert crew.safer(required, how, served=True) == {"port": 0, "accelerators": "off"}
    for served in (False, True):
        assert crew.safer({"port": 0}, how, served=served) == {"port": 0, "accelerators": "off"}
        assert crew.safer({"accelerators": "off"}, how, served=served) is None
        assert crew.safer(required, "killed by SIGKILL", served=served) is None


def test_a_part_that_was_not_built_is_refused_where_it_is_required(built: Built) -> None:
    parts = built.manifest["parts"]
    built.change(parts={NATIVE: parts[NATIVE]})
    assert built.look("require", wanted=(NATIVE,))["parts"] == [NATIVE]
    assert "was not built" in built.look("require", wanted=(COMPILED,))["refused"]


def test_a_choice_that_comes_too_late_is_a_defect(built: Built) -> None:
    import moorage.gateway.hub  # noqa: F401 - it is there

    with pytest.raises(RuntimeError, match="before it was chosen"):
        accelerators.install("auto", folder=built.folder, package=built.package)


def test_what_is_required_here_and_stale_is_refused(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    (built.package / f"{NATIVE}.py").write_text("")
    with pytest.raises(InvalidSpec, match="required, but the native part was built before"):
        accelerators.install("require", folder=built.folder, package=built.package, wanted=(NATIVE,))


def test_every_compiled_module_is_there_and_its_last_name_is_its_own() -> None:
    lasts = [name.rpartition(".")[2] for name in MODULES]
    assert len(set(lasts)) == len(lasts)
    source = Path(accelerators.__file__).parents[2]
    assert all((source / f"{name.replace('.', '/')}.py").is_file() for name in MODULES)

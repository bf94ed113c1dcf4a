"""The build of the accelerators: of which sources, and what it says where it cannot be."""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "moorage"
TOOL = ROOT / "tools" / "build_accelerators.py"
UV = Path(sys.executable).with_name("uv")
LOOK = 'from moorage.gateway import accelerators; print(*accelerators.install("require").parts)'


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_accelerators", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["build_accelerators"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_build_knows_the_modules_whose_constants_are_compiled_into_others(tool: ModuleType) -> None:
    found = tool.compiled_sources(PACKAGE)
    assert {"gateway/hub.py", "decide/serving/routing.py"} <= found
    assert "gateway/phases.py" in found, "its constants are in exchange"
    assert all((PACKAGE / name).is_file() for name in found)


def test_the_c_is_stale_once_python_that_asks_it_changed(tool: ModuleType) -> None:
    found = tool.native_sources(PACKAGE)
    assert {f"gateway/native/{name}" for name in ("core.c", "lines.c", "lines.h", "__init__.py")} <= found
    assert {"gateway/access_lines.py", "gateway/heads.py", "gateway/skim.py"} <= found
    assert "gateway/own.py" not in found


def test_without_a_compiler_nothing_is_touched_and_the_remedy_is_named() -> None:
    command = [sys.executable, str(TOOL), "--force"]
    env = {**os.environ, "CC": "/nowhere/cc"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "there is no C compiler (/nowhere/cc): install one" in done.stderr


def test_what_does_not_compile_is_told_with_the_compilers_words(tool: ModuleType, tmp_path: Path) -> None:
    if shutil.which(tool._compiler()[0]) is None:
        pytest.skip("no C compiler")
    source = tmp_path / "broken.c"
    source.write_text("int f( {\n")
    with pytest.raises(tool.NotBuilt, match=r"(?s)broken\.c.* failed:.*broken\.c"):
        tool._compile("planted", [tool.Unit(source, tmp_path / "broken.o")])


def test_a_new_build_takes_the_place_of_the_one_before_at_once_and_leaves_its_files(
    tool: ModuleType, tmp_path: Path
) -> None:
    folder = tmp_path / "accelerated"
    for text in ("one", "two", "three"):
        made = tmp_path / text
        made.mkdir()
        (made / "lib.so").write_text(text)
        part = {"file": "lib.so", "digest": tool.accelerators.digest_of(made / "lib.so"), "sources": {}}
        (made / "manifest.json").write_text(tool.json.dumps({"parts": {"native": part}}))
        tool._publish(made, folder)
        (named,) = tool._named_by(folder)
        assert (folder / named / "lib.so").read_text() == text
    kept = sorted(path.read_text() for path in folder.glob("*/lib.so"))
    assert kept == ["three", "two"], "a process may just be starting with the one before"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("asked", ["", "1"])
def test_a_wheel_has_accelerators_where_they_are_asked_for_and_is_for_all_otherwise(tmp_path: Path, asked: str) -> None:
    if not UV.exists():
        pytest.skip("needs uv beside Python")
    env = {**os.environ, "MOORAGE_BUILD_ACCELERATORS": asked}
    subprocess.run([str(UV), "build", "--wheel", "-q", "-o", str(tmp_path), str(ROOT)], env=env, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        libraries = [name for name in opened.namelist() if name.endswith(".so")]
        opened.extractall(tmp_path / "installed")
    assert wheel.name.endswith("py3-none-any.whl") is not bool(asked)
    assert len(libraries) == (2 if asked else 0)
    if asked:
        env = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
        done = subprocess.run(
            [sys.executable, "-P", "-c", LOOK], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["native", "compiled"]

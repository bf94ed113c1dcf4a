"""The command starts light: what is not needed is not loaded."""

import importlib.metadata
import subprocess
import sys

import pytest

HEAVY = ("httpx", "pydantic", "rich", "yaml", "sqlalchemy", "moorage.client", "moorage.wire")


def _run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["up", "--help"], ["nonsense"]])
def test_nothing_heavy_is_imported_for(args: list[str]):
    code = (
        f"import sys; from moorage.cli.main import main; main({args!r}, {{}})\n"
        f"print('LOADED', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert _run(code).stdout.rstrip().endswith("LOADED []")


def test_a_list_in_a_pipe_loads_neither_drawing_nor_validation():
    args = ["ls"]
    code = (
        "import sys; from moorage.cli.main import main\n"
        f"main({args!r}, {{'MOORAGE_URL': 'http://127.0.0.1:9', 'MOORAGE_HOME': '/nonexistent'}})\n"
        "print('LOADED', [m for m in ('rich', 'pygments', 'pydantic', 'yaml', 'sqlalchemy') if m in sys.modules])"
    )
    done = _run(code)
    assert "no control plane answers" in done.stderr
    assert done.stdout.rstrip().endswith("LOADED []")


def test_the_version_needs_not_even_click():
    code = "import sys; from moorage.cli.main import main; main(['--version'], {}); print('click' in sys.modules)"
    assert _run(code).stdout.split()[-1] == "False"


def test_the_version_is_that_of_the_package():
    from moorage._version import VERSION

    assert importlib.metadata.version("moorage") == VERSION


def test_an_unknown_command_is_a_usage_error_that_names_the_nearest():
    done = subprocess.run(
        [sys.executable, "-m", "moorage.cli.main", "stauts"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "moor status" in done.stderr

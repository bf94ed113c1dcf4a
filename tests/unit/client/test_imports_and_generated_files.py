"""What importing the SDK loads, and that what is generated from code is as the code says."""

import subprocess
import sys
from pathlib import Path

import pytest

import moorage

ROOT = Path(__file__).resolve().parents[3]


def loaded_by(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


def test_importing_the_sdk_loads_neither_pydantic_nor_yaml():
    loaded = loaded_by("import moorage.client")
    assert "httpx" in loaded
    assert not {"pydantic", "pydantic_core", "yaml", "fastapi", "sqlalchemy"} & loaded


def test_importing_moorage_loads_nothing_of_it():
    assert {m for m in loaded_by("import moorage") if m.startswith("moorage.")} == set()


def test_every_public_name_is_there_and_an_unknown_one_is_told():
    for name in moorage.__all__:
        assert getattr(moorage, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Deploymnt'"):
        _ = moorage.Deploymnt


@pytest.mark.parametrize("tool", ["generate_schema.py", "generate_sync_client.py"])
def test_generated_files_are_as_the_code_says(tool):
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / tool), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr

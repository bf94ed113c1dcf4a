"""Writes what is pinned: `uv.lock`, and from it `tools/requirements.txt` for machines that need pip or a mirror.

    python3 tools/lock.py            after a change of dependencies in pyproject.toml (`make lock`)
    python3 tools/lock.py --check    whether both are current; changes nothing (`make check`)

The lock is made from the public index whatever this machine uses, so that it names no private host.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "tools" / "requirements.txt"
INDEX_VARIABLES = ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS")
HEADER = "# From uv.lock by tools/lock.py: every version and hash, for pip and for mirrors. Do not edit.\n"


def main(argv: list[str]) -> int:
    """Lock and export, or with `--check` compare; 0 when current."""
    check = "--check" in argv
    locked = _uv("lock", *(["--check"] if check else []))
    if locked.returncode:
        print(locked.stderr, file=sys.stderr)
        return 1
    wanted = HEADER + _export()
    if check and (not REQUIREMENTS.exists() or REQUIREMENTS.read_text() != wanted):
        print("tools/requirements.txt does not follow uv.lock: run `make lock` and commit both", file=sys.stderr)
        return 1
    if not check:
        REQUIREMENTS.write_text(wanted)
    return 0


def _export() -> str:
    options = ("--frozen", "--all-groups", "--all-extras", "--no-emit-project", "--no-header", "--no-annotate")
    done = _uv("export", "--format", "requirements-txt", *options)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def _uv(*arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if name not in INDEX_VARIABLES}
    env.update(UV_CACHE_DIR=str(ROOT / ".cache" / "uv"), UV_PYTHON=str(ROOT / ".venv" / "bin" / "python"))
    found = sorted((ROOT / ".cache").glob("uv-*/uv"))
    program = str(found[-1]) if found else "uv"
    return subprocess.run([program, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

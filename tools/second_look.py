#!/usr/bin/env python3
"""A second look at the few tests of real processes that failed in a busy run: each again, alone on a quiet machine.

    .venv/bin/python tools/second_look.py tests/contract tests/integration tests/acceptance

For `make test`, after pytest ended with failures. More than three failures are no accident and stay failures. One that
fails again is a failure. One that passes is named as UNSTEADY at the very end: the run passes, and the test, or what it
tests, has a race that is to be found (CONTRIBUTING.md says how); nothing is hidden by trying twice.
"""

import json
import subprocess
import sys
from pathlib import Path

AT_MOST = 3
CACHE = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    """0 when each passed alone, 1 otherwise."""
    rooms = tuple(sys.argv[1:])
    failed = sorted(name for name in json.loads(CACHE.read_text()) if name.startswith(rooms)) if CACHE.exists() else []
    if not failed or len(failed) > AT_MOST:
        return 1
    print(f"\nA second look at {len(failed)} of the tests above, one by one:", flush=True)
    for name in failed:
        if subprocess.run([sys.executable, "-m", "pytest", "-rs", name], check=False).returncode:
            return 1
    for name in failed:
        print(f"UNSTEADY {name} (failed beside others, passed alone; see CONTRIBUTING.md)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

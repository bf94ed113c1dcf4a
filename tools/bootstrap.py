"""Makes `.venv` from `uv.lock` on a machine that has nothing but python3: the first step of every `make` target.

    python3 tools/bootstrap.py demo    what `make demo` needs
    python3 tools/bootstrap.py full    that, and what tests, checks and benchmarks need

This file is the gate, written so that any Python 3 can read it and be told that it is too old; the steps are in
`setting_up/`. Everything they fetch stays inside the project (`.cache/`, `.venv/`).
"""

import os
import shutil
import sys

OLDEST = (3, 11)
NEWER = ("python3.13", "python3.12", "python3.11", "python3.14")


def main():
    """Hand over to the steps, under a Python that is new enough; otherwise one line that says what to do."""
    if sys.version_info < OLDEST:
        for name in NEWER:
            if shutil.which(name):
                os.execvp(name, [name] + sys.argv)  # noqa: RUF005 - old Pythons must be able to read this file
        return "error: Moorage needs Python 3.11 or newer and this is {}.{}: {}".format(
            sys.version_info[0],
            sys.version_info[1],
            "install one (Debian 12 and later have it), or say where it is: make PYTHON=/path/to/python3",
        )
    try:
        import ssl  # noqa: F401 - only to see that it is there: a minimal python3 has no TLS
    except ImportError:
        return "error: this python3 has no ssl module: install the whole package (Debian: apt-get install python3)"
    from setting_up.install import bootstrap

    return bootstrap(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())

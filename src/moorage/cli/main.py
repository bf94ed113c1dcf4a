"""Entry of the `moor` command. Imports nothing at the top that a bare `moor --version` does not need.

The environment enters here, once, and travels as a mapping.
"""

import sys
from collections.abc import Mapping, Sequence


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] | None = None) -> int:
    """Run `moor`.

    Args:
        argv: arguments after the program's name; `sys.argv` by default.
        env: the environment; the process's own by default.

    Returns:
        The exit code (documented in `failures`).
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if args in (["--version"], ["-V"]):  # asked by scripts and prompts all the time: answered without loading Click
        from moorage._version import VERSION

        print(f"moor {VERSION}")
        return 0
    import os

    from moorage.cli.root import run

    return run(args, dict(os.environ) if env is None else env)


if __name__ == "__main__":
    sys.exit(main())

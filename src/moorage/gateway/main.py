"""The gateway's process: `python -m moorage.gateway.main --config FILE.json`.

Here: the command's options and exit codes. The process is the master (`master`) of worker processes (`worker`), which
do the serving; nothing of theirs is imported here, so that it stays small.
"""

import argparse
import faulthandler
import sys
from pathlib import Path

from moorage.domain.errors import MoorageError
from moorage.gateway.master import Master


def main(arguments: list[str] | None = None) -> int:
    """The command. Exit code 0 after a graceful end, 1 when it could not start, 2 for bad settings."""
    parser = argparse.ArgumentParser(prog="moorage.gateway.main", description="Run one Moorage gateway.")
    parser.add_argument("--config", required=True, type=Path, help="JSON file of settings (GatewayConfig)")
    options = parser.parse_args(arguments)
    try:
        master = Master(options.config)
    except MoorageError as error:
        print(f"{error.message}; {error.remedy}", file=sys.stderr)
        return 2
    return master.run()


if __name__ == "__main__":
    faulthandler.enable()  # ended since it hung, it writes the stacks of its threads
    sys.exit(main())

"""A part for supervisor tests: writes down that it started and that it was asked to stop, and waits for that.

It ends at once with code 3 while a file `NAME.broken` lies beside its configuration.
"""

import signal
import sys
from pathlib import Path


def main() -> int:
    config = Path(sys.argv[sys.argv.index("--config") + 1])
    journal = config.parent / "journal"
    if config.with_suffix(".broken").exists():
        print("cannot start: broken", flush=True)
        return 3
    signal.signal(signal.SIGTERM, lambda *_: None)  # never called: it shows that this process knows the signal
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with journal.open("a") as file:
        file.write(f"started {config.stem}\n")
    signal.sigwait({signal.SIGTERM})
    with journal.open("a") as file:
        file.write(f"stopped {config.stem}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

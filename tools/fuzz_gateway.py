"""`make fuzz-gateway`: broken conversations through a gateway, for so many seconds or until one shows a defect.

Here: choosing seeds and saying what was found. Not here: what is drawn and what must hold (`tests/gateway_fuzz.py`).
"""

import argparse
import secrets
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import gateway_fuzz


def main() -> int:
    """The command. Exit code 1 when a conversation showed a defect."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.0, help="how long; 0: until a defect or Ctrl-C")
    parser.add_argument("--seed", type=int, help="play this one conversation")
    options = parser.parse_args()
    if options.seed is not None:
        found = gateway_fuzz.play(gateway_fuzz.drawn(options.seed))
        print("\n".join(found) or "holds")
        return int(bool(found))
    start, seed, played = time.monotonic(), secrets.randbits(48), 0
    try:
        while not options.seconds or time.monotonic() - start < options.seconds:
            found = gateway_fuzz.play(gateway_fuzz.drawn(seed))
            if found:
                print(f"--seed {seed}:", *found, sep="\n  ")
                return 1
            seed, played = seed + 1, played + 1
    except KeyboardInterrupt:
        pass
    print(f"{played} conversations in {time.monotonic() - start:.0f} s: all held")
    return 0


if __name__ == "__main__":
    sys.exit(main())

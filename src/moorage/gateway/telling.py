"""The lines of a gateway's log that its master writes, in the form of its workers'. Standard library only."""

import json
import sys
import time


def say(event: str, level: str, **fields: object) -> None:
    """One line."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    told = {"part": "gateway", **fields, "event": event, "level": level, "timestamp": f"{stamp}Z"}
    print(json.dumps(told), file=sys.stderr, flush=True)

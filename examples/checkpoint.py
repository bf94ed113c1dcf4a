"""Counts to a number, one step every so often, and never counts anything twice: a job that can be stopped.

Its work is in MOORAGE_OUTPUT_DIR, which is the same for each attempt on the same machine. At SIGTERM it saves, says why
it was asked to stop (the file MOORAGE_STOP_CAUSE_FILE, written before the signal) and ends. It also touches
MOORAGE_HEARTBEAT_FILE at each step: from the first touch on, a program that hangs is found by the age of that file.

    python3 checkpoint.py --until 600 --step-seconds 1
"""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

SAVE_EVERY = 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=int, default=600)
    parser.add_argument("--step-seconds", type=float, default=1.0)
    options = parser.parse_args()
    saved = Path(os.environ["MOORAGE_OUTPUT_DIR"]) / "count"
    heartbeat = Path(os.environ["MOORAGE_HEARTBEAT_FILE"])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    count = int(saved.read_text()) if saved.exists() else 0
    print(f"attempt {os.environ.get('MOORAGE_ATTEMPT', '1')}: going on from {count}", flush=True)
    while count < options.until and not stop.wait(options.step_seconds):
        count += 1
        heartbeat.touch()
        if count % SAVE_EVERY == 0:
            save(saved, count)
    save(saved, count)
    if stop.is_set():
        print(f"asked to stop ({why_stopped()}): saved {count}", flush=True)
        sys.exit(143)
    print(f"done: {count}", flush=True)


def why_stopped():
    path = Path(os.environ["MOORAGE_STOP_CAUSE_FILE"])
    return path.read_text().strip() if path.exists() else "unknown"


def save(path, count):
    """All of it or nothing, whenever this program is killed."""
    new = path.with_suffix(".new")
    with new.open("w") as out:
        out.write(str(count))
        out.flush()
        os.fsync(out.fileno())
    new.replace(path)


if __name__ == "__main__":
    main()

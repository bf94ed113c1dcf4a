"""The control plane's own program, which kills itself at a chosen commit, once.

    python crashing_server.py --config server.json

While `CRASH_FILE` (environment) holds `before N` or `after N`, commits that touch anything of a deployment are counted
from the moment the file appeared; the N-th kills this process with SIGKILL, before it is made or once it is durable.
The file is taken away first, so that the next start goes on. Nothing else is changed.

After such a death it is started again at once, as a supervisor would: in a new process, forked from one that has only
imported the program, which takes most of the time of a start. Any other end of it ends that one too. SIGTERM goes to
the group of both.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop  # noqa: F401  what the program imports late, it need not import again after each death

from moorage.app import server
from moorage.store.store import SqlStore

KINDS = frozenset({"Deployment", "Revision", "Replica", "Run", "Worker", "Operation"})
ORDER = Path(os.environ["CRASH_FILE"])


class _Counter:
    order = ""
    seen = 0

    def number(self, change: Any) -> int:
        """Which commit it is since the order was given, counted from 1; 0 where there is none, or nothing to count."""
        try:
            order = ORDER.read_text()
        except FileNotFoundError:
            return 0
        if order != self.order:
            self.order, self.seen = order, 0
        kinds = {getattr(w, "kind", None) or getattr(getattr(w, "row", None), "kind", None) for w in change.writes}
        if not kinds & KINDS:
            return 0
        self.seen += 1
        return self.seen

    def die_at(self, when: str, numbers: Sequence[int]) -> None:
        """Take the order away and kill this process, if this is the moment."""
        if any(numbers) and self.order in {f"{when} {number}" for number in numbers}:
            ORDER.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


counter = _Counter()
one, each = SqlStore.commit, SqlStore.commit_each


async def commit(self: SqlStore, change: Any) -> Any:
    numbers = [counter.number(change)]
    counter.die_at("before", numbers)
    done = await one(self, change)
    counter.die_at("after", numbers)
    return done


async def commit_each(self: SqlStore, changes: Sequence[Any]) -> Any:
    numbers = [counter.number(change) for change in changes]
    counter.die_at("before", numbers)
    done = await each(self, changes)
    counter.die_at("after", numbers)
    return done


SqlStore.commit = commit  # type: ignore[method-assign]
SqlStore.commit_each = commit_each  # type: ignore[method-assign]


def keep_up() -> int:
    """Run the program, again after each death by SIGKILL; the exit status of its last end."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    while True:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            return server.main()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != -signal.SIGKILL:
            return abs(status)


if __name__ == "__main__":
    sys.exit(keep_up())

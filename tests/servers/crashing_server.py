"""The control plane's own program, which kills itself at a chosen commit, once.

    python crashing_server.py --config server.json

While `CRASH_FILE` (environment) holds `before N` or `after N`, commits that touch anything of a deployment are counted
from the moment the file appeared; the N-th kills this process with SIGKILL, before it is made or once it is durable
(one that was refused is not counted then).
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

    def met(self, when: str, changes: Sequence[Any]) -> None:
        """Count these changes, if the order is about this moment of theirs; kill this process at the one it names."""
        try:
            order = ORDER.read_text()
        except FileNotFoundError:
            return
        if order != self.order:
            self.order, self.seen = order, 0
        ordered, number = order.split()
        if ordered != when:
            return
        self.seen += sum(_counts(change) for change in changes)
        if self.seen >= int(number):
            ORDER.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def _counts(change: Any) -> bool:
    kinds = {getattr(w, "kind", None) or getattr(getattr(w, "row", None), "kind", None) for w in change.writes}
    return bool(kinds & KINDS)


counter = _Counter()
one, each = SqlStore.commit, SqlStore.commit_each


async def commit(self: SqlStore, change: Any) -> Any:
    counter.met("before", [change])
    done = await one(self, change)
    counter.met("after", [change])
    return done


async def commit_each(self: SqlStore, changes: Sequence[Any]) -> Any:
    counter.met("before", changes)
    done = await each(self, changes)
    counter.met("after", [c for c, answer in zip(changes, done, strict=True) if not isinstance(answer, Exception)])
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

"""Killed in the middle of a burst: everything acknowledged is there, and no change by half."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

from moorage.domain.nouns import Worker
from moorage.store.store import SqlStore
from tests.contract.store.acting import WAIT_S
from tests.contract.store.conftest import Opener

ROUNDS = 4
BURST = Path(__file__).with_name("burst.py")


def killed_after(url: str, number: int, lines: int) -> dict[str, int]:
    """Run the burst, kill -9 it once `lines` lines were acknowledged; the highest acknowledged version by uid."""
    process = subprocess.Popen([sys.executable, BURST, url, f"r{number}"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    bound = threading.Timer(2 * WAIT_S, process.kill)
    bound.start()
    acknowledged: dict[str, int] = {}
    seen = 0
    for line in process.stdout:
        if not line.endswith("\n"):
            break  # cut by the kill: not acknowledged
        uid, version = line.split()
        acknowledged[uid] = int(version)
        seen += 1
        if seen == lines:
            os.kill(process.pid, signal.SIGKILL)
    bound.cancel()
    assert process.wait() == -signal.SIGKILL
    assert seen >= lines
    return acknowledged


async def test_a_kill_in_a_burst_loses_nothing_acknowledged_and_leaves_no_half_change(
    url: str, another: Opener
) -> None:
    acknowledged: dict[str, int] = {}
    for number in range(ROUNDS):
        acknowledged |= killed_after(url, number, 150 + 97 * number)
        store = await another()
        await _whole(store, acknowledged)
        await store.close()


async def _whole(store: SqlStore, acknowledged: dict[str, int]) -> None:
    rows = {w.uid: w for w in await store.find(Worker)}
    lost = {uid for uid, version in acknowledged.items() if uid not in rows or rows[uid].version < version}
    assert not lost
    history = await store.history(limit=1_000_000)
    assert Counter(h.object_uid for h in history) == {uid: row.version for uid, row in rows.items()}
    last = {h.object_uid: h.to for h in history}
    assert last == {uid: str(row.state) for uid, row in rows.items()}
    held = {h["worker"] for h in await store.holdings()}
    assert held == {uid for uid in rows if not uid.endswith("-partner")}
    for uid in held:
        assert rows[f"{uid}-partner"].version == rows[uid].version

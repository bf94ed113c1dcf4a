"""500 deployments get a new revision at the same moment, and all of them promote it: time, commits, CPU.

A control plane of its own process on SQLite, and machines that are played over HTTP; every server is ready at once, and
the guard is off, so that what is measured is the rollout itself: the apply, the candidate's replica, the one change
that promotes, the drain, the stop of the old replica and the proof that it is gone. Told: seconds until every new
revision serves and until nothing of the old ones is left, CPU of the control plane for each, rows of history and the
transactions that carried them. The floor in the same run: as many rows, one raw sqlite3 commit each, full fsync.

    make bench-promotions
"""

import argparse
import asyncio
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from played_fleet import PICKED_UP, PlayedMachine, Server

CPU_TARGET_MS = 80.0
"""For one promotion, from the apply to the proof that the old revision is gone: some 27 rows of history."""
STOPPED = [{"to": "Cancelled", "trigger": "stop_confirmed", "code": "stop.confirmed"}]


class ServingMachine(PlayedMachine):
    """Its servers are ready as soon as they are started, and gone as soon as they are asked to stop."""

    async def _work(self) -> None:
        after = 0
        started: dict[str, int] = {}
        stopped: dict[str, int] = {}
        while True:
            answer = await self._http.get("/work", params={**self._me, "after": after, "wait_s": 25})
            if answer.status_code != 200:
                continue
            work = answer.json()
            after = work["version"]
            wanted = {a["worker"]: (a["epoch"], a["desired"]) for a in work["assignments"]}
            begin = [(w, e) for w, (e, d) in wanted.items() if d == "run" and started.get(w) != e]
            end = [(w, e) for w, (e, d) in wanted.items() if d != "run" and w in started and stopped.get(w) != e]
            started |= dict(begin)
            stopped |= dict(end)
            ready = {"steps": PICKED_UP, "ready": True, "address": "127.0.0.1:9"}
            self.running |= dict(begin)
            for worker, _ in end:
                self.running.pop(worker, None)
            await self._report(
                [{"worker": w, "epoch": e, **ready} for w, e in begin]
                + [{"worker": w, "epoch": e, "steps": STOPPED, "gone": True} for w, e in end]
            )


def spec(name: str, version: int) -> dict[str, Any]:
    """A deployment of one core, at this version."""
    return {
        "kind": "Deployment",
        "name": name,
        "runtime": {"command": ["serve", str(version)]},
        "resources": {"cpu": 1},
        "rollout": {"guard": {"enabled": False}},
    }


async def apply_all(server: Server, names: list[str], version: int) -> None:
    """Apply them all, 32 at a time."""
    waiting = list(reversed(names))

    async def some() -> None:
        while waiting:
            name = waiting.pop()
            answer = await server.http.put(f"/namespaces/default/deployments/{name}", json=spec(name, version))
            if answer.is_error:
                raise SystemExit(f"{name} was not accepted: {answer.text}")

    await asyncio.gather(*(some() for _ in range(32)))


class Rows:
    """What the database says, read beside the server and without its help."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)

    def states(self, noun: str) -> dict[str, int]:
        """How many rows of a noun are in each state."""
        return dict(self._db.execute(f"SELECT state, count(*) FROM {noun} GROUP BY state"))

    def history(self) -> tuple[int, int]:
        """Rows of history, and at most how many transactions brought them."""
        (rows, at) = self._db.execute("SELECT count(*), count(DISTINCT at) FROM history").fetchone()
        return int(rows), int(at)


async def until(rows: Rows, wanted: dict[str, int], what: str) -> None:
    """Wait until the revisions are in these states."""
    last, since = {}, time.monotonic()
    while True:
        now = rows.states("revision")
        if all(now.get(state, 0) == count for state, count in wanted.items()):
            return
        if now != last:
            last, since = now, time.monotonic()
        if time.monotonic() - since > 120:
            raise SystemExit(f"waited for {what}; for two minutes there are {now}")
        await asyncio.sleep(0.05)


def floor_s(folder: Path, count: int) -> float:
    """Seconds for so many raw commits, one row and one fsync each."""
    db = sqlite3.connect(folder / "floor.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, doc TEXT)")
    begun = time.perf_counter()
    for n in range(count):
        db.execute("INSERT INTO t VALUES (?, ?)", (n, "x" * 400))
    took = time.perf_counter() - begun
    db.close()
    return took


async def promotions(folder: Path, count: int) -> None:
    """Serve them all, then change them all."""
    server = Server(folder)
    await server.ready()
    rows = Rows(folder / "moorage.db")
    machines = [ServingMachine(server, f"m{n}", count // 4) for n in range(10)]
    await asyncio.gather(*(m.join() for m in machines))
    names = [f"model-{n:04d}" for n in range(count)]
    begun, cpu = time.perf_counter(), server.cpu_s()
    await apply_all(server, names, 1)
    await until(rows, {"active": count}, "the first revisions to serve")
    print(f"{count} deployments served after {time.perf_counter() - begun:.1f} s, ", end="")
    print(f"{(server.cpu_s() - cpu) * 1000 / count:.1f} ms of CPU each", flush=True)
    before, transactions = rows.history()
    begun, cpu = time.perf_counter(), server.cpu_s()
    await apply_all(server, names, 2)
    accepted = time.perf_counter() - begun
    while rows.states("revision").get("active", 0) < count or await _second(rows) < count:
        await asyncio.sleep(0.05)
    promoted = time.perf_counter() - begun
    await until(rows, {"active": count, "superseded": count}, "the old revisions to be gone")
    while rows.states("replica").get("running", 0) > count:
        await asyncio.sleep(0.05)
    took, used = time.perf_counter() - begun, server.cpu_s() - cpu
    after, later = rows.history()
    await asyncio.gather(*(m.close() for m in machines))
    await server.close()
    locked = (folder / "server.log").read_text().count("locked")
    changed = after - before
    floor = floor_s(folder, changed)
    print(
        f"\n{count} promotions at once: accepted after {accepted:.1f} s, every new revision serves after {promoted:.1f}"
    )
    print(
        f"s, nothing of the old ones is left after {took:.1f} s; {used:.1f} s of CPU; {changed} rows of history in at"
    )
    print(
        f"most {later - transactions} transactions; {locked} words of a locked database; raw, one by one: {floor:.1f} s"
    )
    print(f"RATIO promotion_cpu_ms_each {used * 1000 / count:.1f} <={CPU_TARGET_MS:.0f}")
    print(f"RATIO promotions_locked_database {locked} <=0")


async def _second(rows: Rows) -> int:
    """Revisions that are active and not the first: as many as were promoted."""
    states = rows.states("revision")
    return states.get("active", 0) if states.get("draining", 0) + states.get("superseded", 0) >= states["active"] else 0


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-promotions-") as folder:
        asyncio.run(promotions(Path(folder), given.count))


if __name__ == "__main__":
    main()

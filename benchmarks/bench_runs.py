"""Runs by the thousand on SQLite: a burst of completions, and a full house at rest.

1. 1,000 workers (an array of 500, and 500 runs of their own) end in the same second. Told: seconds and CPU until every
   run is Completed, whether any completion was lost, and any word of a locked database in the server's log. The floor
   in the same run: the same number of rows, one raw sqlite3 commit each, full fsync.
2. 2,000 workers run and 10,000 wait. Told: CPU of each submission, the server's memory, its CPU while nothing changes
   but heartbeats, the p99 of a page of the list and of `why`, and the CPU of a start over that database.

    make bench-runs
"""

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from played_fleet import PlayedMachine, Server

IDLE_TARGET_PERCENT = 2.0
LIST_TARGET_MS, WHY_TARGET_MS = 100.0, 150.0
MEMORY_TARGET_MIB = 500.0
SUBMIT_TARGET_MS, START_TARGET_S = 4.0, 15.0


def spec(**fields: object) -> dict[str, object]:
    """A run of one worker that takes one core."""
    group = {"runtime": {"command": ["true"]}, "resources": {"cpu": 1}, "restart_policy": "Never"}
    return {"groups": [group], **fields}


def floor_s(folder: Path, rows: int) -> float:
    """Seconds for so many raw commits, one row and one fsync each."""
    db = sqlite3.connect(folder / "floor.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, doc TEXT)")
    begun = time.perf_counter()
    for n in range(rows):
        db.execute("INSERT INTO t VALUES (?, ?)", (n, "x" * 400))
    took = time.perf_counter() - begun
    db.close()
    return took


async def submit_all(server: Server, names: list[str], **fields: object) -> None:
    """Submit runs, 32 at a time."""
    waiting = list(reversed(names))

    async def some() -> None:
        while waiting:
            await server.submit(waiting.pop(), **spec(**fields))

    await asyncio.gather(*(some() for _ in range(32)))


async def running(machines: list[PlayedMachine], wanted: int) -> None:
    """Wait until so many workers run."""
    last, since = -1, time.monotonic()
    while (now := sum(len(m.running) for m in machines)) < wanted:
        if now != last:
            last, since = now, time.monotonic()
        if time.monotonic() - since > 300:
            raise SystemExit(f"only {now} of {wanted} workers run, and no more for five minutes")
        await asyncio.sleep(0.1)


async def unfinished(server: Server) -> int:
    """Runs that are not Completed."""
    left, after = 0, None
    while True:
        page = await server.http.get(
            "/namespaces/default/runs", params={"limit": 1000, **({"after": after} if after else {})}
        )
        found = page.json()
        left += sum(run["state"] != "Completed" for run in found["items"])
        after = found["next"]
        if not after:
            return left


async def burst(folder: Path, workers: int) -> None:
    """Part 1."""
    server = Server(folder)
    await server.ready()
    machines = [PlayedMachine(server, f"m{n}", workers // 10) for n in range(10)]
    await asyncio.gather(*(m.join() for m in machines))
    alone = workers // 2
    await server.submit("sweep", **spec(array={"count": workers - alone}))
    await submit_all(server, [f"one-{n}" for n in range(alone)])
    await running(machines, workers)
    cpu, begun = server.cpu_s(), time.perf_counter()
    await asyncio.gather(*(m.complete() for m in machines))
    reported = time.perf_counter() - begun
    while await unfinished(server):
        await asyncio.sleep(0.05)
    took, used = time.perf_counter() - begun, server.cpu_s() - cpu
    await asyncio.gather(*(m.close() for m in machines))
    await server.close()
    locked = (folder / "server.log").read_text().count("locked")
    floor = floor_s(folder, workers)
    print(f"\n{workers} workers end at once: every report durable after {reported:.2f} s, every run Completed after ")
    print(f"{took:.2f} s, {used:.2f} s of CPU; {locked} words of a locked database; one by one raw: {floor:.2f} s")
    print(f"RATIO runs_completed_vs_one_by_one {floor / took:.2f} >=0.5")
    print(f"RATIO runs_completed_cpu_ms_each {used * 1000 / workers:.2f} <=3")
    print(f"RATIO runs_locked_database {locked} <=0")


@dataclass(frozen=True)
class Reads:
    """Milliseconds of reads one after another: median and p99 of the wall clock, the server's CPU for each."""

    p50_ms: float
    p99_ms: float
    cpu_ms: float

    def __str__(self) -> str:
        return f"p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, CPU {self.cpu_ms:.1f} ms each"


async def read(server: Server, paths: list[str]) -> Reads:
    """Read these, one after another."""
    times, cpu = [], server.cpu_s()
    for path in paths:
        begun = time.perf_counter()
        answer = await server.http.get(path)
        times.append((time.perf_counter() - begun) * 1000)
        if answer.is_error:
            raise SystemExit(f"{path}: {answer.text}")
    used = (server.cpu_s() - cpu) * 1000 / len(paths)
    return Reads(statistics.median(times), sorted(times)[int(len(times) * 0.99) - 1], used)


async def full_house(folder: Path, busy: int, waiting: int, idle_s: float, reads: int) -> None:
    """Part 2."""
    server = Server(folder)
    await server.ready()
    machines = [PlayedMachine(server, f"m{n}", busy // 20) for n in range(20)]
    await asyncio.gather(*(m.join() for m in machines))
    cpu, begun = server.cpu_s(), time.perf_counter()
    await submit_all(server, [f"busy-{n}" for n in range(busy)])
    await running(machines, busy)
    took, used = time.perf_counter() - begun, server.cpu_s() - cpu
    print(
        f"\n{busy} runs submitted, placed and running after {took:.1f} s, {used * 1000 / busy:.1f} ms of CPU each",
        flush=True,
    )
    cpu, begun = server.cpu_s(), time.perf_counter()
    await submit_all(server, [f"wait-{n}" for n in range(waiting)])
    took = time.perf_counter() - begun
    await quiet(server)
    submitted_ms = (server.cpu_s() - cpu) * 1000 / waiting
    print(f"{waiting} more submitted in {took:.1f} s, {submitted_ms:.1f} ms of CPU each until told why", flush=True)
    memory, cpu, begun = server.memory_mib(), server.cpu_s(), time.perf_counter()
    await asyncio.sleep(idle_s)
    percent = (server.cpu_s() - cpu) / (time.perf_counter() - begun) * 100
    print(f"memory {memory:.0f} MiB; at rest {percent:.2f} % of a core over {idle_s:.0f} s", flush=True)
    pages = await read(server, ["/namespaces/default/runs?limit=200"] * reads)
    print(f"list of 200: {pages}", flush=True)
    why = await read(server, [f"/namespaces/default/runs/wait-{n * 97 % waiting}/why" for n in range(reads)])
    print(f"why: {why}", flush=True)
    await asyncio.gather(*(m.close() for m in machines))
    await server.close()
    again = Server(folder)
    await again.ready()
    await quiet(again)
    start_s = again.cpu_s()
    await again.close()
    print(f"RATIO runs_submitted_cpu_ms_each {submitted_ms:.2f} <={SUBMIT_TARGET_MS:g}")
    print(f"RATIO runs_start_cpu_s {start_s:.1f} <={START_TARGET_S:g}")
    print(f"RATIO runs_memory_mib {memory:.0f} <={MEMORY_TARGET_MIB:.0f}")
    print(f"RATIO runs_at_rest_percent {percent:.2f} <={IDLE_TARGET_PERCENT:g}")
    print(f"RATIO runs_list_p99_ms {pages.p99_ms:.1f} <={LIST_TARGET_MS:.0f}")
    print(f"RATIO runs_list_cpu_ms {pages.cpu_ms:.1f} <={LIST_TARGET_MS:.0f}")
    print(f"RATIO runs_why_p99_ms {why.p99_ms:.1f} <={WHY_TARGET_MS:.0f}")
    print(f"RATIO runs_why_cpu_ms {why.cpu_ms:.1f} <={WHY_TARGET_MS:.0f}")


async def quiet(server: Server) -> None:
    """Wait until the server has caught up: two seconds with little CPU."""
    for _ in range(1800):
        before = server.cpu_s()
        await asyncio.sleep(2)
        if server.cpu_s() - before < 0.1:
            return
    raise SystemExit("the server never came to rest")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--burst", type=int, default=1000)
    parser.add_argument("--busy", type=int, default=2000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--reads", type=int, default=100, help="pages of the list, and answers to why, that are timed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        for part in ("burst", "house"):
            (Path(folder) / part).mkdir()
        if given.burst:
            await burst(Path(folder) / "burst", given.burst)
        if given.busy:
            await full_house(Path(folder) / "house", given.busy, given.waiting, given.idle_s, given.reads)


if __name__ == "__main__":
    asyncio.run(main())

"""The runner library: from kill -9 of a server to the first instruction of its replacement, and 200 models at rest.

The program is a tiny one that notes the monotonic clock as its first act (`stamping_program.py`). Beside ours, round
by round in the same run: a bare loop (pidfd, then posix_spawn), and then supervisord and circus. Kills are `PAUSE_S`
apart, since what is measured is one crash and not a storm: a crash loop is limited by the restart limit.

    make bench-runner
"""

import argparse
import asyncio
import os
import signal
import socket
import statistics
import tempfile
import time
from pathlib import Path

import restart_peers as peers
from stamping_program import make, read

from moorage.runners import ModelRunner, ModelSpec

P50_TARGET_MS, P99_TARGET_MS = 3.0, 10.0
CPU_TARGET_PERCENT, MEMORY_TARGET_MIB = 0.5, 6.0
PAUSE_S = 0.03
REST_S = 10.0
MODELS = 200


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def condition(true, what: str) -> None:
    """Wait for it, bounded."""
    end = time.monotonic() + peers.LIMIT_S
    while not true():
        if time.monotonic() > end:
            raise SystemExit(f"gave up waiting for {what}")
        await asyncio.sleep(0.001)


async def crashes(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """(ours, bare) in milliseconds, one of each a round."""
    stamps = folder / "ours.stamps"
    spec = ModelSpec([str(make(folder / "ours", stamps))], ready_path=None)
    ours, bare = [], []
    async with ModelRunner(restart_delay=0, restart_limit=rounds + 1, ports=free_ports(1)) as runner:
        await runner.start("m", spec)
        for n in range(rounds):
            await condition(lambda n=n: runner.info("m").restarts == n and runner.state("m") == "running", "ours")
            await condition(lambda n=n: len(read(stamps)) == n + 1, "ours to note its start")
            bare.append(await asyncio.to_thread(peers.bare_ms, folder))
            await asyncio.sleep(PAUSE_S)
            pid = read(stamps)[-1][1]
            killed = time.monotonic_ns()
            os.kill(pid, signal.SIGKILL)
            await condition(lambda n=n: len(read(stamps)) == n + 2, "the replacement")
            ours.append((read(stamps)[-1][0] - killed) / 1e6)
    return ours, bare


async def many(folder: Path) -> tuple[float, float]:
    """(CPU in per cent of a core, MiB a model) of `MODELS` models at rest, this process included."""
    spec = ModelSpec([str(make(folder / "many", folder / "many.stamps"))], ready_path=None)
    before = own_pss()
    async with ModelRunner(ports=free_ports(MODELS)) as runner:
        names = [f"model-{n}" for n in range(MODELS)]
        await asyncio.gather(*(runner.start(name, spec) for name in names))
        shims = [parent_of(runner.info(name).pid) for name in names]
        await asyncio.sleep(3.0)
        began, used = time.monotonic(), sum(map(ran_ns, [*shims, os.getpid()]))
        await asyncio.sleep(REST_S)
        spent = sum(map(ran_ns, [*shims, os.getpid()])) - used
        percent = spent / 1e7 / (time.monotonic() - began)
        memory = (sum(map(pss, shims)) + own_pss() - before) / MODELS
    return percent, memory / (1 << 20)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def ran_ns(pid: int) -> int:
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def pss(pid: int) -> int:
    """Bytes of memory, what is shared being divided among those who share it."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("Pss:")) * 1024


def own_pss() -> int:
    return pss(os.getpid())


def show(label: str, values: list[float]) -> None:
    print(
        f"{label:34} {len(values):5} kills   median {statistics.median(values):9.2f} ms   p99 "
        f"{percentile(values, 0.99):9.2f} ms   max {max(values):9.2f} ms",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--no-peers", action="store_true", help="leave out supervisord and circus")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as made:
        folder = Path(made)
        ours, bare = asyncio.run(crashes(folder, options.kills))
        print(f"load of this machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs (the floor below feels it too)")
        show("Moorage, restart_delay 0", ours)
        show("bare pidfd + posix_spawn", bare)
        home = None if options.no_peers else peers.install(folder)
        if home is None:
            print("supervisord, circus: left out (asked for, or the package index cannot be reached)")
        else:
            show("supervisord, autorestart", peers.supervisord_ms(home, folder, 20))
            show("circus, defaults", peers.circus_ms(home, folder, 8))
        percent, memory = asyncio.run(many(folder))
    print(f"{MODELS} models on one machine: {percent:.3f} % of a core at rest, {memory:.2f} MiB a model")
    print(f"RATIO runner_restart_p50_ms {statistics.median(ours):.2f} <={P50_TARGET_MS:g}")
    print(f"RATIO runner_restart_p99_ms {percentile(ours, 0.99):.2f} <={P99_TARGET_MS:g}")
    print(f"RATIO runner_restart_vs_bare_p50 {statistics.median(ours) / statistics.median(bare):.2f} report")
    print(f"RATIO runner_200_models_cpu_percent {percent:.3f} <={CPU_TARGET_PERCENT:g}")
    print(f"RATIO runner_200_models_mib_per_model {memory:.2f} <={MEMORY_TARGET_MIB:g}")


if __name__ == "__main__":
    main()

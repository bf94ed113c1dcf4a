"""The scheduler's decisions: CPU on 10,000 machines of 8 GPUs, beside the bare kernels that it cannot beat.

    .venv/bin/python benchmarks/bench_scheduler.py [--machines 10000] [--workers 80000] [--waiting 10000]

Everything is the decision only: a book in memory in, placements (worker, machine, GPUs) and waits out; no store. Three
resources (CPU, memory, GPUs) and label filters throughout; requests of four kinds, half of them with a label.

- `fill`: so many single-GPU workers over an empty fleet, in one cycle.
- `gang`: gangs of 8 to 64 whole machines or part of them with label filters, one a cycle, on a fleet half full.
- `replan`: a full fleet, so many waiting runs, one machine freed: order, the head's reservation, backfill, all again.
- `idle`: the same with nothing freed and everything told already, changes to write included (there must be none).
- `why`: the answer to `moor why` of runs in the last third of that queue, proposals that were tried included, no reads.

The bare kernels do one part of the work with the same arrays in the same run: `scan` looks at machines one after the
other in Python, `numpy` makes one mask over all machines for each worker, both without order, gangs or reasons.
"""

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from moorage.control.explain import waiting_answer
from moorage.decide.scheduling.assign import Outcome, decide
from moorage.decide.scheduling.book import Book
from moorage.decide.scheduling.cycle import run_cycle
from moorage.decide.scheduling.fleet import devices
from moorage.decide.scheduling.snapshot import Room
from moorage.domain.nouns import Machine, Run, Worker
from moorage.domain.states import MachineState, WorkerState

T = TypeVar("T")
GIB = 1 << 30
NOW = 1_000_000.0
GPUS = tuple(
    {"index": n, "vendor": "nvidia", "model": "H100", "memory_bytes": 80 * GIB, "health": "ok"} for n in range(8)
)
KINDS = (
    ({"cpu_milli": 4000, "memory_bytes": 32 * GIB}, {}),
    ({"cpu_milli": 8000, "memory_bytes": 64 * GIB}, {"pool": "a"}),
    ({"cpu_milli": 2000, "memory_bytes": 16 * GIB}, {"pool": "b"}),
    ({"cpu_milli": 6000, "memory_bytes": 48 * GIB}, {}),
)


def machines(count: int) -> list[Machine]:
    return [
        Machine(
            uid=f"m{n:05}",
            name=f"m{n:05}",
            state=MachineState.READY,
            capacity={"cpu_milli": 128_000, "memory_bytes": 1024 * GIB, "gpus": GPUS},
            labels={"pool": "ab"[n % 2], "moorage/rack": f"r{n // 16}"},
        )
        for n in range(count)
    ]


def job(number: int, gpus: int = 1, count: int = 1, **fields: Any) -> tuple[Run, list[Worker]]:
    request, labels = KINDS[number % len(KINDS)]
    asked = {k: v * gpus for k, v in request.items()} | {"gpus": {"count": gpus}}
    spec = {"groups": [{"name": "worker", "count": count}], "placement": {"labels": labels}, **fields}
    run = Run(uid=f"run-{number:06}", name=f"job-{number}", spec=spec, queued_at=NOW + number)
    workers = [
        Worker(uid=f"w-{number:06}-{n}", name=f"job-{number}-{n}", run=run.uid, rank=n, request=asked, queued_at=NOW)
        for n in range(count)
    ]
    return run, workers


def submit(book: Book, made: Iterable[tuple[Run, list[Worker]]]) -> None:
    for run, workers in made:
        for worker in workers:
            book.worker(worker, run, None)


def settle(book: Book, outcome: Outcome) -> None:
    """The book after an outcome was committed and everything placed runs."""
    rows: dict[int, list[Any]] = {}
    for found in outcome.placed:
        for entry, spot in found:
            rows.setdefault(spot.row, []).append((entry, spot))
    for row, here in rows.items():
        room = book.fleet.room(row)
        gpus = room.gpus | {g for _, spot in here for g in devices(room.machine, spot.gpus)}
        cpu = room.cpu_milli + sum(spot.cpu_milli for _, spot in here)
        memory = room.memory_bytes + sum(spot.memory_bytes for _, spot in here)
        book.room(
            Room(room.machine, cpu, memory, gpus, room.owners | {name for entry, _ in here for name in entry.owners})
        )
        for entry, spot in here:
            book.worker(
                running(entry.worker, room.machine, devices(room.machine, spot.gpus)), entry.run, room.machine.uid
            )


def running(worker: Worker, machine: Machine, gpus: tuple[int, ...]) -> Worker:
    return replace(
        worker,
        state=WorkerState.RUNNING,
        machine=machine.uid,
        machine_name=machine.name,
        gpus=gpus,
        placed_at=NOW,
        started_at=NOW,
        ran=True,
    )


def cpu_s(work: Callable[[], T]) -> tuple[float, T]:
    gc.collect()
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


# Bare kernels


def scan(count: int, workers: int) -> float:
    """Seconds of CPU a worker: a Python loop over machines until one fits."""
    fleet = [[128_000, 1024, 8, {"pool": "ab"[n % 2]}] for n in range(count)]

    def place() -> None:
        for number in range(workers):
            request, labels = KINDS[number % len(KINDS)]
            for row in fleet:
                fits = row[0] >= request["cpu_milli"] and row[1] >= request["memory_bytes"] >> 30 and row[2] >= 1
                if fits and all(row[3].get(k) == v for k, v in labels.items()):
                    row[0] -= request["cpu_milli"]
                    row[1] -= request["memory_bytes"] >> 30
                    row[2] -= 1
                    break

    return cpu_s(place)[0] / workers


def masks(count: int, workers: int) -> float:
    """Seconds of CPU a worker: one mask over all machines for each."""
    cpu, memory, free = np.full(count, 128_000), np.full(count, 1024 * GIB), np.full(count, 8)
    pools = {pool: np.arange(count) % 2 == n for n, pool in enumerate("ab")}

    def place() -> None:
        for number in range(workers):
            request, labels = KINDS[number % len(KINDS)]
            fits = (cpu >= request["cpu_milli"]) & (memory >= request["memory_bytes"]) & (free >= 1)
            for pool in labels.values():
                fits &= pools[pool]
            row = int(np.argmax(fits))
            cpu[row] -= request["cpu_milli"]
            memory[row] -= request["memory_bytes"]
            free[row] -= 1

    return cpu_s(place)[0] / workers


# Ours


def fill(fleet: list[Machine], count: int) -> tuple[Book, float]:
    book = Book()
    for machine in fleet:
        book.room(Room(machine))
    submit(book, (job(n) for n in range(count)))
    seconds, outcome = cpu_s(lambda: decide(book, NOW))
    placed = outcome.count
    assert placed >= 0.99 * min(count, 8 * len(fleet)), f"{placed} of {count} were placed"
    settle(book, outcome)
    return book, seconds


def gangs(fleet: list[Machine], rounds: int) -> list[float]:
    """Seconds of CPU of each gang's cycle."""
    book = Book()
    for machine in fleet:
        book.room(Room(machine))
    submit(book, (job(n) for n in range(4 * len(fleet))))
    settle(book, decide(book, NOW))
    sizes = ((8, 8), (16, 4), (64, 1), (32, 8), (8, 1), (24, 2))
    times: list[float] = []
    gc.disable()
    for n in range(rounds):
        count, gpus = sizes[n % len(sizes)]
        made = job(1_000_000 + n, gpus=gpus, count=count, gang=True)
        submit(book, [made])
        began = time.process_time()
        outcome = decide(book, NOW)
        times.append(time.process_time() - began)
        assert outcome.count == count, f"a gang of {count} x {gpus} was not placed"
        for worker in made[1]:
            book.forget(worker.uid)
    gc.enable()
    return times


def waiting(book: Book, count: int) -> tuple[float, float, float, tuple[float, float]]:
    """Seconds of CPU to plan anew after one machine was freed, to find nothing new, to take one machine in, and to say
    why a run waits."""
    for entry in list(book.queue):
        book.forget(entry.worker.uid)
    submit(book, (job(2_000_000 + n, gpus=1 + n % 8, time_limit=3600.0 if n % 2 else None) for n in range(count)))
    first = run_cycle(book, NOW)
    for change in first.changes:
        for write in change.writes:
            told(book, write)
    idle, cycle = cpu_s(lambda: run_cycle(book, NOW))
    assert not cycle.changes, f"{len(cycle.changes)} rows would be written though nothing changed"
    asked_why = why(book)
    row = book.fleet.row("m00000")
    for holder in [h for h in book.holders if h.spot.row == row]:
        book.forget(holder.worker.uid)
    machine = book.fleet.room(row).machine
    one, _ = cpu_s(lambda: book.room(Room(machine)))
    replan, outcome = cpu_s(lambda: decide(book, NOW))
    assert outcome.count, "the freed machine was not used"
    return replan, idle, one, asked_why


def told(book: Book, write: Any) -> None:
    """A wait as the store would keep it."""
    entry = book.queue.get(write.uid)
    assert entry is not None
    worker = replace(entry.worker, reason=write.reason, version=entry.worker.version + 1, **write.fields)
    book.worker(worker, entry.run, None)


def why(book: Book) -> tuple[float, float]:
    """Seconds of CPU of the answer to `moor why` of runs deep in the queue, proposals included: median and most."""
    entries = list(book.queue)
    deep = entries[len(entries) * 7 // 10 :: max(1, len(entries) // 40)]
    times = [cpu_s(partial(waiting_answer, book, entry, NOW))[0] for entry in deep]
    return statistics.median(times), max(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=80_000)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--gangs", type=int, default=600)
    asked = parser.parse_args()
    fleet = machines(asked.machines)
    scan_s, masks_s = scan(asked.machines, 2_000), masks(asked.machines, 2_000)
    book, fill_s = fill(fleet, asked.workers)
    each = fill_s / asked.workers
    times = sorted(gangs(fleet, asked.gangs))
    p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
    replan, idle, one, (why_p50, why_most) = waiting(book, asked.waiting)
    print(
        f"fill: {asked.workers} workers, {1 / each:,.0f}/s; Python scan {1 / scan_s:,.0f}/s, masks {1 / masks_s:,.0f}/s"
    )
    print(f"gang: p50 {p50 * 1000:.2f} ms; why: p50 {why_p50 * 1000:.0f} ms")
    print(f"RATIO scheduler_fill_cpu_s {fill_s:.3f} <=1")
    print(f"RATIO scheduler_fill_vs_python_scan {scan_s / each:.2f} report")
    print(f"RATIO scheduler_fill_vs_mask_each {masks_s / each:.2f} report")
    print(f"RATIO scheduler_gang_p99_ms {p99 * 1000:.2f} <=1")
    print(f"RATIO scheduler_replan_ms {replan * 1000:.0f} <=250")
    print(f"RATIO scheduler_idle_ms {idle * 1000:.0f} <=50")
    print(f"RATIO scheduler_why_ms {why_most * 1000:.0f} <=150")
    print(f"RATIO scheduler_machine_taken_in_us {one * 1e6:.0f} report")


if __name__ == "__main__":
    main()

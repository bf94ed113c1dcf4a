"""How full a real cluster gets: the production scheduler beside best fit, first fit and random placement, simulated.

    .venv/bin/python benchmarks/bench_simulate.py [--machines CSV --trace CSV] [--seed 42] [--peers best-fit ...]

Three simulations of the same machines and tasks (`moor simulate` runs the same code):

- `saturated`: tasks drawn from the trace arrive until 130 % of all GPUs is asked for, nothing ends (the method of Weng
  et al., "Beware of Fragmentation", USENIX ATC 2023): GPUs allocated in the end, against each peer in the same run.
- `pressed` (only if asked for, it takes long): each task twice, from its creation on for as long as in the trace, while
  the clock of creations runs `PACE` times as fast, so that the cluster saturates and empties again: GPUs held while all
  are asked for.
- `replay`: from creation to deletion as in the trace: what it takes, and who waited.

The trace is that of openb (1,213 machines, 8,152 tasks; Alibaba cluster-trace-gpu-v2023, CC BY 4.0) where its folder is
found or named; otherwise the small one in examples/traces. Shares of GPUs are rounded up to whole ones.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from moorage.decide.scheduling.policies import Policy
from moorage.domain.nouns import Machine
from moorage.sim import machines, traces
from moorage.sim.play import Played, Setting, play
from moorage.sim.traces import Trace
from moorage.sim.workload import Choice, choose

ROOT = Path(__file__).resolve().parent.parent
OPENB = ROOT.parent / "shared" / "data"
SAMPLE = ROOT / "examples" / "traces"
PACE, SCALE = 100_000.0, 2.0
PEERS = (Policy.BEST_FIT, Policy.FIRST_FIT, Policy.RANDOM)


def files() -> tuple[Path, Path]:
    """The trace that is there."""
    openb = OPENB / "openb_node_list_gpu_node.csv", OPENB / "openb_pod_list_default.csv"
    return openb if all(path.is_file() for path in openb) else (SAMPLE / "machines.csv", SAMPLE / "tasks.csv")


def played(fleet: Sequence[Machine], trace: Trace, policy: Policy, *, seed: int, saturate: bool) -> Played:
    setting = Setting(seed, saturate, time.perf_counter, time.process_time)
    return play(fleet, trace.tasks, policy, setting)


def saturated(fleet: Sequence[Machine], trace: Trace, peers: Sequence[Policy], seed: int) -> list[str]:
    gpus = sum(len(machine.capacity["gpus"]) for machine in fleet)
    chosen = choose(trace, Choice(saturate=True, seed=seed), gpus)
    for note in chosen.notes:
        print(f"- {note}")
    ours = played(fleet, chosen, Policy.FGD, seed=seed, saturate=True)
    held = ours.allocated_full or 0.0
    lines = [f"RATIO openb_filled_gpus_allocated {held / gpus:.4f} report"]
    print(
        f"filled, fgd: {held:,.0f} of {gpus:,} GPUs, {ours.fragmented_last:,.0f} fragmented; {cost(ours)}", flush=True
    )
    for peer in peers:
        other = played(fleet, chosen, peer, seed=seed, saturate=True)
        theirs = other.allocated_full or 0.0
        print(f"filled, {peer}: {theirs:,.0f} GPUs, {other.fragmented_last:,.0f} fragmented; {cost(other)}", flush=True)
        lines.append(f"RATIO openb_filled_vs_{peer} {held / theirs:.4f} >=1")
    return lines


def pressed(fleet: Sequence[Machine], trace: Trace, peers: Sequence[Policy], seed: int) -> list[str]:
    chosen = choose(trace, Choice(scale=SCALE, pace=PACE, seed=seed), 0)
    held: dict[Policy, float] = {}
    for policy in (Policy.FGD, *peers):
        result = played(fleet, chosen, policy, seed=seed, saturate=False)
        held[policy] = result.allocated_full or 0.0
        print(
            f"pressed, {policy}: {held[policy]:,.0f} GPUs held while all are asked for, at most "
            f"{result.allocated_most:,}; {len(chosen.tasks):,} tasks; {cost(result)}",
            flush=True,
        )
    assert held[Policy.FGD], "the cluster never was full"
    return [f"RATIO openb_pressed_vs_{peer} {held[Policy.FGD] / held[peer]:.4f} >=1" for peer in peers]


def replayed(fleet: Sequence[Machine], trace: Trace, seed: int) -> list[str]:
    result = played(fleet, choose(trace, Choice(), 0), Policy.FGD, seed=seed, saturate=False)
    waited = sum(waits.started for waits in result.waits if (waits.p99_s or 0.0) > 0.0)
    print(f"replay: {result.tasks:,} tasks over {result.until_s / 86400:,.1f} days; {cost(result)}")
    print(
        f"replay: at most {result.allocated_most:,} GPUs at once; {waited:,} tasks in size classes that waited at all"
    )
    return [f"RATIO openb_replay_scheduler_cpu_s {result.effort.scheduler_cpu_s:.1f} <=60"]


def cost(result: Played) -> str:
    effort = result.effort
    return f"{effort.wall_s:.1f} s of wall time, {effort.scheduler_cpu_s:.1f} s of the scheduler's CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = files()
    parser.add_argument("--machines", type=Path, default=here[0])
    parser.add_argument("--trace", type=Path, default=here[1])
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--peers", nargs="*", type=Policy, default=PEERS)
    parser.add_argument("--only", choices=["saturated", "pressed", "replay"])
    asked = parser.parse_args()
    print(f"{asked.machines}\n{asked.trace}")
    fleet, trace = machines.load(asked.machines), traces.load(asked.trace)
    lines: list[str] = []
    if asked.only in (None, "saturated"):
        lines += saturated(fleet, trace, asked.peers, asked.seed)
    if asked.only == "pressed":
        lines += pressed(fleet, trace, asked.peers, asked.seed)
    if asked.only in (None, "replay"):
        lines += replayed(fleet, trace, asked.seed)
    print("\n".join(lines))


if __name__ == "__main__":
    main()

"""A recorded hour of requests, replayed through a whole installation whose deployment scales by itself from none.

    make bench-azure       [--trace CSV] [--speed 10] [--minutes 60] [--begin MINUTE] [--high 8]

The arrivals, prompts and answers are those of the Azure LLM inference trace of 2023, code (8,819 requests in 57
minutes, in bursts of up to 67 a second between silences of up to 217 s; Patel et al., "Splitwise", ISCA 2024; CC BY
4.0) where its file is found or named, else drawn ones that are as bursty. Control plane, agent and gateway are real,
requests are real HTTP and streamed; model servers are `tests/servers/batching_model.py`, which takes the times of
Llama-2-70B on 8 GPUs with continuous batching, and whose start takes a minute. Everything passes `--speed` times as
fast, save what is ours: what the control plane, the agent and the gateway take counts `--speed` times in the figures,
which are all in seconds of the trace.

In the same run the same arrivals are asked of a fixed fleet of the size that the other reached at most; `--no-fixed`
leaves that out. `behind` and `late` say how far the replay and the model servers were from the times that they should
have kept; figures below them mean nothing.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.asking import percentile
from tests.replaying import Arrival, drawn, read
from tests.scaling_house import GPUS, NAME, Replayed, Rules, ScalingHouse

ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT.parent / "shared" / "data" / "AzureLLMInferenceTrace_code.csv"
SEED = 7


def arrivals(asked: argparse.Namespace) -> list[Arrival]:
    """The trace that is there, or drawn ones."""
    seconds, begin_s = asked.minutes * 60.0, asked.begin * 60.0
    if asked.trace is not None or TRACE.is_file():
        path = asked.trace or TRACE
        print(f"{path}, minutes {asked.begin:g} to {asked.begin + asked.minutes:g}")
        return read(path, begin_s=begin_s, seconds=seconds)
    print(f"drawn arrivals (seed {SEED}): {TRACE} is not there; --trace names another file of its form")
    return drawn(SEED, seconds)


def show(name: str, replayed: Replayed, speed: float) -> None:
    """One line of figures, and how far they can be trusted."""
    figures = "".join(
        f"{percentile(values, share):9.2f}"
        for values in (replayed.queued, replayed.queued_inside, replayed.ttft)
        for share in (0.5, 0.99)
    )
    both = [a + b for a, b in zip(replayed.queued, replayed.queued_inside, strict=True)]
    figures += "".join(f"{percentile(both, share):9.2f}" for share in (0.5, 0.99))
    gpu_s = sum(replayed.told.held_s) * speed * GPUS
    print(f"  {name:12}{replayed.asked:8}{len(replayed.wrong):8}{figures}{gpu_s:12.0f}")
    print(
        f"    behind at most {replayed.behind_s * 1e3:.0f} ms; steps of the model servers late: p50 "
        f"{percentile(replayed.late_ms, 0.5):.1f}, p99 {percentile(replayed.late_ms, 0.99):.1f} ms (of this machine)",
        flush=True,
    )


def curve(replayed: Replayed, speed: float) -> None:
    """What was decided and what served, over the time of the trace."""
    told = replayed.told
    print(
        f"  wakes {told.codes['deploy.wake_request']}, ups {told.codes['scale.up']}, downs {told.codes['scale.down']}, "
        f"to sleep {told.codes['deploy.idle']}, starts in vain {told.useless}, failed {told.codes['replica.failed']}"
    )
    sizes = " ".join(f"{(at - replayed.began) * speed:.0f}:{size}" for at, size in told.sizes)
    print(f"  decided (second:replicas)  {sizes}")
    serving, steps = 0, []
    for at, change in told.ready:
        serving += change
        steps.append(f"{(at - replayed.began) * speed:.0f}:{serving}")
    print(f"  serving (second:replicas)  {' '.join(steps)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--speed", type=float, default=10.0)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--begin", type=float, default=0.0)
    parser.add_argument("--high", type=int, default=8, help="replicas at most")
    parser.add_argument("--target", type=float, default=Rules(1.0).target, help="requests at once for a replica")
    parser.add_argument("--load-s", type=float, default=Rules(1.0).load_s)
    parser.add_argument("--interval", type=int, default=4, help="tokens in one event of a stream")
    parser.add_argument("--no-fixed", action="store_true")
    asked = parser.parse_args()
    wanted = arrivals(asked)
    rules = Rules(
        asked.speed,
        high=asked.high,
        target=asked.target,
        load_s=asked.load_s,
        options=("--stream-interval", str(asked.interval)),
    )
    with (
        tempfile.TemporaryDirectory(prefix="moorage-azure-") as folder,
        ScalingHouse.up(Path(folder), asked.high) as house,
    ):
        house.make(rules)
        scaled = house.replay(rules, wanted)
        house.client.deployments.delete(NAME)
        curve(scaled, asked.speed)
        heads = ("held", "", "in server", "", "TTFT", "", "both", "")
        print(f"  {'':12}{'asked':>8}{'failed':>8}" + "".join(f"{h:>9}" for h in heads) + f"{'GPU s':>12}")
        show("scaled", scaled, asked.speed)
        lines = report("scaled", scaled, asked.speed)
        if not asked.no_fixed:
            peak = max(1, scaled.told.peak)
            fixed_rules = replace(rules, low=peak, high=peak)
            house.make(fixed_rules, "fixed")
            fixed = house.replay(fixed_rules, wanted, "fixed")
            show(f"fixed at {peak}", fixed, asked.speed)
            ratio = sum(scaled.told.held_s) / sum(fixed.told.held_s)
            lines += [*report("fixed", fixed, asked.speed), f"RATIO azure_gpu_seconds_to_fixed {ratio:.3f} <1"]
    for text in scaled.wrong[:10]:
        print(f"  failed: {text}")
    print("\n".join(lines))


def report(name: str, replayed: Replayed, speed: float) -> list[str]:
    both = [a + b for a, b in zip(replayed.queued, replayed.queued_inside, strict=True)]
    peak = max(1, replayed.told.peak)
    share = sum(replayed.told.held_s) * speed / (peak * replayed.seconds)
    out = [
        f"RATIO azure_{name}_failed {len(replayed.wrong)} =0",
        f"RATIO azure_{name}_queueing_p50_s {percentile(both, 0.5):.2f} report",
        f"RATIO azure_{name}_queueing_p99_s {percentile(both, 0.99):.2f} report",
        f"RATIO azure_{name}_ttft_p50_s {percentile(replayed.ttft, 0.5):.2f} report",
        f"RATIO azure_{name}_ttft_p99_s {percentile(replayed.ttft, 0.99):.2f} report",
    ]
    if name == "scaled":
        out += [
            f"RATIO azure_cold_starts {replayed.told.codes['deploy.wake_request']} report",
            f"RATIO azure_gpu_seconds_to_peak_all_the_time {share:.3f} <1",
        ]
    return out


if __name__ == "__main__":
    main()

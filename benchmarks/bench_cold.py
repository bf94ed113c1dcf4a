"""A thousand requests at once at a deployment that sleeps, through a whole installation; another measured meanwhile.

    make bench-cold        [--rounds 5] [--load-s 10] [--count 1000]

Three cases, each with real processes: control plane, agent, gateway, and model servers that load for `--load-s` and
then take the time that a model takes (`tests/servers/batching_model.py`: 64 requests in a batch, 16 tokens in 0.8 s).

- `held`: the hold queue bears all of them (`gateway.max_queue`). Half want whole answers, half streams, which SSE
  comments keep alive. Beside it another deployment is asked 250 times a second through the same gateway process, and as
  often without a gateway. Its p99 is taken in three phases, one after the other in each round: calm; one request wakes
  the sleeper; a thousand do. The rule: p99 through the gateway while a thousand wait, to p99 while one does, each the
  median of the rounds, at most 1.5. What was asked without a gateway tells what of it is the machine's (two cores for
  seven busy processes), and the last columns how long the worst moments were.
- `bounded`: the hold queue is 100 long. 900 are told 429 with Retry-After and ask again when it says.
- `left`: all of them want streams; 500 close at one moment before the wake is over. Their requests must never reach the
  model server, and the gateway must have as many connections and open files as before.

Wakes are counted in the history of the deployment (what `moor history` shows), never inferred.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.asking import percentile
from tests.cold_house import ColdHouse
from tests.flooding import Flooded, Flooding, Paced, paced

EVERY_S = 1 / 250
TOKENS = ("--tokens", "16")
IDLE_FILES = 24
"""Of a gateway with a client or two and no connection to a model server kept: it has 19."""


@dataclass
class Phase:
    """One kind of phase, over all rounds: seconds that each request took."""

    through_s: list[float] = field(default_factory=list)
    direct_s: list[float] = field(default_factory=list)
    p99s: list[float] = field(default_factory=list)

    def add(self, through: Paced, direct: Paced) -> None:
        wrong = through.wrong + direct.wrong
        assert not wrong, f"the other deployment was answered wrongly: {wrong[:3]}"
        self.through_s += through.took_s
        self.direct_s += direct.took_s
        self.p99s.append(percentile(through.took_s, 0.99))

    @property
    def p50(self) -> float:
        return percentile(self.through_s, 0.5)

    @property
    def p99(self) -> float:
        return statistics.median(self.p99s)

    def show(self, name: str) -> None:
        rounds = " ".join(f"{value * 1e3:.1f}" for value in self.p99s)
        print(_line(name, self.through_s) + f"   p99 of each round: {rounds}")
        print(_line("  without a gateway", self.direct_s), flush=True)


def _line(name: str, took_s: list[float]) -> str:
    shares = [percentile(took_s, share) * 1e3 for share in (0.5, 0.9, 0.98, 0.99, 0.999, 1.0)]
    return f"  {name:22}{len(took_s):7}" + "".join(f"{value:9.2f}" for value in shares)


def beside(house: ColdHouse, phase: Phase, over: Callable[[], bool]) -> None:
    """Measure the other deployment until it is over."""
    ports = house.port, house.direct_port()

    async def both() -> list[Paced]:
        return await asyncio.gather(*(paced(port, house.other, EVERY_S, over) for port in ports))

    phase.add(*uvloop.run(both()))


def flooded(house: ColdHouse, phase: Phase, count: int, *options: str) -> Flooded:
    flood = Flooding(house.port, house.cold, count, *TOKENS, *options)
    try:
        beside(house, phase, lambda: flood.over)
        return flood.came()
    finally:
        flood.end()


def told(case: str, came: Flooded, wakes: Counter[str]) -> None:
    waits = ", ".join(f"{value:.2f}" for value in came.waits)
    print(
        f"  {case}: {came.right} answered rightly, {came.refused} connections refused or broken, "
        f"{len(came.wrong)} wrong {came.wrong[:2]}; first answers {came.first}; wakes {wakes['deploy.wake_request']}, "
        f"replicas started {wakes['replica.created']}; waits p50, p99, most {waits} s",
        flush=True,
    )


def held(house: ColdHouse, asked: argparse.Namespace) -> list[str]:
    calm, one, many = Phase(), Phase(), Phase()
    lost = refused = wakes = 0
    cpu_s = 0.0
    for _ in range(asked.rounds):
        house.to_sleep()
        length = time.monotonic() + 2 * asked.load_s
        beside(house, calm, lambda end=length: time.monotonic() > end)
        seen = flooded(house, one, 1)
        assert seen.right == 1, seen
        house.to_sleep()
        events, used_s = house.counted(), house.gateway_cpu_s()
        came = flooded(house, many, asked.count, "--streams", str(asked.count // 2))
        cpu_s += house.gateway_cpu_s() - used_s
        new = house.counted() - events
        told("held", came, new)
        lost, refused = lost + asked.count - came.right, refused + came.refused
        wakes += new["deploy.wake_request"]
    heads = "".join(f"{head:>9}" for head in ("p50", "p90", "p98", "p99", "p99.9", "most"))
    print(f"  {'the other, in ms':22}{'asked':>7}{heads}")
    for name, phase in (("calm", calm), ("one wakes it", one), (f"{asked.count} at once", many)):
        phase.show(name)
    own_s = cpu_s / asked.rounds
    print(f"  gateway: {own_s * 1e3:.0f} ms of CPU a flood, what it did for the other deployment included")
    return [
        f"RATIO cold_wakes_for_each_flood {wakes / asked.rounds:.2f} =1",
        f"RATIO cold_refused_connections {refused} =0",
        f"RATIO cold_lost_answers {lost} =0",
        f"RATIO cold_other_p99_to_one_wake {many.p99 / one.p99:.2f} <=1.5",
        f"RATIO cold_other_p99_to_calm {many.p99 / calm.p99:.2f} report",
        f"RATIO cold_other_p50_to_calm {many.p50 / calm.p50:.2f} report",
    ]


def bounded(house: ColdHouse, asked: argparse.Namespace) -> list[str]:
    house.apply(max_queue=100)
    lines = []
    for name in ("unknown", "known"):
        house.to_sleep()
        events = house.counted()
        came = flooded(house, Phase(), asked.count, "--retry")
        new = house.counted() - events
        told("bounded", came, new)
        shares = [percentile(came.told, share) for share in (0.0, 0.5, 1.0)]
        tries = " ".join(f"{n}:{came.tries[n]}" for n in sorted(came.tries, key=int))
        print(f"    told Retry-After least, p50, most {shares} s; requests sent by each client {tries}")
        sent = sum(int(n) * clients for n, clients in came.tries.items())
        lines += [
            f"RATIO cold_bounded_{name}_lost {asked.count - came.right} =0",
            f"RATIO cold_bounded_{name}_wakes {new['deploy.wake_request']} =1",
            f"RATIO cold_bounded_{name}_requests_a_client {sent / max(1, came.right):.2f} report",
        ]
    return lines


def left(house: ColdHouse, asked: argparse.Namespace) -> list[str]:
    house.apply(max_queue=2 * asked.count)
    leave = asked.count // 2
    house.to_sleep()
    house.settled(IDLE_FILES)
    events, before = house.counted(), house.gateway_holds()
    came = flooded(house, Phase(), asked.count, "--streams", str(asked.count), "--leave", str(leave))
    new = house.counted() - events
    told("left", came, new)
    stats = house.stats()
    reached = [user for user in stats["users"] if user.startswith("leaver")]
    house.settled(IDLE_FILES)
    after = house.gateway_holds()
    print(
        f"    reached the server: {stats['asked']}, of those who left {len(reached)}; the gateway {before} -> {after}"
    )
    return [
        f"RATIO cold_left_wakes {new['deploy.wake_request']} =1",
        f"RATIO cold_left_lost {asked.count - leave - came.right} =0",
        f"RATIO cold_left_reached_the_server {len(reached)} =0",
        f"RATIO cold_left_open_files_leaked {after.files - before.files} <=0",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--load-s", type=float, default=10.0)
    parser.add_argument("--only", choices=["held", "bounded", "left"])
    asked = parser.parse_args()
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="moorage-cold-") as folder, ColdHouse.up(Path(folder)) as house:
        house.apply_other()
        house.apply("--load-s", str(asked.load_s), max_queue=2 * asked.count, comments="5s")
        for case in (held, bounded, left):
            if asked.only in (None, case.__name__):
                print(f"{case.__name__}:", flush=True)
                lines += case(house, asked)
    print("\n".join(lines))


if __name__ == "__main__":
    main()

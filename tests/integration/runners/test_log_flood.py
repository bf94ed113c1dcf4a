"""A server that writes without end: memory and disk stay flat, and every number stays true."""

import os
from pathlib import Path

from runner_world import World, until

from moorage.runners.shimming.log import SEGMENT_BYTES

FLOOD_BYTES = 1 << 30
LINE = "x" * 1023


async def test_a_flood_of_1_gb_takes_no_memory_and_bounded_disk(world: World) -> None:
    runner = world.runner()
    lines = FLOOD_BYTES // (len(LINE) + 1)
    spec = world.shell(f"yes {LINE} | head -n {lines}; echo over; exec sleep 1000")
    own_before = _resident(os.getpid())
    await runner.start("m", spec)
    shim = int(Path(f"/proc/{runner.info('m').pid}/stat").read_text().rpartition(")")[2].split()[1])
    shim_before = _resident(shim)
    tail = await _until_over(runner, lines)
    assert tail.lines == (LINE, "over")
    assert tail.next_seq == lines + 2
    assert _resident(shim) - shim_before < 4 << 20
    assert _resident(os.getpid()) - own_before < 100 << 20
    kept = sum(path.stat().st_size for path in runner._parts.home.rglob("log.*"))
    assert kept <= 2 * SEGMENT_BYTES + (1 << 20)
    first = await runner.logs("m", lines=1, after=0)
    assert first.missed == first.first_seq - 1 > lines * 0.9
    await runner.stop("m")


async def _until_over(runner, lines: int):
    def over() -> bool:
        newest = max(runner._parts.home.rglob("log.*"), key=lambda path: int(path.suffix[1:]))
        with newest.open("rb") as source:
            source.seek(max(0, newest.stat().st_size - 16))
            return source.read().endswith(b"over\n")

    await until(over)
    return await runner.logs("m", lines=2)


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

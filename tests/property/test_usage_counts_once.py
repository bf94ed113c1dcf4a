"""Whatever becomes of reports, answers, gateways and control planes: nothing used counts twice, nothing told is lost.

Played with the gateway's own counts and files, the control plane's own intake and the table's own statements. What may
be lost is what a killed process had told nobody; everything else is in the table once reports are answered again.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.control.usage import UsageIntake
from moorage.domain.errors import Unavailable
from moorage.domain.usage import UsageRow, UsedOn, day_of
from moorage.gateway.hub import Hub
from moorage.gateway.tokens import Tokens
from moorage.gateway.usage import UsageCounts
from moorage.gateway.usage_file import Leftovers
from moorage.ports import Clock
from moorage.store import usage
from moorage.store.sql import Sql
from moorage.wire.routing import GatewayReport, GatewayReportAnswer
from tests.examples import examples, phases

KEYS, ENDPOINTS = ("key-1", "key-2"), ("chat", "embed")
OUTCOMES = (("ok", 200), ("ok", 500), ("ok", 404), ("refused", 429), ("client_gone", 0), ("cut", 200))
DAY_S = 86_400.0
ROUNDS = 40
"""Of reports, two rows each, within which everything is told."""

Row = tuple[str, str, str]
"""key, endpoint, day"""


async def poll_pause() -> None:
    """Others go on while the disk works."""
    await asyncio.sleep(0)


class Table:
    """The table in memory, by the store's statements; its disk may fail."""

    def __init__(self) -> None:
        self._sql = Sql(postgres=False)
        self._connection = sa.create_engine("sqlite://").connect()
        self._sql.tables.usage.create(self._connection)
        self.fails = False

    async def keep_usage(self, rows: Sequence[UsageRow]) -> None:
        await poll_pause()
        if self.fails:
            raise Unavailable("the disk is full")
        usage.keep(self._connection, rows)
        self._connection.commit()

    async def usage(self, namespace: str, first: str, last: str, *, key: str | None = None) -> list[UsedOn]:
        return usage.read(self._sql, self._connection, namespace, (first, last), key)

    async def prune_usage(self, before: str) -> int:
        return 0

    def close(self) -> None:
        self._connection.close()


@dataclass
class Process:
    """One life of a gateway, and what really ended in it."""

    gateway: str
    incarnation: str
    hub: Any
    left: Leftovers
    sequence: int = 0
    ended: Counter[tuple[Row, str]] = field(default_factory=Counter)
    day: str = ""

    @property
    def counts(self) -> UsageCounts:
        return cast(UsageCounts, self.hub.usage)


class World:
    """Two gateways that share a folder, one control plane at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now, self.monotonic = 1_800_000_000.0, 100.0
        self.table = Table()
        self.intake = UsageIntake(self.table, cast(Clock, SimpleNamespace(now=lambda: self.now)))
        self.lives = 0
        self.processes = [self.process("g-1"), self.process("g-2")]
        self.over: list[Process] = []
        self.killed: list[tuple[Process, Counter[tuple[Row, str]]]] = []
        self.late: list[GatewayReport] = []

    def process(self, gateway: str) -> Process:
        self.lives += 1
        counts = UsageCounts(lambda: self.now, lambda: self.monotonic, rows_max=2)
        log = SimpleNamespace(warning=lambda event, **_: self.fail(event))
        hub = SimpleNamespace(usage=counts, time=lambda: self.monotonic, log=log)
        config: Any = SimpleNamespace(state_dir=self.folder, gateway_id=gateway)
        name = f"life-{self.lives}"
        left = Leftovers(cast(Hub, hub), config, name)
        return Process(gateway, name, hub, left, day=day_of(self.now))

    def fail(self, event: str) -> None:
        raise AssertionError(event)

    # --- what may happen -----------------------------------------------------------------------------------------

    def finish(self, which: int, key: str, endpoint: str, how: tuple[str, int], tokens: int) -> None:
        self._end(self.processes[which], key, endpoint, how, tokens)

    def _end(self, process: Process, key: str, endpoint: str, how: tuple[str, int], tokens: int) -> None:
        outcome, status = how
        told = Tokens(tokens, 2 * tokens, counted=False) if tokens else None
        process.counts.count((key, "default", endpoint), status, outcome, [told])
        row = (key, endpoint, process.day)
        process.ended[row, "requests"] += 1
        process.ended[row, "tokens"] += 3 * tokens

    async def report(self, which: int, fate: str, meanwhile: str | None = None) -> None:
        await self._report(self.processes[which], fate, meanwhile=meanwhile)

    async def _report(
        self, process: Process, fate: str, *, leaving: bool = False, meanwhile: str | None = None
    ) -> None:
        """One report.

        Args:
            fate: of it, or of its answer; `with_a_late_one`: one that was on its way for long comes right behind it.
            meanwhile: the key of a request that ends before the answer.
        """
        self.monotonic += 61.0
        process.sequence += 1
        message = GatewayReport(
            gateway=process.gateway,
            incarnation=process.incarnation,
            sequence=process.sequence,
            usage=process.counts.tell(process.sequence, leaving=leaving),
            leaving=leaving,
        )
        late = self.late[-1:] if fate == "with_a_late_one" else []
        self.late.append(message)
        if meanwhile is not None:
            self._end(process, meanwhile, "chat", ("ok", 200), 1)
        if fate == "lost":
            await process.left.not_taken()
            return
        kept, *_ = await asyncio.gather(*(self.intake.take(each) for each in (message, *late)))
        if fate == "answer_lost":
            await process.left.not_taken()
        else:
            await process.left.taken(GatewayReportAnswer(usage_sequence=kept))

    async def again(self, number: int) -> None:
        """A report that was on its way comes now, or once more; nobody waits for its answer."""
        if self.late:
            await self.intake.take(self.late[number % len(self.late)])

    async def kill(self, which: int) -> None:
        """What a process had acknowledged, or left on disk, must not be lost with it."""
        process = self.processes[which]
        self.killed.append((process, await self.stored(process.incarnation)))
        self.processes[which] = self.process(process.gateway)

    async def stop(self, which: int, fate: str) -> None:
        process = self.processes[which]
        await self._report(process, fate, leaving=True)
        await process.left.save()
        self.over.append(process)
        self.processes[which] = self.process(process.gateway)

    async def control_restarts(self) -> None:
        self.intake = UsageIntake(self.table, cast(Clock, SimpleNamespace(now=lambda: self.now)))

    def pass_s(self, seconds: float) -> None:
        self.now += seconds
        for process in self.processes:
            process.counts.look_at_day()
            process.day = max(process.day, day_of(self.now))

    # --- what must hold ------------------------------------------------------------------------------------------

    async def stored(self, incarnation: str | None = None) -> Counter[tuple[Row, str]]:
        query = sa.text("SELECT * FROM usage")
        found: Counter[tuple[Row, str]] = Counter()
        for row in self.table._connection.execute(query).mappings():
            if incarnation in (None, row["incarnation"]):
                of = (row["key"], row["endpoint"], row["day"])
                found[of, "requests"] += row["requests"]
                found[of, "tokens"] += row["prompt_tokens"] + row["completion_tokens"]
        return found

    async def nothing_counts_twice(self) -> None:
        for process in (*self.processes, *self.over, *(p for p, _ in self.killed)):
            stored = await self.stored(process.incarnation)
            assert stored <= process.ended, process.incarnation

    async def all_is_told_in_the_end(self) -> None:
        self.table.fails = False
        for _ in range(ROUNDS):
            if not any(process.counts.due() for process in self.processes) and not list(self.folder.glob("usage/*")):
                break
            for which in range(len(self.processes)):
                await self.report(which, "answered")
        for process in (*self.processes, *self.over):
            assert +(await self.stored(process.incarnation)) == +process.ended, process.incarnation
        for process, at_least in self.killed:
            stored = await self.stored(process.incarnation)
            assert at_least <= stored <= process.ended
        assert not any(process.counts.due() for process in self.processes)
        assert not list(self.folder.glob("usage/*")), "what is told is not left on disk"


WHICH = st.integers(0, 1)
KEY = st.sampled_from(KEYS)
FATE = st.sampled_from(("answered", "answered", "answer_lost", "lost", "with_a_late_one"))
FINISH = st.tuples(
    st.just("finish"), WHICH, KEY, st.sampled_from(ENDPOINTS), st.sampled_from(OUTCOMES), st.integers(0, 50)
)
REPORT = st.tuples(st.just("report"), WHICH, FATE, st.none() | KEY)
AGAIN = st.tuples(st.just("again"), st.integers(0, 1000))
RARE = (
    st.tuples(st.just("kill"), WHICH),
    st.tuples(st.just("stop"), WHICH, FATE),
    st.tuples(st.just("control_restarts")),
    st.tuples(st.just("disk"), st.sampled_from((False, False, True))),
    st.tuples(st.just("pass_s"), st.sampled_from((1.0, DAY_S, -DAY_S))),
)
BY_WEIGHT = (*[FINISH] * 5, *[REPORT] * 5, *[AGAIN] * 4, *RARE)
STEPS = st.lists(st.sampled_from(BY_WEIGHT).flatmap(lambda step: step), min_size=20, max_size=60)


async def play(steps: Sequence[tuple[Any, ...]], folder: Path) -> None:
    world = World(folder)
    try:
        for name, *given_ in steps:
            if name == "disk":
                world.table.fails = given_[0]
                continue
            done = getattr(world, name)(*given_)
            if done is not None:
                await done
            await world.nothing_counts_twice()
        await world.all_is_told_in_the_end()
    finally:
        world.table.close()


@settings(max_examples=examples(120), phases=phases(), deadline=None)
@given(STEPS)
def test_nothing_used_counts_twice_and_nothing_that_was_told_is_lost(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(steps, Path(folder)))

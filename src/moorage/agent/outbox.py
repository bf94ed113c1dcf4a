"""Reports on their way: numbered in order, kept until the control plane has them, sent again after an outage.

A report is sent at once while it is being written to the ledger; what the receiver already has it ignores by number.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from moorage.agent.ledger import Attempt, Ledger, dump
from moorage.ports import Clock
from moorage.wire.agent import Report, StepReport, WorkerReport

BATCH = 256
RESERVED = "seq_reserved"
RESERVE = 10_000
RESERVE_EARLY = 5_000
"""Numbers are reserved on disk in blocks: a report goes out before the disk has it, so an agent killed in between
must not give the same number to another report. A restart goes on above the block; gaps mean nothing."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A report with the wall times of its steps; ages are computed when it is sent."""

    report: WorkerReport
    at: tuple[float, ...]

    def aged(self, now: float) -> WorkerReport:
        """As it goes out now."""
        steps = tuple(
            s.model_copy(update={"age_s": max(0.0, now - at)}) for s, at in zip(self.report.steps, self.at, strict=True)
        )
        return self.report.model_copy(update={"steps": steps})


class Outbox:
    """The queue of reports.

    Args:
        ledger: where they are kept.
        clock: for the times of steps.
    """

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._pending: list[Pending] = []
        self._last = self._reserved = 0
        self._writes: set[asyncio.Task[None]] = set()
        self.acknowledged = 0
        self.news = asyncio.Event()
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def restore(self, kept: Sequence[tuple[int, str]], last: int, reserved: int = 0) -> None:
        """Take over what an earlier agent could not deliver.

        Args:
            kept: number and body of each report not acknowledged.
            last: highest number the ledger knows of.
            reserved: highest number that the earlier agent may have used.
        """
        for seq, body in kept:
            stored = _load(body)
            self._pending.append(Pending(stored[0].model_copy(update={"seq": seq}), stored[1]))
        self._last = self._reserved = max([last, reserved, *(seq for seq, _ in kept)])
        self.acknowledged = kept[0][0] - 1 if kept else self._last
        self._signal()

    async def reserve(self) -> None:
        """Reserve the next block of numbers; on disk when this returns. Before the first report."""
        self._reserved = self._last + RESERVE
        await self._ledger.note({RESERVED: str(self._reserved)})

    def renumber(self, next_seq: int) -> None:
        """The control plane holds everything below `next_seq`: drop that, and number new reports from there on."""
        self.confirm(next_seq - 1)
        self._last = max(self._last, next_seq - 1)

    def add(self, attempt: Attempt, steps: Sequence[StepReport] = (), **news: Any) -> Attempt:
        """Queue a report, to be sent at once.

        Args:
            attempt: whose; its state after the steps is kept with it.
            steps: edges, in order, seen now.
            news: other fields of `WorkerReport`.

        Returns:
            The attempt with its state and newest number.
        """
        return self._queue(attempt, steps, news, keep=True)

    def note(self, attempt: Attempt, steps: Sequence[StepReport] = (), **news: Any) -> None:
        """As `add`, for an attempt that the ledger does not have."""
        self._queue(attempt, steps, news, keep=False)

    def _queue(self, attempt: Attempt, steps: Sequence[StepReport], news: dict[str, Any], *, keep: bool) -> Attempt:
        self._last += 1
        if self._last > self._reserved - RESERVE_EARLY:
            self._write(self.reserve())
            self._reserved = self._last + RESERVE
        report = WorkerReport(seq=self._last, worker=attempt.worker, epoch=attempt.epoch, steps=tuple(steps), **news)
        after = replace(attempt, state=steps[-1].to if steps else attempt.state, last_seq=self._last)
        now = self._clock.now()
        pending = Pending(report, tuple(now for _ in steps))
        self._pending.append(pending)
        body = dump({"report": report.model_dump(mode="json"), "at": pending.at})
        self._write(self._ledger.record(self._last, body, after if keep else None))
        self._signal()
        return after

    def batch(self, machine: str, incarnation: str) -> Report | None:
        """What to send now, or None."""
        if not self._pending:
            return None
        now = self._clock.now()
        reports = tuple(p.aged(now) for p in self._pending[:BATCH])
        return Report(machine=machine, incarnation=incarnation, reports=reports)

    def confirm(self, seq: int) -> None:
        """Everything up to `seq` is durable there."""
        if seq <= self.acknowledged:
            return
        self.acknowledged = seq
        self._pending = [p for p in self._pending if p.report.seq > seq]
        self._write(self._ledger.acknowledged(seq))
        self._signal()

    @property
    def last(self) -> int:
        """Newest number given out."""
        return self._last

    @property
    def empty(self) -> bool:
        """Whether everything was acknowledged."""
        return not self._pending

    async def flushed(self) -> None:
        """Wait until what was queued is on disk."""
        if self._writes:
            await asyncio.gather(*self._writes)

    def _signal(self) -> None:
        if self._pending:
            self.news.set()
        else:
            self.news.clear()

    def _write(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._writes.add(task)
        task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writes.discard(task)
        cause = None if task.cancelled() else task.exception()
        if cause is not None and not self.broken.done():
            self.broken.set_exception(cause)


def _load(body: str) -> tuple[WorkerReport, tuple[float, ...]]:
    stored = json.loads(body)
    return WorkerReport.model_validate(stored["report"]), tuple(stored["at"])

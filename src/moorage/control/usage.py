"""Usage on its way from gateways' reports to disk, and what is told of it.

Reports say sums that only grow, by gateway process; what several of them say at once is one write. A report is
acknowledged once that is on disk: in its own answer where the disk is quick, else in a later one. What is lost with
this process was not acknowledged, so gateways say it again. Any control plane may write, whoever leads: the table takes
the larger sums. Called by the routing publisher.
"""

import asyncio
from collections import OrderedDict
from dataclasses import fields, replace

import structlog

from moorage.domain.errors import MoorageError
from moorage.domain.usage import KEPT_DAYS, SUMS, UsageRow, UsageSums, day_of, days_before
from moorage.ports import Clock, UsageRows
from moorage.wire.routing import GatewayReport, Usage

PATIENCE_S = 1.0
"""How long an answer waits for the disk: its gateway's lease must not."""

_PROCESSES_MAX = 4096
"""Gateway processes of which is known what is on disk; of others it is told again."""

_WHOSE = tuple(field.name for field in fields(UsageRow) if field.name != "sums")
_Process = tuple[str, str]
"""gateway, incarnation"""

log = structlog.get_logger("moorage.control")


class UsageIntake:
    """Of one control plane.

    Args:
        rows, clock: outside.
    """

    def __init__(self, rows: UsageRows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._waiting: dict[tuple[str, ...], UsageRow] = {}
        self._told: dict[_Process, int] = {}
        """by process: the report whose usage waits"""
        self._kept: OrderedDict[_Process, int] = OrderedDict()
        """by process: the report whose usage is on disk"""
        self._writing: asyncio.Task[None] | None = None
        self._pruned = ""

    async def take(self, report: GatewayReport) -> int | None:
        """Take a report's usage in; the sequence of a report of that process whose usage is on disk."""
        process = (report.gateway, report.incarnation)
        if report.usage:
            for said in report.usage:
                self._lay(_row(said, process))
            self._told[process] = max(report.sequence, self._told.get(process, 0))
            if self._writing is None:
                self._writing = asyncio.create_task(self._write())
            await asyncio.wait((self._writing,), timeout=PATIENCE_S)
        return self._kept.get(process)

    def _lay(self, row: UsageRow) -> None:
        """Over what waits already: of each sum the larger one."""
        whose = tuple(getattr(row, name) for name in _WHOSE)
        before = self._waiting.get(whose)
        if before is not None:
            larger = (max(getattr(before.sums, name), getattr(row.sums, name)) for name in SUMS)
            row = replace(row, sums=UsageSums(*larger))
        self._waiting[whose] = row

    async def _write(self) -> None:
        """Until nothing waits any more."""
        try:
            while self._waiting:
                rows, told = list(self._waiting.values()), self._told
                self._waiting, self._told = {}, {}
                await self._rows.keep_usage(rows)
                for process, sequence in told.items():
                    self._kept[process] = sequence
                    self._kept.move_to_end(process)
                while len(self._kept) > _PROCESSES_MAX:
                    self._kept.popitem(last=False)
                await self._prune()
        except MoorageError as error:
            log.warning("usage was not written; gateways tell it again", error=str(error))
        finally:
            self._writing = None

    async def _prune(self) -> None:
        """Once a day: what is older than it is kept goes."""
        today = day_of(self._clock.now())
        if today != self._pruned:
            self._pruned = today
            await self._rows.prune_usage(days_before(today, KEPT_DAYS - 1))


def _row(said: Usage, process: _Process) -> UsageRow:
    return UsageRow(
        gateway=said.gateway or process[0],
        incarnation=said.incarnation or process[1],
        key=said.key,
        namespace=said.namespace,
        endpoint=said.endpoint,
        day=said.day,
        sums=UsageSums(**{name: getattr(said, name) for name in SUMS}),
    )

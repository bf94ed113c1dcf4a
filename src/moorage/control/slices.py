"""Keeps the ledger of limits: takes what gateways say of their limits, and answers with shares that are on disk.

Here: which limits there are, what of the ledger is written down and when, and that only the control plane that leads
answers. Not here: how shares come about (`decide/serving/slices`), how a gateway keeps to them. Called by the
publisher with each report of a gateway.

One small row for each gateway holds what is counted of it. It is written before a larger amount is told, so that a
restart counts at least what was told; smaller amounts follow within seconds. Rows are swapped, never overwritten: a
control plane that lost its lease unnoticed cannot write over its successor's, and tells nothing.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Protocol

from moorage.decide.serving.slices import HOLD_S, Kept, Ledger, Told, Want, outgrown
from moorage.ports import Clock, Store
from moorage.wire.routing import GatewayReport, GatewayReportAnswer, RateLimits, Slice

PREFIX = "slices/"
SHRUNK_S = 5.0
"""A row that says more than is so is corrected no more often than this."""


class Leads(Protocol):
    """Whether this control plane leads."""

    @property
    def certain(self) -> bool:
        """The lease is held, by this process's own clock."""
        ...


Limits = Callable[[str], RateLimits | None]
"""`namespace/NAME`, `key/UID` or `endpoint/UID` -> its limits as they are published now."""


def limit_in(limits: Limits, subject: str, resource: str) -> int | None:
    """The limit of all gateways together; None: there is none. What a key has at an endpoint, the endpoint says."""
    _, at, where = subject.partition("@")
    most: int | None = getattr(limits(where if at else subject), resource, None)
    return most


class Slices:
    """The ledger of one control plane.

    Args:
        store, clock: where rows are; the ledger runs on the clock's monotonic time.
        leads: who may answer.
        limits: as they are published.
    """

    def __init__(self, store: Store, clock: Clock, leads: Leads, limits: Limits) -> None:
        self._store = store
        self._clock = clock
        self._leads = leads
        self._limits = limits
        self._ledger = Ledger()
        self._disk: dict[str, str] = {}
        """gateway -> its row as it was written last"""
        self._shrunk_at: dict[str, float] = {}
        self._read = False
        self._generation, self._loads = 0, 0
        self._lock = asyncio.Lock()

    @property
    def epoch(self) -> str:
        """Which ledger answers: another one after each time that it was read from disk."""
        return f"{self._generation}.{self._loads}"

    async def start(self, generation: int) -> None:
        """Begin a leadership: what is on disk holds, and every gateway counts as heard just now."""
        async with self._lock:
            self._generation, self._loads = generation, 0
            await self._load()

    async def answer(self, report: GatewayReport, answer: GatewayReportAnswer) -> GatewayReportAnswer:
        """The answer with the gateway's share of every limit that it spoke of, on disk.

        It tells none, and no epoch, where this control plane does not surely lead.
        """
        if not self._leads.certain:
            return answer
        if not report.wants and report.gateway not in self._disk:
            self._take(report)  # among how many they are shared; nothing of it can change what is on disk
            return answer
        async with self._lock:
            if not self._read:
                await self._load()
            told, epoch = self._take(report), self.epoch
            if not await self._written(report.gateway) or not self._leads.certain:
                return answer
        slices = tuple(
            Slice(subject=t.subject, resource=t.resource, limit=t.limit, share=t.share)  # type: ignore[arg-type]  # as the gateway spelt it
            for t in told
        )
        return answer.model_copy(update={"slices": slices, "slices_epoch": epoch, "hold_s": HOLD_S})

    def used(self, namespace: str) -> dict[str, int]:
        """What a namespace used of its limits within the last minute, as live gateways say."""
        now = self._clock.monotonic()
        return {
            resource: self._ledger.used(f"namespace/{namespace}", resource, now)
            for resource in ("requests_per_minute", "tokens_per_minute")
        }

    def shares(self, subject: str, resource: str) -> dict[str, int]:
        """By gateway, what is counted of a limit."""
        return self._ledger.shares(subject, resource)

    # --- inside --------------------------------------------------------------------------------------------------

    def _take(self, report: GatewayReport) -> list[Told]:
        return self._ledger.report(
            report.gateway,
            report.incarnation,
            [Want(w.subject, w.resource, w.share, w.used, w.wanted) for w in report.wants],
            lambda subject, resource: limit_in(self._limits, subject, resource),
            self._clock.monotonic(),
            sequence=report.sequence,
            epoch=report.slices_epoch,
            leaving=report.leaving,
        )

    async def _load(self) -> None:
        self._read = False
        rows = await self._store.secrets(PREFIX)
        self._disk = {name.removeprefix(PREFIX): text for name, text in rows.items()}
        self._loads += 1
        kept = {gateway: _kept(text) for gateway, text in self._disk.items()}
        self._ledger.restore(kept, self._clock.monotonic(), self.epoch)
        self._read = True

    async def _written(self, gateway: str) -> bool:
        """See that the disk counts no less than the ledger does; False when another control plane wrote."""
        self._read = False  # until it is known that the disk agrees, also if this is cancelled in the middle
        gone = self._disk.keys() - set(self._ledger.gateways())
        for name in [gateway, *gone]:
            if not await self._swapped(name):
                return False
        self._read = True
        return True

    async def _swapped(self, gateway: str) -> bool:
        before, kept = self._disk.get(gateway), self._ledger.kept(gateway)
        after = None if kept is None else _text(kept)
        if before == after:
            return True
        now = self._clock.monotonic()
        disk = None if before is None else _kept(before)
        if not outgrown(disk, kept) and now - self._shrunk_at.get(gateway, float("-inf")) < SHRUNK_S:
            return True
        self._shrunk_at[gateway] = now
        if not await self._store.swap_secret(PREFIX + gateway, before, after):
            return False
        if after is None:
            del self._disk[gateway]
            del self._shrunk_at[gateway]
        else:
            self._disk[gateway] = after
        return True


def _text(kept: Kept) -> str:
    """A row: deterministic, so that equal amounts are equal rows."""
    return json.dumps(
        {
            "incarnation": kept.incarnation,
            "counted": sorted([*of, amount] for of, amount in kept.counted.items()),
            "left": sorted([*of, amount] for of, amount in kept.left.items()),
            "past": list(kept.past),
        }
    )


def _kept(text: str) -> Kept:
    row = json.loads(text)
    counted, left = ({(s, r): n for s, r, n in row[part]} for part in ("counted", "left"))
    return Kept(row["incarnation"], counted, left, tuple(row["past"]))

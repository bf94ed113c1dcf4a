"""Gateways, the ledger of their limits with a disk, and a network that loses and delays, on clocks of their own."""

import random
from bisect import bisect_left
from dataclasses import dataclass, field

from moorage.decide.serving.slices import HOLD_S, Kept, Ledger, Told, Want, outgrown
from moorage.domain import incarnations
from moorage.gateway.limits import MARGIN_S
from moorage.gateway.spending import REQUESTS, Account, Limit, Permit

SUBJECT = "key/k-1"
WINDOW_S = 60.0
REPORT_TIMEOUT_S = 5.0


@dataclass
class Report:
    """On its way, or processed late."""

    gateway: "SimGateway"
    incarnation: str
    sequence: int
    want: Want
    epoch: str
    sent_at: float
    leaving: bool = False
    lost: bool = False
    arrives_at: float = 0.0


@dataclass
class SimGateway:
    """A gateway as `gateway/limits` behaves, on a clock of its own."""

    id: str
    resource: str
    offset_s: float
    number: int = 0
    alive: bool = True
    cut_off: bool = False
    sequence: int = 0
    outstanding: Report | None = None
    refused: int = 0
    last_sent: float = -100.0
    epoch: str = ""
    heard_at: float = 0.0
    """true time at which the ledger last took a report"""
    table: int | None = None
    """the limit by the table that it took last; None: it takes none"""
    began: float = 0.0
    limit: Limit = field(init=False)
    account: Account = field(init=False)

    def __post_init__(self) -> None:
        self.start(0.0)

    @property
    def incarnation(self) -> str:
        return incarnations.named(int(self.began * 1e9) + self.number, f"{self.number:08x}")

    def local(self, now: float) -> float:
        return now + self.offset_s

    def start(self, now: float) -> None:
        self.number += 1
        self.began = now
        self.alive, self.cut_off = True, False
        self.sequence = self.refused = 0
        self.outstanding, self.epoch = None, ""
        self.limit = Limit(SUBJECT, self.resource, 0, self.local(now))
        self.account = Account((self.limit,))

    def die(self) -> None:
        self.alive = False

    def ask(self, now: float) -> Permit | None:
        """A request comes."""
        permit = Permit(self.account, 0, 0, self.local(now))
        if permit.take(self.local(now)):
            return permit
        self.refused += 1
        return None

    def end(self, permit: Permit, now: float) -> None:
        """A request is over; of a process before this one nothing is known."""
        if permit.account is self.account:
            permit.settle(self.local(now), sent=True, failed=False, usage=None)

    def report(self, now: float, leaving: bool = False) -> Report:
        self.sequence += 1
        self.last_sent = now
        local = self.local(now)
        share = self.limit.share if local < self.limit.known_until and not leaving else 0
        want = Want(SUBJECT, self.resource, share, self.limit.used(local), self.refused)
        return Report(self, self.incarnation, self.sequence, want, self.epoch, now, leaving)

    def take(self, report: Report, told: list[Told], epoch: str) -> None:
        """The answer to the report that it waits for."""
        self.outstanding = None
        self.refused, self.epoch = 0, epoch
        for slice_ in told:
            self.limit.take_share(slice_.share, slice_.limit, self.table)
            self.limit.known_until = self.local(report.sent_at) + HOLD_S - MARGIN_S


class World:
    """Gateways, one ledger with a disk, and a network that loses and delays."""

    def __init__(self, seed: int, resource: str) -> None:
        self.draw = random.Random(seed)
        self.resource = resource
        self.now = 0.0
        self.most = self.draw.choice((1, 2, 3, 7, 50, 400))
        self.limits: list[tuple[float, int]] = [(0.0, self.most)]
        self.gateways = [
            SimGateway(f"g-{n}", resource, self.draw.uniform(0, 1e5)) for n in range(self.draw.randint(1, 5))
        ]
        self.disk: dict[str, Kept] = {}
        self.written_at: dict[str, float] = {}
        self.ledger: Ledger | None = Ledger()
        self.clock_offset_s = 0.0
        self.epochs = 0
        self.up_again_at = 0.0
        self.late: list[Report] = []
        self.admitted: list[float] = []
        self.running: list[tuple[float, SimGateway, Permit]] = []
        self.former: set[Permit] = set()
        """of those that run: admitted when a limit held that was lowered since"""
        self.faults = True
        self.pace = self.draw.choice((1.0, 1.0, 8.0))
        self.slow = self.draw.choice((0.0, 0.05, 0.3))
        self.most_loss = self.draw.choice((0.0, 0.1, 0.5))
        self.busy = self.draw.choice((0.2, 1.0, 5.0))

    # --- the control plane ---

    def ledger_now(self) -> float:
        return self.now + self.clock_offset_s

    def restart_control(self, down_s: float) -> None:
        self.ledger = None
        self.up_again_at = self.now + down_s

    def come_up(self) -> None:
        self.clock_offset_s = self.draw.uniform(0, 1e6)
        self.ledger = Ledger()
        self.epochs += 1
        self.ledger.restore(self.disk, self.ledger_now(), f"{self.epochs}")

    def process(self, report: Report) -> list[Told] | None:
        """As `control/slices` does: on disk before it is told. None: it died in the middle."""
        assert self.ledger is not None
        told = self.ledger.report(
            report.gateway.id,
            report.incarnation,
            [report.want] if not report.leaving or report.want.used else [],
            lambda subject, resource: self.most,
            self.ledger_now(),
            sequence=report.sequence,
            epoch=report.epoch,
            leaving=report.leaving,
        )
        if self.faults and self.draw.random() < 0.002:
            self.restart_control(self.draw.uniform(0.1, 40.0))
            return None
        kept, disk = self.ledger.kept(report.gateway.id), self.disk.get(report.gateway.id)
        stale = self.now - self.written_at.get(report.gateway.id, -100.0) >= 5.0
        if outgrown(disk, kept) or (kept != disk and stale):
            self.written_at[report.gateway.id] = self.now
            if kept is None:
                self.disk.pop(report.gateway.id, None)
            else:
                self.disk[report.gateway.id] = kept
        if self.faults and self.draw.random() < 0.002:
            self.restart_control(self.draw.uniform(0.1, 40.0))
            return None
        if told:
            report.gateway.heard_at = self.now
        return told

    # --- time ---

    def step(self, *, asking: list[SimGateway] | None = None) -> None:
        draw = self.draw
        self.now += draw.choice((0.01, 0.1, 0.3, 0.3, 1.0)) * self.pace
        if self.ledger is None and self.now >= self.up_again_at:
            self.come_up()
        if self.faults:
            self.fault()
        for gateway in self.gateways if asking is None else asking:
            if gateway.alive:
                self.traffic(gateway)
        self.end_requests()
        for gateway in self.gateways:
            if gateway.alive:
                self.exchange(gateway)
        for report in [r for r in self.late if r.arrives_at <= self.now]:
            self.late.remove(report)
            if self.ledger is not None:
                self.process(report)

    def fault(self) -> None:
        draw = self.draw
        gateway = draw.choice(self.gateways)
        chance = draw.random()
        if chance < 0.002:
            gateway.cut_off = not gateway.cut_off
        elif chance < 0.004:
            if gateway.alive:
                gateway.die()
                self.forget_running(gateway)
            else:
                gateway.start(self.now)
        elif chance < 0.005:
            self.leave(gateway)
        elif chance < 0.006 and self.ledger is not None:
            self.restart_control(draw.uniform(0.1, 40.0))
        elif chance < 0.007:
            self.most = draw.choice((1, 2, 3, 7, 50, 400))
            self.limits.append((self.now, self.most))
        elif chance < 0.0075:
            self.now += draw.uniform(100.0, 700.0)  # nothing reports for that long, and nothing is asked
        elif chance < 0.0085:
            self.busy = draw.choice((0.0, 0.2, 1.0, 5.0))

    def leave(self, gateway: SimGateway) -> None:
        """It ends gracefully: nothing of it runs when it says so."""
        if not gateway.alive:
            return
        for _, _, permit in self.forget_running(gateway):
            gateway.end(permit, self.now)
        if self.ledger is not None and not gateway.cut_off and self.draw.random() > self.most_loss:
            self.process(gateway.report(self.now, leaving=True))
        gateway.die()

    def forget_running(self, gateway: SimGateway) -> list[tuple[float, SimGateway, Permit]]:
        """What ran there."""
        gone = [r for r in self.running if r[1] is gateway]
        self.running = [r for r in self.running if r[1] is not gateway]
        return gone

    def traffic(self, gateway: SimGateway) -> None:
        draw = self.draw
        count = int(draw.expovariate(1.0 / self.busy)) if self.busy else 0
        for _ in range(min(count, 30)):
            permit = gateway.ask(self.now)
            if permit is not None:
                self.admitted.append(self.now)
                self.running.append((self.now + draw.choice((0.5, 5.0, 90.0)), gateway, permit))
                self.check()

    def end_requests(self) -> None:
        for ends_at, gateway, permit in self.running:
            if ends_at <= self.now and gateway.alive:
                gateway.end(permit, self.now)
        self.running = [r for r in self.running if r[0] > self.now]

    def exchange(self, gateway: SimGateway) -> None:
        draw = self.draw
        waiting = gateway.outstanding
        if waiting is not None:
            if self.now - waiting.sent_at > REPORT_TIMEOUT_S:
                gateway.outstanding = None
            elif not gateway.cut_off and self.ledger is not None and draw.random() < 0.7 and not waiting.lost:
                epoch, told = self.ledger.epoch, self.process(waiting)
                waiting.lost = True  # processed: it cannot come again
                if told is not None and (not self.faults or draw.random() >= self.most_loss):
                    gateway.take(waiting, told, epoch)
            return
        interval_s = 0.3 if gateway.refused else 1.0
        if self.now - gateway.last_sent >= interval_s:
            report = gateway.report(self.now)
            if self.faults and not gateway.cut_off and draw.random() < self.slow:
                report.arrives_at = self.now + draw.uniform(REPORT_TIMEOUT_S, 40.0)
                self.late.append(report)  # nobody reads its answer
                report.lost = True
                gateway.outstanding = report
                return
            report.lost = gateway.cut_off or (self.faults and draw.random() < self.most_loss)
            gateway.outstanding = report

    # --- what must hold ---

    def bound(self) -> int:
        """The highest limit that a gateway may still keep to: one that is cut off hears of no change."""
        since = self.now - WINDOW_S - HOLD_S
        return max(
            [most for at, most in self.limits if at >= since]
            + [[m for at, m in self.limits if at <= since or at == 0.0][-1]]
        )

    def check(self) -> None:
        if self.resource == REQUESTS:
            seen = len(self.admitted) - bisect_left(self.admitted, self.now - WINDOW_S)
            assert seen <= self.bound(), f"{seen} admitted within 60 s by {self.now}"
        else:
            # What a gateway still runs that the ledger gave up after the hold is not counted: see the decision.
            seen = sum(1 for _, g, p in self.running if self.now - g.heard_at < HOLD_S and p not in self.former)
            assert seen <= self.bound(), f"{seen} in flight at {self.now}"


class Lowered(World):
    """One whose limit is lowered: gateways hear of it at different times by their tables, the ledger at once."""

    def __init__(self, seed: int, resource: str, lower: int) -> None:
        super().__init__(seed, resource)
        self.pace, self.lower = 1.0, lower
        self.most = max(self.most, lower)
        self.limits = [(0.0, self.most)]
        self.hears_at = {gateway.id: float("inf") for gateway in self.gateways}
        for gateway in self.gateways:
            gateway.table = self.most

    def fault(self) -> None:
        """Those that cut nobody off for long."""
        draw = self.draw
        gateway, chance = draw.choice(self.gateways), draw.random()
        if chance < 0.01:
            if gateway.alive:
                gateway.die()
                self.forget_running(gateway)
            else:
                gateway.start(self.now)
        elif chance < 0.015:
            self.leave(gateway)
        elif chance < 0.02 and self.ledger is not None:
            self.restart_control(draw.uniform(0.1, 40.0))

    def lower_it(self) -> None:
        self.most = self.lower
        self.hears_at = {gateway.id: self.now + self.draw.uniform(0.0, 20.0) for gateway in self.gateways}

    def take_tables(self) -> bool:
        """Whether all have heard."""
        for gateway in self.gateways:
            if self.now >= self.hears_at[gateway.id] and gateway.table != self.lower:
                gateway.table = self.lower
                gateway.limit.set_most(self.lower)
        return all(gateway.table == self.lower for gateway in self.gateways)

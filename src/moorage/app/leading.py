"""The loops that run while a control plane leads, built from what it shares with its API. Called by `server.build`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx

from moorage.clock import SystemClock
from moorage.control.claims import ClaimAsking
from moorage.control.comparing import Comparing
from moorage.control.leader import Leadership
from moorage.control.loops import Loops
from moorage.control.machines import MachinesStep
from moorage.control.routing import Publisher
from moorage.control.running import RunsStep
from moorage.control.scheduling import SchedulingStep
from moorage.control.serving import ServingStep
from moorage.control.upstreams import UpstreamsStep
from moorage.control.work import WorkBoard
from moorage.decide.decision import Ids
from moorage.decide.running.liveness import LeaseTimes
from moorage.ports import Store


@dataclass(frozen=True, slots=True)
class Parts:
    """What the loops share with the rest of the process.

    Args:
        http: for adopted servers; `direct`: for our own, with its own limits.
    """

    store: Store
    clock: SystemClock
    ids: Ids
    publisher: Publisher
    board: WorkBoard
    scheduling: SchedulingStep
    leadership: Leadership
    claims: ClaimAsking
    http: httpx.AsyncClient
    direct: httpx.AsyncClient


def loops_of(times: LeaseTimes, parts: Parts, check: Callable[[], Awaitable[object]]) -> Loops:
    """The loops.

    Args:
        times: of machines.
        check: awaited once at the start of a leadership.
    """
    store, clock, ids, publisher = parts.store, parts.clock, parts.ids, parts.publisher
    return Loops(
        store,
        clock,
        publisher=publisher,
        board=parts.board,
        serving=ServingStep(store, clock, ids, publisher, lambda: parts.leadership.lease),
        runs=RunsStep(store, clock, ids),
        scheduling=parts.scheduling,
        machines=MachinesStep(store, clock, times),
        upstreams=UpstreamsStep(
            store, clock, parts.http, traffic=publisher, claims=parts.claims, new_id=lambda: ids.new("Operation")
        ),
        comparing=Comparing(store, clock, parts.direct, publisher),
        ttl_s=times.ttl_s,
        check=check,
    )

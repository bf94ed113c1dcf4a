"""Commands run beside workers: two connections put together, the caller's and that of the worker's machine.

Agents pull, so the wish travels with the machine's next `Work`, and its agent connects out to `/agent/exec/{id}`; from
then on every message is passed on as it is. One is in hand at a time in each direction, and both ends keep to a window
(`wire/exec.py`), so nothing piles up here. Every wish is written into the worker's history before it leaves. Called by
the API's routes, and by whatever builds `Work` (`pending`, `sent`).
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from moorage.domain.changes import Change, Update
from moorage.domain.errors import Conflict, InvalidSpec, MoorageError, NotFound, StaleVersion, Unavailable
from moorage.domain.nouns import Machine, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import WorkerState
from moorage.ports import Clock, Store
from moorage.wire import exec as wire
from moorage.wire.agent import ExecRequest
from moorage.wire.exec import ExecOrder

CONNECT_S = 30.0
"""A machine whose agent polls connects within a round trip or two."""
RESEND_S = 3.0
TRIES = 20
ABILITY = "exec"
"""What agents that can do it say of themselves."""
LISTED = 10
TOLD_MAX = 1000
"""Characters of a command in a worker's history."""
RUNS_NOW = frozenset({WorkerState.STARTING, WorkerState.RUNNING, WorkerState.STALE, WorkerState.STOPPING})


class End(Protocol):
    """One end of a connection."""

    async def receive(self) -> bytes | None:
        """The next message; None once it is closed."""
        ...

    async def send(self, message: bytes) -> None:
        """Pass one on; returns once it is taken."""
        ...


def _nobody(machine: str) -> None:
    """Nobody listens yet."""


@dataclass(slots=True)
class _Wish:
    machine: str
    request: ExecRequest
    connected: "asyncio.Future[End]"
    over: asyncio.Event = field(default_factory=asyncio.Event)
    sent_at: float | None = None


class ExecRelay:
    """Puts callers and machines together.

    Args:
        store: where workers are, and their histories.
        clock: time-outs.
        new_id: unguessable ids.

    Attributes:
        on_change: called with a machine's uid when somebody wants something of it, to end its long-poll.
    """

    def __init__(self, store: Store, clock: Clock, new_id: Callable[[], str]) -> None:
        self.on_change: Callable[[str], None] = _nobody
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._wishes: dict[str, _Wish] = {}

    def pending(self, machine: str) -> tuple[ExecRequest, ...]:
        """What the machine's next `Work` should carry."""
        now = self._clock.monotonic()
        return tuple(
            wish.request
            for wish in self._wishes.values()
            if wish.machine == machine
            and not wish.connected.done()
            and (wish.sent_at is None or now - wish.sent_at >= RESEND_S)
        )

    def sent(self, ids: Iterable[str]) -> None:
        """These are on their way."""
        now = self._clock.monotonic()
        for uid in ids:
            if wish := self._wishes.get(uid):
                wish.sent_at = now

    async def attach(self, machine: str, uid: str, end: End) -> bool:
        """The machine's agent has connected; returns when its connection is needed no more.

        Returns:
            False: nobody wants it (any more).
        """
        wish = self._wishes.get(uid)
        if wish is None or wish.machine != machine or wish.connected.done():
            return False
        wish.connected.set_result(end)
        await wish.over.wait()
        return True

    async def find(self, namespace: str, name: str) -> Worker:
        """The worker of that uid, or the one that runs under that name: names are alike from run to run.

        Raises:
            NotFound: there is none.
            InvalidSpec: several run under it.
        """
        named = await self._store.find(Worker, namespace=namespace, name=name)
        running = [w for w in named if w.state in RUNS_NOW]
        if len(running) > 1:
            ids = ", ".join(w.uid for w in running[:LISTED])
            raise InvalidSpec(
                f"{len(running)} workers called {name} run in namespace {namespace}",
                remedy=f"name the run, as in RUN/{name}, or one by its id: {ids}",
                code="ambiguous",
            )
        found = running[0] if running else max(named, key=lambda w: w.created_at, default=None)
        row = found or await self._store.get(Worker, name)
        if row is None or row.namespace != namespace:
            raise NotFound(f"there is no worker {namespace}/{name}", remedy="see `moor ls` and `moor workers RUN`")
        return row

    async def carry(self, worker: Worker, order: ExecOrder, caller: End, actor: str) -> None:
        """Run a command beside a worker for a caller, until it has ended or one of both has gone.

        Raises:
            Conflict: the worker does not run (`not_running`).
            Unavailable: its machine did not connect in time (`machine_silent`).
        """
        machine = await self._machine_of(worker)
        await self._note(worker, order, actor)
        fields = order.model_dump()
        request = ExecRequest(id=self._new_id(), worker=worker.uid, epoch=worker.epoch, **fields)
        wish = _Wish(machine.uid, request, asyncio.get_running_loop().create_future())
        self._wishes[request.id] = wish
        try:
            await _pump(caller, await self._connected(wish, machine.name))
        finally:
            del self._wishes[request.id]
            wish.over.set()

    async def _machine_of(self, worker: Worker) -> Machine:
        if worker.state not in RUNS_NOW or worker.machine is None:
            why = f": {worker.reason.message}" if worker.reason else ""
            raise Conflict(
                f"{worker.name} is {worker.state}, and only beside a running worker a command can be run{why}",
                remedy=f"see moor why {worker.name}",
                target=f"Worker {worker.name}",
                code="not_running",
            )
        machine = await self._store.get(Machine, worker.machine)
        if machine is None:
            raise Unavailable(f"the machine of {worker.name} is not known any more", code="machine_silent")
        if ABILITY not in machine.capabilities:
            raise Conflict(
                f"the agent of {machine.name} is of a version that cannot run commands beside workers",
                remedy="bring that agent up to date; its workers go on meanwhile",
                target=f"Machine {machine.name}",
                code="not_supported",
            )
        return machine

    async def _note(self, worker: Worker, order: ExecOrder, actor: str) -> None:
        """Into its history: who runs what. A row that moved on meanwhile is read again."""
        text = " ".join(order.command)
        said = reason("exec.started", who=actor, command=text if len(text) <= TOLD_MAX else f"{text[:TOLD_MAX]}…")
        row: Worker | None = worker
        for _ in range(TRIES):
            if row is None:
                raise Conflict(f"{worker.name} was deleted", code="not_running")
            try:
                await self._store.commit(Change((Update(Worker.kind, row.uid, row.version, notes=(said,)),), actor))
                return
            except StaleVersion:
                row = await self._store.get(Worker, worker.uid)
        raise Unavailable(f"{worker.name} changes too often to note anything of it", code="busy")

    async def _connected(self, wish: _Wish, called: str) -> End:
        until = self._clock.monotonic() + CONNECT_S
        self.on_change(wish.machine)
        while not wish.connected.done():
            left_s = until - self._clock.monotonic()
            if left_s <= 0:
                asked = "was asked and did not connect" if wish.sent_at is not None else "did not ask for work"
                wish.connected.cancel()
                raise Unavailable(
                    f"machine {called} {asked} within {CONNECT_S:g} s",
                    remedy=f"see whether its agent runs and reaches the server: moor get machine {called}",
                    target=f"Machine {called}",
                    code="machine_silent",
                )
            pause = asyncio.ensure_future(self._clock.sleep(min(left_s, RESEND_S)))
            facts: set[asyncio.Future[Any]] = {wish.connected, pause}
            try:
                await asyncio.wait(facts, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
            if not wish.connected.done():
                self.on_change(wish.machine)
        return wish.connected.result()


async def _pump(caller: End, machine: End) -> None:
    """Both ways, until either has gone. What the machine said last is passed on before that."""
    down = asyncio.create_task(_pass_on(machine, caller))
    up = asyncio.create_task(_pass_on(caller, machine))
    try:
        await asyncio.wait({down, up}, return_when=asyncio.FIRST_COMPLETED)
        if down.done() and not down.result():
            cut = Unavailable("the connection to its machine was lost; what ran there is ended", code="connection_lost")
            await caller.send(wire.told(error=cut.to_wire()))
    finally:
        for task in (down, up):
            task.cancel()
        await asyncio.gather(down, up, return_exceptions=True)


async def _pass_on(source: End, sink: End) -> bool:
    """Every message as it is; whether the last one said how the command ended."""
    told_end = False
    while (message := await source.receive()) is not None:
        channel, content = wire.read(message)
        if channel == wire.TOLD:
            news = wire.news_of(content)
            told_end = told_end or "exit" in news or "error" in news
        await sink.send(message)
    return told_end


def as_error(cause: MoorageError) -> bytes:
    """A failure as a message."""
    return wire.told(error=cause.to_wire())

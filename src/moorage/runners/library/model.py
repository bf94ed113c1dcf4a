"""One model: its way through the RUNNER table, its restarts, its port and its log.

Every change of state goes through `Standing.move`, which checks the table first. One task, the keeper, pulls, starts,
watches and restarts; `stop` writes `stopping` before anything else and ends the keeper before it ends the server, so
that nobody restarts what is being stopped. Only `runner.py` calls this.
"""

import asyncio
import contextlib
from collections.abc import Awaitable

from moorage.domain.errors import ModelShutdown, PortUnavailable, RunnerError
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import RunnerState as S
from moorage.runners.library import attempt
from moorage.runners.library.attempt import Ending
from moorage.runners.library.failing import error_of, error_reason, exhausted, not_started
from moorage.runners.library.logs import ModelLog
from moorage.runners.library.parts import Parts, intent
from moorage.runners.library.settings import signal_number
from moorage.runners.library.spec import ModelSpec
from moorage.runners.library.standing import Standing
from moorage.runners.library.views import ModelInfo
from moorage.runners.port import Host, Hosted, LaunchIntent, PullProgress
from moorage.runners.progress import Progress
from moorage.runners.readiness import ReadinessCheck

DRAIN_PAUSE_S = 0.02
STARTING = (S.PULLING, S.LOADING)


class Model:
    """A model that the runner knows, from its first start until it is forgotten.

    Args:
        name: what it is called.
        spec: what it is; may be replaced while it is stopped.
        parts: shared by the runner's models.
    """

    def __init__(self, name: str, spec: ModelSpec, parts: Parts) -> None:
        self.name = name
        self.spec = spec
        self.log = ModelLog()
        self._parts = parts
        self._now = Standing(name, parts)
        self._port: int | None = None
        self._starts = 0
        self._stops = 0
        self._ready_at = 0.0
        self._hosted: Hosted | None = None
        self._beginning: asyncio.Future[Hosted] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._flight: asyncio.Task[None] | None = None
        self._flight_stops = 0
        self._halting: asyncio.Task[None] | None = None
        self._error: RunnerError | None = None
        self._chores: set[asyncio.Task[None]] = set()

    # What is known

    @property
    def state(self) -> S:
        """Its state."""
        return self._now.state

    @property
    def base_url(self) -> str:
        """`http://HOST:PORT`."""
        return f"http://{self._parts.settings.host}:{self._port}"

    def info(self) -> ModelInfo:
        """All that is known of it now."""
        now, hosted = self._now, self._hosted
        known = hosted.identity if hosted is not None and not hosted.gone.done() else None
        return ModelInfo(
            name=self.name,
            state=now.state,
            since=now.since,
            reason=now.reason,
            runner=self.spec.runner,
            port=self._port,
            address=self.base_url if self._port is not None else None,
            pid=known.pid or None if known else None,
            restarts=0 if self._ran_long() else now.restarts,
            restart_limit=self._limit,
            next_restart_at=now.next_restart_at,
            last_failure=now.last_failure,
            pulled=now.pulled,
        )

    async def until_running(self) -> None:
        """Wait through a start or restart that is under way.

        Raises:
            RunnerError: it is not running, and nothing is under way that would change that.
        """
        while self.state in STARTING:
            await self._now.next_change()
        if self.state != S.RUNNING:
            raise self._why_not()

    def _why_not(self) -> RunnerError:
        if self._parts.closed:
            return ModelShutdown("the runner was shut down", target=self.name, remedy="make a new ModelRunner")
        if self.state == S.ERROR and self._error is not None:
            return exhausted(self._error) if self._now.restarts >= self._limit else self._error.with_traceback(None)
        return not_started(self.name, self._now)

    # Starting

    async def start(self) -> None:
        """Have it running. Any number of these at once are one start.

        Raises:
            RunnerError: it did not get there.
        """
        if self._flight is None or self._flight.done() or self._flight_stops != self._stops:
            self._flight_stops = self._stops
            self._flight = asyncio.ensure_future(self._start())
            self._flight.add_done_callback(_seen)
        await asyncio.shield(self._flight)

    async def _start(self) -> None:
        if self._halting is not None:
            await asyncio.shield(self._halting)
        stops, ready_times = self._stops, self._now.ready_times
        if self.state == S.RUNNING:
            sick = await self._sickness()
            if sick is None or self._stops != stops:
                return
            await self._halt(sick)
        if self._stops == stops and self.state in (S.STOPPED, S.ERROR):
            await self._begin(stops)
        while self.state in STARTING and self._stops == stops:
            await self._now.next_change()
        if self._stops != stops:
            raise self._why_not()
        if self.state != S.RUNNING and self._now.ready_times == ready_times:
            raise self._error if self.state == S.ERROR and self._error is not None else self._why_not()

    async def _sickness(self) -> Reason | None:
        """Why its server cannot serve now, or None."""
        wanted = attempt.ready_wanted(self._parts, self.spec)
        if wanted is None:
            return None
        quick = wanted.model_copy(update={"request": None})
        check = ReadinessCheck(quick, self.base_url, self._parts.probes, self._parts.clock, Progress)
        return (await check.look()).why

    async def _begin(self, stops: int) -> None:
        """A start from rest."""
        if self._keeper is not None:
            await asyncio.wait({self._keeper})
        if self._parts.closed or self._stops != stops:
            raise self._why_not()
        self._error = None
        self._now.restarts = 0
        if self.spec.runner == "process":
            self._now.move(S.LOADING, "load", reason("container.started"))
        else:
            self._now.move(S.PULLING, "pull", reason("image.pulling", image=self.spec.image, done=0, total=0))
        self._keeper = asyncio.ensure_future(self._keep())
        self._keeper.add_done_callback(_seen)

    # The keeper

    async def _keep(self) -> None:
        """1 fetch · 2 start · 3 wait until it is ready · 4 wait until it ends · 5 again, or not."""
        try:
            host = await self._parts.engines.get(self.spec.runner)
            if self.state == S.PULLING:
                await self._pull(host)
            hosted: Hosted | None = None
            while True:
                hosted = self._take(hosted) if hosted is not None else await self._launch(host)
                ending = await self._serve(hosted)
                if not await self._go_on(hosted, ending):
                    return
                hosted = attempt.successor_of(hosted)
        except RunnerError as cause:
            self._give_up(cause, "failed", error_reason(cause))

    async def _pull(self, host: Host) -> None:
        await host.prepare(self._intent(self._lease()), self._on_pull)
        self._now.pulled = None
        self._now.move(S.LOADING, "load", reason("container.started"))

    def _on_pull(self, at: PullProgress) -> None:
        self._now.pulled = (at.done, at.total)
        self._now.reason = reason("image.pulling", image=at.image, done=at.done, total=at.total)

    def _lease(self) -> int:
        self._port = self._parts.ports.lease(self.name, self.spec.port)
        return self._port

    def _intent(self, port: int) -> LaunchIntent:
        return intent(self._parts, self.name, self.spec, port, self._starts + 1)

    async def _launch(self, host: Host) -> Hosted:
        """Start it on its port; on another one where a stranger has sat down there and does not leave."""
        clock = self._parts.clock
        deadline = clock.monotonic() + self._parts.settings.port_drain_timeout if self._now.restarts else 0.0
        while True:
            try:
                return await self._order(host, self._intent(self._lease()))
            except PortUnavailable:
                if clock.monotonic() < deadline:
                    await clock.sleep(DRAIN_PAUSE_S)
                elif self.spec.port is not None:
                    raise
                else:
                    self._port = self._parts.ports.move(self.name)

    async def _order(self, host: Host, wanted: LaunchIntent) -> Hosted:
        self._starts += 1
        # Shielded: whoever cancels the keeper must learn what was started, to end it.
        self._beginning = asyncio.ensure_future(host.start(wanted))
        hosted = await asyncio.shield(self._beginning)
        self._beginning = None
        self.log.begin(hosted)
        return self._take(hosted)

    def _take(self, hosted: Hosted) -> Hosted:
        self._hosted = hosted
        if self._delay == 0:
            attempt.grant(hosted, int(self._now.restarts < self._limit), always=self._always)
        return hosted

    async def _serve(self, hosted: Hosted) -> Ending:
        """From the order to the end."""
        unready = await attempt.until_ready(self._parts, self.spec, hosted, self.base_url, self._on_waiting)
        if unready is not None:
            attempt.grant(hosted, 0, always=False)
            await self._end(hosted)
            return Ending(unready)
        if not hosted.exited.done():
            self._ready_at = self._parts.clock.monotonic()
            self._now.ready_times += 1
            asked = self.spec.ready_path is not None
            why = reason("ready.passed", model=self.spec.model) if asked else reason("container.running")
            self._now.move(S.RUNNING, "ready", why)
            if self._starts > 2:
                self._do(self.log.tidy())
        return attempt.how_it_ended(await asyncio.shield(hosted.exited))

    def _on_waiting(self, why: Reason) -> None:
        self._now.reason = why

    async def _go_on(self, hosted: Hosted, ending: Ending) -> bool:
        """What follows an end that nobody asked for; False when nothing does."""
        if ending.in_order and not self._always:
            await asyncio.shield(hosted.gone)
            self._now.move(S.STOPPED, "exited_zero", ending.why)
            return False
        now, clock = self._now, self._parts.clock
        at = clock.now()
        if ending.hopeless:
            now.last_failure = attempt.failure_of(ending, at, await attempt.last_words(hosted))
            self._give_up(error_of(self.name, ending, now.last_failure), "failed", ending.why)
            return False
        if self._ran_long():
            now.restarts = 0
        if now.restarts >= self._limit:
            now.last_failure = attempt.failure_of(ending, at, await attempt.last_words(hosted))
            await asyncio.shield(hosted.gone)
            spent = reason("restart.exhausted", n=now.restarts, limit=self._limit)
            self._give_up(error_of(self.name, ending, now.last_failure), "restarts_exhausted", spent)
            return False
        now.restarts += 1
        now.next_restart_at = at + self._delay if self._delay else None
        now.last_failure = attempt.failure_of(ending, at, "")
        self._now.move(S.LOADING, "restart", ending.why)
        self._do(self._remember_words(hosted, ending, at))
        await asyncio.shield(hosted.gone)
        if self._delay:
            await clock.sleep(self._delay)
            now.next_restart_at = None
        return True

    async def _remember_words(self, hosted: Hosted, ending: Ending, at: float) -> None:
        """Read beside the restart, which does not wait for it."""
        words = await attempt.last_words(hosted)
        if self._now.last_failure is not None and self._now.last_failure.at == at:
            self._now.last_failure = attempt.failure_of(ending, at, words)

    def _give_up(self, error: RunnerError, trigger: str, why: Reason) -> None:
        self._error = error
        self._now.move(S.ERROR, trigger, why)

    # Stopping

    async def stop(self) -> S:
        """Have it stopped, whatever it is doing; its state before."""
        previous = self.state
        self._stops += 1
        if previous != S.STOPPED:
            await self._halt(reason("stop.default"))
        elif self._halting is not None:
            await asyncio.shield(self._halting)
        return previous

    async def _halt(self, why: Reason) -> None:
        if self._halting is None:
            if self.state != S.STOPPING:
                self._now.move(S.STOPPING, "stop", why)
            self._halting = asyncio.ensure_future(self._bring_down())
            self._halting.add_done_callback(_seen)
        await asyncio.shield(self._halting)

    async def _bring_down(self) -> None:
        try:
            if self._keeper is not None:
                self._keeper.cancel()
                await asyncio.wait({self._keeper})
            hosted = await self._begun() or self._hosted
            while hosted is not None:
                await self._end(hosted)
                # A shim may have restarted it just before it read the order, which then was the next one's.
                hosted = attempt.successor_of(hosted)
            await self._drain_port()
            self._now.next_restart_at = self._now.pulled = None
            self._now.move(S.STOPPED, "stopped", reason("stop.confirmed"))
        finally:
            self._halting = None

    async def _begun(self) -> Hosted | None:
        """What was on its way when the keeper was cancelled."""
        beginning, self._beginning = self._beginning, None
        if beginning is None:
            return None
        with contextlib.suppress(RunnerError):  # then nothing was started, which is as well
            hosted = await beginning
            self._hosted = hosted
            self.log.begin(hosted)
            return hosted
        return None

    async def _end(self, hosted: Hosted) -> None:
        settings, spec = self._parts.settings, self.spec
        process = spec.runner == "process"
        name = spec.stop_signal or (settings.stop_signal if process else "SIGTERM")
        grace = settings.shutdown_timeout if process else settings.port_drain_timeout
        grace = grace if spec.stop_timeout is None else spec.stop_timeout
        await hosted.stop(signal_number(name), grace)
        await asyncio.shield(hosted.gone)

    async def _drain_port(self) -> None:
        """Wait until nobody listens there; a stranger who has sat down meanwhile is not waited for longer."""
        clock, port = self._parts.clock, self._port
        if port is None:
            return
        deadline = clock.monotonic() + self._parts.settings.port_drain_timeout
        while not self._parts.ports.free(port) and clock.monotonic() < deadline:
            await clock.sleep(DRAIN_PAUSE_S)

    async def forget(self) -> None:
        """After the last stop: end what still runs beside it."""
        tasks = [t for t in (self._flight, self._keeper, *self._chores) if t is not None and not t.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._hosted is not None:
            await attempt.collect(self._hosted)
            self._hosted.close()
        self._parts.ports.give_back(self.name)

    # Settings of this model

    def _ran_long(self) -> bool:
        ran = self._parts.clock.monotonic() - self._ready_at
        return self.state == S.RUNNING and ran >= self._parts.settings.restart_reset

    @property
    def _limit(self) -> int:
        own = self.spec.restart_limit
        return self._parts.settings.restart_limit if own is None else own

    @property
    def _delay(self) -> float:
        own = self.spec.restart_delay
        return self._parts.settings.restart_delay if own is None else own

    @property
    def _always(self) -> bool:
        return (self.spec.restart_on or self._parts.settings.restart_on) == "always"

    def _do(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._chores.add(task)
        task.add_done_callback(self._chores.discard)
        task.add_done_callback(_seen)


def _seen(task: "asyncio.Task[None]") -> None:
    """An error of a task that several may wait for, or nobody any more, is not reported a second time by the loop."""
    if not task.cancelled():
        task.exception()

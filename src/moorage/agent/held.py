"""One worker on this machine, from pick-up to proof that its process tree is gone.

A `HeldWorker` starts or adopts one process, watches it to its end and stops it: because the control plane asks for
that, or at a limit that this machine keeps itself. What is known and told is in `account`, the way to the start in
`preparing`, its server in `serving`. What should run is not decided here (see `desired.py`), nor what a failure leads
to (the control plane's business).
"""

import asyncio
import math
import signal as signals
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from moorage.agent import certificates, launching, setting_up, words
from moorage.agent.account import Account
from moorage.agent.barrier import Barrier
from moorage.agent.beats import ProgramBeat
from moorage.agent.ledger import Attempt
from moorage.agent.limits import until
from moorage.agent.means import Means
from moorage.agent.preparing import Preparation
from moorage.agent.serving import watch_server
from moorage.domain.errors import RunnerError
from moorage.domain.reasons import Reason, reason
from moorage.runners.identity import Exit
from moorage.runners.port import Hosted
from moorage.wire.agent import Assignment, Held, StepReport, Stop

ENGINE_RETRY_S = 2.0
UNKILLABLE_AFTER_S = 30.0
"""After the kill of a stop: a tree that is still there then hangs in the kernel, and is told so."""
DISCONNECTED = "disconnected"
"""Cause of a stop that this machine decides on itself because the control plane is away (`on_disconnect: stop`)."""


class HeldWorker:
    """One attempt in this machine's hands.

    Args:
        attempt: as the ledger has it.
        means: what is shared.
        on_change: called when it may have become gone or settled, so that the desired set is looked at again.
    """

    def __init__(self, attempt: Attempt, means: Means, on_change: Callable[[], None]) -> None:
        self.account = Account(attempt, means)
        self.process: Hosted | None = None
        self.born = True
        self._means = means
        self._on_change = on_change
        self._stop = Stop.model_validate_json(attempt.stop) if attempt.stop else None
        self._barrier = Barrier(self.account.assignment)
        self._beat: ProgramBeat | None = None
        self._preparation: Preparation | None = None
        self._kept: set[asyncio.Task[None]] = set()
        self._guards: set[asyncio.Task[None]] = set()
        self._unproven = False
        self._task: asyncio.Task[None] | None = None

    # Seen from outside

    @property
    def attempt(self) -> Attempt:
        """As it is in the ledger, or about to be."""
        return self.account.attempt

    @property
    def assignment(self) -> Assignment:
        """What was asked for."""
        return self.account.assignment

    @property
    def folder(self) -> Path:
        """Its own directory."""
        return self.account.folder

    @property
    def waits_for_go(self) -> bool:
        """Whether it is kept back by the barrier of its gang, now or once it comes there."""
        return not self._barrier.open and not self.attempt.gone

    @property
    def seen_alive(self) -> bool:
        """An observation of the process itself, made now."""
        return self.process is not None and self.process.alive and self.process.seen_alive()

    def beat_age_s(self) -> float | None:
        """Seconds since its program last beat through its heartbeat file; None where it does not do so."""
        if self._beat is None:
            file = setting_up.exchange(self.folder, self.account.launch) / launching.HEARTBEAT_FILE
            self._beat = ProgramBeat(file, self._means.clock, self.attempt.started)
        return self._beat.age_s()

    def to_held(self) -> Held:
        """As reconciling reports it."""
        return self.account.held(self.process)

    # Commands

    def begin(self) -> None:
        """Set it up and start it."""
        self._guard_contact(self._means.clock.monotonic())
        self._run(self._begin())

    async def resume(self) -> None:
        """Find its process again after a restart of the agent; returns once what is on disk was understood."""
        attempt, ports = self.attempt, self._means.ports
        if attempt.gone:
            return
        if attempt.port is not None:
            ports.hold(attempt.port, attempt.worker)
        if attempt.rendezvous is not None:
            ports.hold(attempt.rendezvous, f"{attempt.worker}/rendezvous")
        await self._means.relays.resume(attempt.worker, self.folder)
        try:
            self._recalled(await self._find_again())
        except RunnerError as cause:
            # Nothing is proven while its engine is away, so it counts as held, and is asked about until it is known.
            self._unproven = True
            self.account.log.warning("cannot be looked for yet", why=cause.message)
            self._keep(self._resume_later())

    async def _find_again(self) -> Hosted | None:
        host = await self._means.engines.get(self.account.launch.runner)
        return await host.adopt(self.folder, self.attempt.cookie)

    async def _resume_later(self) -> None:
        while self._unproven:
            await self._means.clock.sleep(ENGINE_RETRY_S)
            try:
                process = await self._find_again()
            except RunnerError:
                continue
            self._unproven = False
            self._recalled(process)
            self._on_change()

    def _recalled(self, process: Hosted | None) -> None:
        """What an earlier agent left: a process, or (None) something that was never executed and may be yet."""
        if process is None:
            self.born = False
            self.account.log.info("never started, may be started again", evidence="proven never to have been executed")
            if self._stop is not None:
                self._confirm_unborn(self._stop)
            return
        self.process = process
        pid = process.identity.pid if process.identity else None
        self.account.log.info("adopted", alive=process.alive, pid=pid, evidence=process.evidence)
        self._guard_contact(-math.inf if self.attempt.started is None else self.attempt.started)
        self._run(self._see_through(process, adopted=True))
        if self._stop is not None:
            self._keep(self._send_stop(process, self._stop))
        elif self.account.ended:  # it was given up, and the agent died before it could say so to what executes it
            own = self._own_stop("default")
            self._keep(process.stop(signal_number(own.signal), own.grace_s))

    def go(self, assignment: Assignment) -> None:
        """The barrier of its gang is open."""
        self._barrier.go(assignment)

    def stop(self, stop: Stop) -> None:
        """Ask for its end; again only shortens the grace."""
        if self.attempt.gone:
            return
        if self._stop != stop:
            self._stop = stop
            self.account.set(stop=stop.model_dump_json())
            self._keep(self.account.save())
            self.account.log.info("stopping", cause=stop.cause, grace_s=stop.grace_s)
        if self._preparation is not None:
            self._preparation.cancel()
        if self.process is not None:
            self._keep(self._send_stop(self.process, stop))
        elif not self.born:
            self._confirm_unborn(stop)

    def drain(self, machine: str, grace_s: float | None = None) -> None:
        """Stop it because this agent goes away with its workers; reported from here, nobody asked for it."""
        if self.attempt.gone or self._stop is not None:
            return
        stop = self._own_stop("machine_drain")
        if grace_s is not None:
            stop = stop.model_copy(update={"grace_s": grace_s})
        self._stop_here(stop, reason("stop.drain", machine=machine))

    async def close(self) -> None:
        """Let go of it without touching it."""
        for task in (*self._guards, *([self._task] if self._task is not None else ())):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self.process is not None:
            self.process.close()

    # Its life

    async def _begin(self) -> None:
        if self._stop is not None:
            self._confirm_unborn(self._stop)
            return
        problem = launching.missing_source(self.assignment)
        if problem is not None:
            source = self.account.launch.source
            self._fail_unborn(reason("model.fetch_failed", error=problem, permanent=True, source=source))
            return
        try:
            process = await self._launch()
        except (RunnerError, OSError) as cause:
            self._fail_unborn(setting_up.why_not(cause, self.account.launch))
            return
        if process is None:
            self._confirm_unborn(self._stop)
            return
        self.process = process
        if self._stop is not None:
            await self._send_stop(process, self._stop)
        await self._see_through(process, adopted=False)

    async def _launch(self) -> Hosted | None:
        """Set it up and start it; None: it was asked to stop before anything was started."""
        self._preparation = Preparation(self.account, self._means, self._barrier)
        try:
            start = await self._preparation.done()
        finally:
            self._preparation = None
        if start is None or self._stop is not None:
            return None
        return await start.host.start(start.intent)

    async def _see_through(self, process: Hosted, *, adopted: bool) -> None:
        if not await self._came_up(process):
            return
        if process.alive and not self.account.ended:
            if not adopted:  # an engine may have taken its time over the order
                self.account.set(started=self._means.clock.monotonic())
            self.account.running(process)
            if self._stop is None:
                self._guard(self._watch(process, ready=adopted and self.attempt.ready))
                self._guard(self._keep_time())
                if self.account.launch.identity:
                    folder = setting_up.exchange(self.folder, self.account.launch) / certificates.FOLDER
                    self._guard(certificates.keep_fresh(self.account, folder, self._means.desk, self._means.clock))
        await asyncio.wait({process.exited})
        await self._finish(process, process.exited.result())

    async def _came_up(self, process: Hosted) -> bool:
        limit = self.account.launch.start_timeout_s
        done, _ = await asyncio.wait({process.running}, timeout=limit)
        if done:
            return True
        await process.stop(signals.SIGKILL, 0.0)
        self.account.failed(reason("start.timed_out", d=limit), process)
        await self._await_gone(process)
        return False

    async def _finish(self, process: Hosted, how: Exit) -> None:
        """The command has ended: say so at once, then prove that nothing of it is left."""
        self._end_guards()
        stopped = self._stop is not None and (how.stopped or how.code is None)
        if not self.account.ended and not stopped:
            self.account.exited(process, how)
        await self._await_gone(process, how if stopped and not self.account.ended else None)

    async def _await_gone(self, process: Hosted, stopped: Exit | None = None) -> None:
        await self._unless_unkillable(process)
        if stopped is not None:
            self.account.set(exit_code=stopped.code)
            self.account.gone([self._word_of_end(self._stop, stopped)], exit_code=stopped.code)
        else:
            self.account.gone([])
        self._end_guards()
        process.close()
        self.account.log.info("gone")
        self._on_change()

    async def _unless_unkillable(self, process: Hosted) -> None:
        grace = self._stop.grace_s if self._stop else 0.0
        done, _ = await asyncio.wait({process.gone}, timeout=grace + UNKILLABLE_AFTER_S)
        if not done:
            pid = process.identity.pid if process.identity else None
            why = reason("stop.unkillable", since=self._means.clock.now(), pid=pid)
            self.account.report([], ready=False, ready_why=why.to_wire())
            self.account.log.error("unkillable", pid=pid)
            await asyncio.wait({process.gone})

    async def _watch(self, process: Hosted, *, ready: bool) -> None:
        final = await watch_server(self.account, self._means, process, ready=ready)
        if final is not None and process.alive and self._stop is None:
            self.account.failed(final, process)
            own = self._own_stop("default")
            await process.stop(signal_number(own.signal), own.grace_s)

    # Limits that this machine keeps itself

    async def _keep_time(self) -> None:
        """Stop it at its time limit; the control plane does so too, and a second stop changes nothing."""
        limit_s, started = self.account.launch.time_limit_s, self.attempt.started
        if limit_s is None:
            return
        await until(self._means.clock, (self._means.clock.monotonic() if started is None else started) + limit_s)
        if self._stop is None and not self.account.ended:
            self._stop_here(self._own_stop("time_limit"), reason("stop.time_limit", d=limit_s))

    def _guard_contact(self, since: float) -> None:
        if self.account.launch.on_disconnect == "stop" and self._stop is None:
            self._guard(self._stop_when_cut_off(since))

    async def _stop_when_cut_off(self, since: float) -> None:
        """Nothing is reported before it is gone: until then it may still be asked to stop for another cause."""
        await self._means.contact.lost_for(self.account.launch.disconnect_after_s, since=since)
        if self._stop is None and not self.account.ended:
            self.account.log.warning("cut off for too long", after_s=self.account.launch.disconnect_after_s)
            self.stop(self._own_stop(DISCONNECTED))

    def _stop_here(self, stop: Stop, why: Reason) -> None:
        """A stop that nobody asked for: the row knows of it before, and with, the report."""
        self._stop = stop
        self.account.set(stop=stop.model_dump_json())
        if not self.account.ended:
            self.account.report([words.stop_requested(why)])
        self.account.log.info("stopping", cause=stop.cause, grace_s=stop.grace_s)
        self.stop(stop)

    def _own_stop(self, cause: str) -> Stop:
        launch = self.account.launch
        return Stop(cause=cause, signal=launch.stop_signal, grace_s=launch.stop_grace_s)

    # Small things

    def _fail_unborn(self, why: Reason) -> None:
        self._end_guards()
        self.account.not_started(why)
        self._on_change()

    def _confirm_unborn(self, stop: Stop | None) -> None:
        """Asked to stop before anything was executed."""
        self._end_guards()
        self.account.gone([self._word_of_end(stop, None)])
        self._on_change()

    def _word_of_end(self, stop: Stop | None, how: Exit | None) -> StepReport:
        """How a stopped worker ended. One that was cut off is lost: nobody asked for its end, and its policy acts."""
        if stop is not None and stop.cause == DISCONNECTED:
            return words.lost(self.account.launch.disconnect_after_s)
        return words.cancelled(how, how is not None and how.signal == signals.SIGKILL)

    async def _send_stop(self, process: Hosted, stop: Stop) -> None:
        cause = setting_up.exchange(self.folder, self.account.launch) / launching.STOP_CAUSE_FILE
        if not process.gone.done():
            await asyncio.to_thread(cause.write_text, stop.cause + "\n")
        await process.stop(signal_number(stop.signal), stop.grace_s)

    def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Something beside its life that ends with it."""
        task = asyncio.create_task(work)
        self._guards.add(task)
        task.add_done_callback(self._guards.discard)
        task.add_done_callback(self._note_failure)

    def _end_guards(self) -> None:
        for task in self._guards:
            task.cancel()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(work)
        self._task.add_done_callback(self._note_failure)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        task.add_done_callback(self._note_failure)

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.account.log.error("internal error", exc_info=task.exception())


def signal_number(name: str) -> int:
    """Of a name; SIGTERM for one that there is not."""
    try:
        return int(signals.Signals[name])
    except KeyError:
        return int(signals.SIGTERM)

"""One worker on this machine, from pick-up to proof that its process tree is gone.

A `HeldWorker` starts or adopts one process, watches it to its end and reports each step through the outbox. What
should run is not decided here (see `desired.py`), nor what a failure leads to (the control plane's business).
"""

import asyncio
import signal as signals
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from moorage.agent import launching, setting_up, words
from moorage.agent.ledger import Attempt
from moorage.agent.means import Means
from moorage.domain.errors import RunnerError
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import ENDED_WORKER, WorkerState
from moorage.runners import logfile
from moorage.runners.identity import Exit
from moorage.runners.liveness import LivenessProbe
from moorage.runners.port import Hosted, PullProgress
from moorage.runners.progress import observe
from moorage.runners.readiness import ReadinessCheck
from moorage.wire.agent import Assignment, Held, StepReport, Stop

ENGINE_RETRY_S = 2.0
UNKILLABLE_AFTER_S = 30.0
"""After the kill of a stop: a tree that is still there then hangs in the kernel, and is told so."""


class HeldWorker:
    """One attempt in this machine's hands.

    Args:
        attempt: as the ledger has it.
        means: what is shared.
        on_change: called when it may have become gone or settled, so that the desired set is looked at again.
    """

    def __init__(self, attempt: Attempt, means: Means, on_change: Callable[[], None]) -> None:
        self.attempt = attempt
        self.assignment = Assignment.model_validate_json(attempt.assignment)
        self.process: Hosted | None = None
        self.born = True
        self._means = means
        self._on_change = on_change
        self._stop = Stop.model_validate_json(attempt.stop) if attempt.stop else None
        self._kept: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._fetch: setting_up.Fetch | None = None
        self._unproven = False
        self._log = means.log.bind(worker=attempt.worker, epoch=attempt.epoch)
        self.task: asyncio.Task[None] | None = None

    # Seen from outside

    @property
    def folder(self) -> Path:
        """Its own directory."""
        return Path(self.attempt.folder)

    @property
    def ended(self) -> bool:
        """Whether its end was reported."""
        return self.attempt.state in ENDED_WORKER

    @property
    def seen_alive(self) -> bool:
        """An observation of the process itself, made now."""
        return self.process is not None and self.process.alive and self.process.seen_alive()

    @property
    def address(self) -> str | None:
        """Where its server answers, `HOST:PORT`."""
        port = self.attempt.port
        return None if port is None else f"{self._means.config.host}:{port}"

    def to_held(self) -> Held:
        """As reconciling reports it."""
        identity = self.process.identity if self.process is not None else None
        return Held(
            worker=self.attempt.worker,
            epoch=self.attempt.epoch,
            alive=self.process.alive if self.process is not None else not self.attempt.gone,
            state=self.attempt.state,
            address=self.address,
            process=identity.to_wire() if identity else None,
            exit_code=self.attempt.exit_code,
            ready=self.attempt.ready and not self.ended,
        )

    # Commands

    def begin(self) -> None:
        """Set it up and start it."""
        self._run(self._begin())

    async def resume(self) -> None:
        """Find its process again after a restart of the agent; returns once what is on disk was understood."""
        if self.attempt.gone:
            return
        if self.attempt.port is not None:
            self._means.ports.hold(self.attempt.port, self.attempt.worker)
        try:
            self._recalled(await self._find_again())
        except RunnerError as cause:
            # Nothing is proven while its engine is away, so it counts as held, and is asked about until it is known.
            self._unproven = True
            self._log.warning("cannot be looked for yet", why=cause.message)
            self._keep(self._resume_later())

    async def _find_again(self) -> Hosted | None:
        host = await self._means.engines.get(self.assignment.launch.runner)
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
        if process is None:
            self.born = False
            self._means.ports.give_back(self.attempt.worker)
            self._log.info("never started, may be started again", evidence="proven never to have been executed")
            return
        self.process = process
        pid = process.identity.pid if process.identity else None
        self._log.info("adopted", alive=process.alive, pid=pid, evidence=process.evidence)
        self._run(self._see_through(process, adopted=True))
        if self._stop is not None:
            self._keep(self._send_stop(process, self._stop))
        elif self.ended:  # it was given up, and the agent died before it could say so to what executes it
            launch = self.assignment.launch
            self._keep(process.stop(_signal_number(launch.stop_signal), launch.stop_grace_s))

    def stop(self, stop: Stop) -> None:
        """Ask for its end; again only shortens the grace."""
        first = self._stop is None
        if first or self._stop != stop:
            self._stop = stop
            self.attempt = replace(self.attempt, stop=stop.model_dump_json())
            self._keep(self._means.ledger.update(self.attempt))
            self._log.info("stopping", cause=stop.cause, grace_s=stop.grace_s)
        if self._fetch is not None:
            self._fetch.cancel()
        if self.process is not None:
            self._keep(self._send_stop(self.process, stop))

    def drain(self, machine: str, grace_s: float | None = None) -> None:
        """Stop it because this agent goes away with its workers; reported from here, nobody asked for it."""
        if self.attempt.gone or self._stop is not None:
            return
        if not self.ended:
            self._report([words.stop_requested(reason("stop.drain", machine=machine))])
        launch = self.assignment.launch
        grace = launch.stop_grace_s if grace_s is None else grace_s
        self.stop(Stop(cause="machine_drain", signal=launch.stop_signal, grace_s=grace))

    async def close(self) -> None:
        """Let go of it without touching it."""
        for task in (self._watching, self.task):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self.process is not None:
            self.process.close()

    # Its life

    async def _begin(self) -> None:
        launch = self.assignment.launch
        if self._stop is not None:
            self._confirm_unborn()
            return
        problem = launching.missing_source(self.assignment)
        if problem is not None:
            why = reason("model.fetch_failed", error=problem, permanent=True, source=launch.source)
            self._fail_unborn(why)
            return
        try:
            process = await self._launch()
        except (RunnerError, OSError) as cause:
            self._fail_unborn(setting_up.why_not(cause))
            return
        if process is None:
            self._confirm_unborn()
            return
        self.process = process
        if self._stop is not None:
            await self._send_stop(process, self._stop)
        await self._see_through(process, adopted=False)

    async def _launch(self) -> Hosted | None:
        """Set it up and start it; None: it was asked to stop before anything was started."""
        means, worker = self._means, self.attempt.worker
        host = await means.engines.get(self.assignment.launch.runner)
        port = means.ports.lease(worker) if self.assignment.launch.port else None
        self.attempt = replace(self.attempt, port=port)
        intent = setting_up.intent(self.assignment, self.attempt, means.config)
        await means.ledger.intend(self.attempt)
        if intent.container is not None:
            self._fetch = setting_up.Fetch(host, intent, means.clock, self._report_pulling)
            fetched = await self._fetch.done()
            self._fetch = None
            if not fetched or self._stop is not None:
                return None
        return await host.start(intent)

    def _report_pulling(self, progress: PullProgress) -> None:
        if self._stop is not None:
            return
        if self.attempt.state == WorkerState.PULLING:
            self._report([], ready=False, ready_why=words.pull_reason(progress).to_wire())
            return
        steps = [words.picked_up()] if self.attempt.state == WorkerState.PENDING else []
        self._report([*steps, words.pulling(progress)])

    async def _see_through(self, process: Hosted, *, adopted: bool) -> None:
        if not await self._came_up(process):
            return
        if process.alive and not self.ended:
            self._report_running(process)
            if self._stop is None:
                self._watching = asyncio.create_task(self._watch_server(process, ready=adopted and self.attempt.ready))
                self._watching.add_done_callback(self._note_failure)
        await asyncio.wait({process.exited})
        await self._finish(process, process.exited.result())

    async def _came_up(self, process: Hosted) -> bool:
        limit = self.assignment.launch.start_timeout_s
        done, _ = await asyncio.wait({process.running}, timeout=limit)
        if done:
            return True
        await process.stop(signals.SIGKILL, 0.0)
        self._report_failed(reason("start.timed_out", d=limit), process)
        await self._await_gone(process)
        return False

    def _report_running(self, process: Hosted) -> None:
        identity = process.identity
        process_wire = identity.to_wire() if identity else None
        steps = self._missing_path(process)
        if steps:
            self._report(steps, process=process_wire, address=self.address)

    def _missing_path(self, process: Hosted) -> list[StepReport]:
        identity = process.identity
        container = identity.to_wire().get("container") if identity else None
        return words.missing_path(self.attempt.state, identity.pid if identity else None, container)

    async def _finish(self, process: Hosted, how: Exit) -> None:
        """The command has ended: say so at once, then prove that nothing of it is left."""
        if self._watching is not None:
            self._watching.cancel()
        stopped = self._stop is not None and (how.stopped or how.code is None)
        if not self.ended and not stopped:
            self._report_exit(process, how)
        await self._await_gone(process, how if stopped and not self.ended else None)

    def _report_exit(self, process: Hosted, how: Exit) -> None:
        end = words.ended(how, rebooted=process.rebooted)
        steps = []
        if how.error and how.code is not None:
            steps = [words.picked_up()] if self.attempt.state == WorkerState.PENDING else []
        else:
            steps = self._missing_path(process) if end.trigger != "vanished" else []
            if end.trigger == "vanished" and self.attempt.state == WorkerState.PENDING:
                steps = [words.picked_up()]
        self.attempt = replace(self.attempt, exit_code=how.code, ready=False)
        log_tail = logfile.tail(self.folder) if end.to == WorkerState.FAILED else None
        self._report([*steps, end], exit_code=how.code, signal=how.signal or None, log_tail=log_tail)
        self._log.info("exited", code=how.code, signal=how.signal, oom=how.oom, error=how.error)

    async def _await_gone(self, process: Hosted, stopped: Exit | None = None) -> None:
        await self._unless_unkillable(process)
        self.attempt = replace(self.attempt, gone=True, ready=False)
        self._means.ports.give_back(self.attempt.worker)
        if stopped is not None:
            self.attempt = replace(self.attempt, exit_code=stopped.code)
            killed = stopped.signal == signals.SIGKILL
            self._report([words.cancelled(stopped, killed)], exit_code=stopped.code, gone=True)
        else:
            self._report([], gone=True)
        process.close()
        self._log.info("gone")
        self._on_change()

    async def _unless_unkillable(self, process: Hosted) -> None:
        grace = self._stop.grace_s if self._stop else 0.0
        done, _ = await asyncio.wait({process.gone}, timeout=grace + UNKILLABLE_AFTER_S)
        if not done:
            pid = process.identity.pid if process.identity else None
            why = reason("stop.unkillable", since=self._means.clock.now(), pid=pid)
            self._report([], ready=False, ready_why=why.to_wire())
            self._log.error("unkillable", pid=pid)
            await asyncio.wait({process.gone})

    # Its server

    async def _watch_server(self, process: Hosted, *, ready: bool) -> None:
        """Until it is ready, then for as long as it lives; a final failure ends it."""
        launch, means = self.assignment.launch, self._means
        if self.address is None:
            return
        base = f"http://{self.address}"
        if launch.ready is not None and not ready:
            check = ReadinessCheck(launch.ready, base, means.probes, means.clock, lambda: observe(process))
            final = await check.wait(self._report_not_ready)
            if final is not None:
                await self._give_up(process, final)
                return
        if not ready:
            self._set_ready(True)
        if launch.live is not None:
            probe = LivenessProbe(launch.live, base, means.probes, means.clock)
            await self._give_up(process, await probe.watch(self._report_not_ready, lambda: self._set_ready(True)))

    async def _give_up(self, process: Hosted, why: Reason) -> None:
        if process.alive and self._stop is None:
            self._report_failed(why, process)
            number = _signal_number(self.assignment.launch.stop_signal)
            await process.stop(number, self.assignment.launch.stop_grace_s)

    def _report_failed(self, why: Reason, process: Hosted) -> None:
        self.attempt = replace(self.attempt, ready=False)
        steps = [words.picked_up()] if self.attempt.state == WorkerState.PENDING else []
        self._report([*steps, words.failed(why)], log_tail=logfile.tail(process.folder))
        self._log.warning("failed", code=why.code, why=why.message)

    def _set_ready(self, ready: bool) -> None:
        self.attempt = replace(self.attempt, ready=ready)
        self._report([], ready=ready, address=self.address)

    def _report_not_ready(self, why: Reason) -> None:
        self.attempt = replace(self.attempt, ready=False)
        self._report([], ready=False, ready_why=why.to_wire())

    # Small things

    def _fail_unborn(self, why: Reason) -> None:
        """Nothing was executed: the failure is also the proof that nothing of it is here."""
        self.attempt = replace(self.attempt, gone=True)
        self._means.ports.give_back(self.attempt.worker)
        steps = [words.picked_up()] if self.attempt.state == WorkerState.PENDING else []
        self._report([*steps, words.failed(why)], gone=True)
        self._log.warning("not started", code=why.code, why=why.message)
        self._on_change()

    def _confirm_unborn(self) -> None:
        """Asked to stop before anything was executed."""
        self.attempt = replace(self.attempt, gone=True)
        self._report([words.cancelled(None, False)], gone=True)
        self._on_change()

    async def _send_stop(self, process: Hosted, stop: Stop) -> None:
        cause = setting_up.exchange(self.folder, self.assignment.launch) / launching.STOP_CAUSE_FILE
        if not process.gone.done():
            await asyncio.to_thread(cause.write_text, stop.cause + "\n")
        await process.stop(_signal_number(stop.signal), stop.grace_s)

    def _report(self, steps: list[Any], **news: Any) -> None:
        self.attempt = self._means.outbox.add(self.attempt, steps, **news)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self.task = asyncio.create_task(work)
        self.task.add_done_callback(self._note_failure)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        task.add_done_callback(self._note_failure)

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._log.error("internal error", exc_info=task.exception())


def _signal_number(name: str) -> int:
    try:
        return int(signals.Signals[name])
    except KeyError:
        return int(signals.SIGTERM)

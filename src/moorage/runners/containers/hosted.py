"""One container, from its start to the proof that nothing of it is left.

Truth is what the engine answers when it is asked (`look`); events, the end of its first process and the poll only say
that it is time to ask. Made by `host.ContainerHost`, which also watches the engine for all containers together.
"""

import asyncio
import signal as signals
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from moorage.ports import Clock
from moorage.runners import logfile
from moorage.runners.containers import records
from moorage.runners.containers.api import EngineApi, EngineError
from moorage.runners.containers.commands import ContainerCommand
from moorage.runners.containers.first_process import FirstProcess
from moorage.runners.containers.output import OutputCopy
from moorage.runners.containers.records import NEVER_RAN, OVER, RUNNING, ContainerIdentity
from moorage.runners.identity import Exit, alive, boot_id
from moorage.runners.port import CommandOrder

REBOOTED = "the machine was restarted while it ran"
REMOVED = "the container was removed from outside"
SETTLE_S, SETTLE_STEP_S = 0.5, 0.1
"""A kill that nobody here asked for may be the first half of a forced removal: so long the other half is waited for."""
REMOVING_S = 10.0
LAST_WORDS_S = 2.0
"""So long the news of an end waits for the rest of the log; what takes longer is read before the container goes."""
RETRY_S, RETRY_MAX_S, REMOVE_TRIES = 0.2, 2.0, 5
POLL_S = 2.0
_KILLED = frozenset({128 + signals.SIGKILL, 128 + signals.SIGTERM})


class HostedContainer:
    """A container of ours. Attributes and methods as `runners.port.Hosted` describes them."""

    def __init__(
        self,
        api: EngineApi,
        identity: ContainerIdentity,
        folder: Path,
        clock: Clock,
        forget: Callable[["HostedContainer"], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.folder = folder
        self.identity: ContainerIdentity = identity
        self.running: asyncio.Future[None] = loop.create_future()
        self.exited: asyncio.Future[Exit] = loop.create_future()
        self.gone: asyncio.Future[None] = loop.create_future()
        self.evidence: list[str] = []
        self._api = api
        self._clock = clock
        self._forget = forget
        self._loop = loop
        self._output: OutputCopy | None = None
        self._first: FirstProcess | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking = asyncio.Lock()
        self._starting = self._finishing = False
        self._stopping = (folder / records.STOP).exists()
        self._deadline: float | None = None
        self._hurry = asyncio.Event()
        self._stopper: asyncio.Task[None] | None = None
        self._seen_at: float | None = None

    # What is known

    @property
    def container(self) -> str:
        """Its id."""
        return self.identity.container

    @property
    def alive(self) -> bool:
        """Whether it was not seen to end."""
        return not self.exited.done()

    @property
    def rebooted(self) -> bool:
        """Whether it was created before the machine's last start."""
        return self.identity.boot_id != boot_id()

    def seen_alive(self) -> bool:
        """Its first process is there; where the engine hides that, the last poll found it running."""
        known = self.identity
        if known.pid:
            return not self.rebooted and alive(known.pid, known.start_ticks)
        return self._seen_at is not None and self._clock.monotonic() - self._seen_at < 2 * POLL_S

    async def lines(self, *, lines: int = 200, after: int | None = None) -> logfile.LogSlice:
        """Lines of its log, read in a thread; see `logfile.read`."""
        ended = self.gone.done()
        return await asyncio.to_thread(logfile.read, self.folder, lines=lines, after=after, partial=ended)

    async def beside(self, order: CommandOrder) -> ContainerCommand:
        """Run a command in it; see `runners.port.Hosted`."""
        return await ContainerCommand.start(self._api, self.container, order, self._clock)

    # Starting

    def start(self) -> None:
        """Have the engine start it; the futures tell the rest."""
        self._starting = True
        self._spawn(self._start())

    async def _start(self) -> None:
        """Until the engine has answered; it is never told twice to start what may have run already."""
        pause, found = RETRY_S, None
        while not self._stopping or self._deadline is None:
            try:
                await self._api.start(self.container)
                break
            except EngineError as cause:
                if not cause.unreachable:
                    await self._not_started(cause.message)
                    return
            await self._clock.sleep(pause)
            pause = min(pause * 2, RETRY_MAX_S)
            found = await self._ask_in_peace()
            if found is not None and found["State"]["Status"] not in NEVER_RAN:
                break
        self._starting = False
        await self.look()

    async def _not_started(self, error: str) -> None:
        self._starting = False
        found = await self._ask_in_peace()
        if found is not None and found["State"]["Status"] in RUNNING:
            await self.look()
            return
        code = int(found["State"].get("ExitCode") or 0) if found else 0
        missing = "not found" in error or "no such file" in error
        await self._finish(Exit(code if code in (126, 127) else 127 if missing else 126, error=error))

    # Looking

    async def look(self) -> None:
        """Ask the engine how it is, and act on the answer. An engine that is away says nothing, and nothing follows."""
        async with self._looking:
            if self.exited.done():
                return
            try:
                found = await self._api.inspect(self.container)
            except EngineError as cause:
                self.evidence += [] if cause.unreachable else [f"{self._api.name} does not say: {cause.message}"]
                return
            await self._judge(found)

    async def _judge(self, found: dict[str, Any] | None) -> None:
        if found is None:
            await self._finish(Exit(None, stopped=self._stopping, missing=True, error=REMOVED))
            return
        state = found["State"]
        if state["Status"] in RUNNING:
            self._note_running(int(state.get("Pid") or 0))
        elif state["Status"] in OVER and not self._starting:
            await self._judge_end(state)

    def note_listed(self, status: str) -> None:
        """What a poll says of it; only what differs from what is known is worth a look."""
        if status in RUNNING:
            self._seen_at = self._clock.monotonic()
            if self.running.done():
                return
        if not self.exited.done() and status not in NEVER_RAN:
            self.wake()

    def wake(self) -> None:
        """There may be news: look soon."""
        self._spawn(self.look())

    def _note_running(self, pid: int) -> None:
        self._seen_at = self._clock.monotonic()
        if pid and pid != self.identity.pid:
            self._watch_process(pid)
        if self._output is None:
            self._output = OutputCopy(self._api, self.container, self.folder, self._clock)
            self._output.follow()
        if not self.running.done():
            self.running.set_result(None)

    def _watch_process(self, pid: int) -> None:
        """The kernel tells of its first process's end before the engine does."""
        try:
            first = FirstProcess(pid, self.container, lambda: self._spawn(self._look_until_over()))
        except OSError:
            return  # not a pid of this machine, or over already
        if self._first is not None:
            self._first.close()
        self._first = first
        self.identity = replace(self.identity, pid=pid, start_ticks=first.start_ticks, cgroup=first.cgroup)

    async def _look_until_over(self) -> None:
        """The process is gone, so the engine will say so within a moment."""
        pause = 0.005
        while not self.exited.done() and pause < POLL_S:
            await self.look()
            if not self.exited.done():
                await self._clock.sleep(pause)
                pause *= 2

    # Its end

    async def _judge_end(self, state: dict[str, Any]) -> None:
        code = int(state.get("ExitCode") or 0)
        told = bool(state.get("OOMKilled")) or (self._first is not None and self._first.killed_for_memory())
        oom = told and code != 0
        if code in _KILLED and not oom and not self._stopping and await self._is_being_removed():
            await self._finish(Exit(None, missing=True, error=REMOVED))
            return
        signal = code - 128 if 128 < code <= 128 + signals.SIGRTMAX else 0
        if self.rebooted:
            await self._finish(Exit(None, error=REBOOTED))
            return
        await self._finish(
            Exit(code, signal=signal, oom=oom, stopped=self._stopping, at_ms=int(self._clock.now() * 1e3))
        )

    async def _is_being_removed(self) -> bool:
        """Whether the container itself goes after its process, for somebody else's wish."""
        began = self._clock.monotonic()
        limit = SETTLE_S
        while self._clock.monotonic() - began < limit:
            await self._clock.sleep(SETTLE_STEP_S)
            try:
                found = await self._api.inspect(self.container)
            except EngineError:
                continue
            if found is None:
                return True
            if found["State"]["Status"] == "removing":
                limit = REMOVING_S
        return False

    async def _finish(self, how: Exit) -> None:
        """Its end is proven: the last of its log, the record, the news, and then the container itself."""
        if self._finishing:
            return
        self._finishing = True
        if self._first is not None:
            self._first.unwatch()
        if self._output is None and how.code is not None and how.executed:
            self._output = OutputCopy(self._api, self.container, self.folder, self._clock)
        finishing = self._spawn(self._output.finish()) if self._output is not None else None
        if finishing is not None:
            await self._wait(finishing, LAST_WORDS_S)
        await asyncio.to_thread(records.save_exit, self.folder, how)
        self._done(how)
        self._spawn(self._clear_away(how, finishing))

    def _done(self, how: Exit) -> None:
        if not self.exited.done():
            self.exited.set_result(how)
        if not self.running.done():
            self.running.set_result(None)

    async def _clear_away(self, how: Exit, finishing: "asyncio.Task[None] | None" = None) -> None:
        """Remove the ended container. Its end is proven, so a refusal delays nothing for ever."""
        if finishing is not None:
            await asyncio.wait({finishing})
        for attempt in range(0 if how.missing else REMOVE_TRIES):
            try:
                await self._api.remove(self.container)
            except EngineError as cause:
                self.evidence.append(f"not removed yet: {cause.message}")
                await self._clock.sleep(RETRY_S * 2**attempt)
                continue
            break
        await asyncio.to_thread(records.note, self.folder, records.GONE)
        self._done_gone()

    def _done_gone(self) -> None:
        if self._first is not None:
            self._first.close()
        if not self.gone.done():
            self.gone.set_result(None)
        self._forget(self)

    # Stopping

    async def stop(self, signal: int, grace_s: float) -> None:
        """Ask for the end: the signal to its first process, SIGKILL to all of it after the grace in seconds."""
        if self.exited.done():
            return
        if not self._stopping:
            self._stopping = True
            await asyncio.to_thread(records.note, self.folder, records.STOP)
        deadline = self._clock.monotonic() + grace_s
        if self._deadline is None or deadline < self._deadline:
            self._deadline = deadline
            self._hurry.set()
        if self._stopper is None or self._stopper.done():
            self._stopper = self._spawn(self._end(signal))

    async def _end(self, signal: int) -> None:
        while not self.running.done() and self._left_s() > 0:
            self._hurry.clear()
            await self._wait(self.running, self._left_s())
        if not self.running.done():
            await self._withdraw()
            return
        sent = False
        while not self.exited.done() and self._left_s() > 0:
            self._hurry.clear()
            sent = sent or await self._signal(signal)
            await self._wait(self.exited, self._left_s() if sent else min(RETRY_S, self._left_s()))
        pause = RETRY_S
        while not self.exited.done():
            await self._signal(signals.SIGKILL)
            await self._wait(self.exited, pause)
            pause = min(pause * 2, RETRY_MAX_S)

    def _left_s(self) -> float:
        return 0.0 if self._deadline is None else self._deadline - self._clock.monotonic()

    async def _wait(self, fact: "asyncio.Future[Any]", seconds: float) -> None:
        """Until it is a fact, the deadline has moved, or the time is over."""
        waits = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._hurry.wait())]
        try:
            await asyncio.wait({fact, *waits}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _withdraw(self) -> None:
        """It has not come up in time: take the container away, and with it whatever may be coming up."""
        pause = RETRY_S
        while not self.exited.done():
            try:
                await self._api.remove(self.container)
            except EngineError:
                await self._clock.sleep(pause)
                pause = min(pause * 2, RETRY_MAX_S)
                continue
            await self._finish(Exit(None, stopped=True, error="it was taken away before it ran"))

    async def _signal(self, number: int) -> bool:
        """Send it. False: it did not arrive; what has ended meanwhile is looked at instead."""
        try:
            await self._api.kill(self.container, number)
        except EngineError:
            await self.look()
            return False
        return True

    # Finding it again

    async def resume(self) -> None:
        """Go on with a container that is there: running, ended, or created and not started.

        Raises:
            EngineError: the engine does not answer, so that nothing is proven.
        """
        found = await self._api.inspect(self.container)
        if found is not None and found["State"]["Status"] in NEVER_RAN:
            self.evidence.append("created and never started: started now")
            self.start()
            return
        async with self._looking:
            await self._judge(found)

    def recall(self, how: Exit, *, gone: bool) -> None:
        """Take over what was written down before."""
        self._done(how)
        if gone:
            self._done_gone()
        else:
            self._spawn(self._clear_away(how))

    async def _ask_in_peace(self) -> dict[str, Any] | None:
        try:
            return await self._api.inspect(self.container)
        except EngineError:
            return None

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.evidence.append(f"internal error: {task.exception()!r}")
            self._loop.call_exception_handler({"message": "watching a container failed", "exception": task.exception()})

    def close(self) -> None:
        """Stop watching. What runs goes on running."""
        for task in tuple(self._tasks):
            task.cancel()
        for part in (self._first, self._output):
            if part is not None:
                part.close()
        self._forget(self)

"""One start of a model's server, from its order to its end, and what that end means. Moves no state; restarts nothing.

`model.py` asks: `until_ready` and then `until_end`, and judges with `how_it_ended`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from moorage.domain.reasons import Reason, reason
from moorage.runners import logfile, progress
from moorage.runners.hosted import HostedProcess
from moorage.runners.identity import Exit
from moorage.runners.library.parts import Parts
from moorage.runners.library.spec import ModelSpec
from moorage.runners.library.views import Failure
from moorage.runners.port import Hosted
from moorage.runners.readiness import ReadinessCheck
from moorage.wire.agent import Ready


@dataclass(frozen=True, slots=True)
class Ending:
    """How one start ended.

    Args:
        why: as a reason.
        how: as the host saw it; None where it was ended by us because it never got ready.
    """

    why: Reason
    how: Exit | None = None

    @property
    def in_order(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.how is not None and self.how.code == 0 and not self.how.error

    @property
    def hopeless(self) -> bool:
        """Whether it never executed, which the next start will not either: not found, not executable, refused."""
        return self.how is not None and self.how.code is not None and bool(self.how.error)

    @property
    def timed_out(self) -> bool:
        """Whether it was not ready in time."""
        return self.why.code == "ready.timed_out"


def ready_wanted(parts: Parts, spec: ModelSpec) -> Ready | None:
    """What readiness asks for, or None where there is no HTTP server to ask."""
    if spec.ready_path is None:
        return None
    timeout = parts.settings.ready_timeout if spec.ready_timeout is None else spec.ready_timeout
    return Ready(
        path=spec.ready_path,
        timeout_s=timeout,
        stall_s=timeout,
        interval_s=parts.settings.ready_interval,
        warmup_s=warmup_s(parts, spec),
        model=spec.model,
        aliases=tuple(spec.aliases),
        request=dict(spec.ready_request) if spec.ready_request else None,
    )


def warmup_s(parts: Parts, spec: ModelSpec) -> float:
    """Seconds after good health before it counts as running."""
    return parts.settings.warmup_delay if spec.warmup_delay is None else spec.warmup_delay


async def until_ready(
    parts: Parts, spec: ModelSpec, hosted: Hosted, base_url: str, on_waiting: Callable[[Reason], None]
) -> Reason | None:
    """Wait until it is ready or has ended.

    Args:
        parts: of the runner.
        spec: of the model.
        hosted: its server.
        base_url: where that is asked.
        on_waiting: told what it waits for, each time that is another thing than before.

    Returns:
        None when it is ready, or has ended (look at `exited`); else why it never will be.
    """
    await hosted.running
    wanted = ready_wanted(parts, spec)
    if wanted is None:
        work: asyncio.Future[Reason | None] = asyncio.ensure_future(_warm_up(parts, warmup_s(parts, spec)))
    else:
        check = ReadinessCheck(wanted, base_url, parts.probes, parts.clock, partial(progress.observe, hosted))
        work = asyncio.ensure_future(check.wait(on_waiting))
    try:
        either: set[asyncio.Future[Any]] = {work, hosted.exited}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not work.done():
            work.cancel()
            await asyncio.wait({work})
    return None if hosted.exited.done() else work.result()


async def _warm_up(parts: Parts, delay_s: float) -> Reason | None:
    if delay_s:
        await parts.clock.sleep(delay_s)
    return None


def how_it_ended(how: Exit) -> Ending:
    """The reason of an end that nobody asked for."""
    if how.oom:
        return Ending(reason("oom_killed", code=how.code, signal=how.signal or None), how)
    if how.missing:
        return Ending(reason("container.missing"), how)
    if how.code is None:
        return Ending(reason("exit.unknown"), how)
    if how.error:
        return Ending(reason("start.failed", error=how.error), how)
    return Ending(reason("exited", code=how.code, signal=how.signal or None), how)


def failure_of(ending: Ending, at: float, log: str) -> Failure:
    """What is kept of it."""
    how = ending.how
    if how is None:
        return Failure(ending.why, at, log=log)
    return Failure(ending.why, at, how.code, how.signal, how.oom, log)


async def last_words(hosted: Hosted) -> str:
    """The end of its log: 50 lines, 16 KiB at most, its own only."""
    first, end = 1, None
    if isinstance(hosted, HostedProcess):
        first, end = hosted.first_line, hosted.end_line
    if first == 1 and end is None:
        return await asyncio.to_thread(logfile.tail, hosted.folder)
    if end is None:
        piece = await hosted.lines(lines=logfile.TAIL_LINES)
    else:
        piece = await hosted.lines(lines=logfile.TAIL_LINES, after=max(0, end - 1 - logfile.TAIL_LINES))
    numbered = enumerate(piece.lines, piece.first_seq)
    own = [text for number, text in numbered if number >= first and (end is None or number < end)]
    raw = "\n".join(own).encode()[-logfile.TAIL_BYTES :]
    return raw.decode("utf-8", "ignore")


def successor_of(hosted: Hosted) -> HostedProcess | None:
    """What its shim has started in its place, under a grant."""
    return hosted.successor if isinstance(hosted, HostedProcess) else None


async def collect(hosted: Hosted) -> None:
    """After its end: nothing of its shim is left either."""
    if isinstance(hosted, HostedProcess):
        await hosted.collect()


def grant(hosted: Hosted, restarts: int, *, always: bool) -> None:
    """Let its shim restart it by itself, where there is a shim that can."""
    if isinstance(hosted, HostedProcess):
        hosted.grant(restarts, always=always)

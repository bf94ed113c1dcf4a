"""A program's own heartbeat: how long ago it last touched the file that its environment names.

The file's time is one of a clock that may step; this machine's clock that never steps bounds it from both sides: no
touch is older than the look before the one that first saw it, and none is younger than nothing. Asked by `held` with
each heartbeat.
"""

from pathlib import Path

from moorage.ports import Clock


class ProgramBeat:
    """The heartbeat file of one attempt.

    Args:
        path: the file; while it is not there the program does not beat by itself.
        clock: both of its clocks.
        since: moment of the clock that never steps before which the program did not run.
    """

    def __init__(self, path: Path, clock: Clock, since: float | None = None) -> None:
        self._path = path
        self._clock = clock
        self._looked_at = since
        self._seen_ns: int | None = None
        self._beat_at: float | None = None

    def age_s(self) -> float | None:
        """Seconds since it last beat, seen now; None for a program that never did so."""
        now = self._clock.monotonic()
        touched_ns = self._touched_ns()
        if touched_ns is not None and touched_ns != self._seen_ns:
            oldest = now - self._looked_at if self._looked_at is not None else float("inf")
            age = min(max(0.0, self._clock.now() - touched_ns / 1e9), max(0.0, oldest))
            self._seen_ns, self._beat_at = touched_ns, now - age
        self._looked_at = now
        return None if self._beat_at is None else max(0.0, now - self._beat_at)

    def _touched_ns(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return None  # not there yet, or taken away again: what was seen of it goes on ageing

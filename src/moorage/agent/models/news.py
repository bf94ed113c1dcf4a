"""How often a worker's history hears of its model's fetch: at once when it comes or stands, then every few seconds.

Each time is a row of that history, so a long fetch tells less often. Called by `preparing`.
"""

from collections.abc import Callable

from moorage.agent.models.fetching import Progress
from moorage.domain.reasons import Reason, reason
from moorage.domain.sources import HubSource
from moorage.ports import Clock

NEWS_S, NEWS_MAX_S = 3.0, 30.0
SLOWER = 1.25


class FetchNews:
    """Passes on the progress of one fetch.

    Args:
        clock: for the seconds between.
        tell: whom.
    """

    def __init__(self, clock: Clock, tell: Callable[[Reason], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._pause_s = NEWS_S
        self._told_at: float | None = None
        self._told: Progress | None = None

    def hear(self, source: HubSource, progress: Progress) -> None:
        """The cache tells of progress."""
        if not progress.total and progress.trouble is None:
            return  # its hub is being asked how much it is
        now = self._clock.monotonic()
        if self._told is not None and not self._due(now, self._told, progress):
            return
        self._pause_s = NEWS_S if self._told is None else min(self._pause_s * SLOWER, NEWS_MAX_S)
        self._told_at, self._told = now, progress
        self._tell(
            reason(
                "model.fetching",
                source=str(source),
                done=progress.done,
                total=progress.total,
                rate=progress.rate or None,
                trouble=progress.trouble,
            )
        )

    def _due(self, now: float, told: Progress, progress: Progress) -> bool:
        return progress.trouble != told.trouble or now - (self._told_at or 0.0) >= self._pause_s

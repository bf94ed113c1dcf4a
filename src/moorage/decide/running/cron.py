"""Due times of a cron expression in a time zone. Pure: times are seconds since the epoch, given and returned.

The grammar and what happens at the changes of daylight saving time are those of `cronsim` (as Debian's cron: a job of a
time that the change skips runs right after it, and one of a time that comes twice runs once). Called by `creating`
and `schedules`.
"""

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

COUNTED_MAX = 1000
"""Due times that are counted one by one; a longer row of them is told as this many."""


def next_due(cron: str, timezone: str, after: float) -> float | None:
    """The first due time after `after`, in seconds since the epoch; None: there is none any more."""
    return _first(CronSim(cron, _local(after, timezone)))


def last_due(cron: str, timezone: str, until: float) -> float | None:
    """The last due time at or before `until`, in seconds since the epoch; None: there was none."""
    return _first(CronSim(cron, _local(until + 1.0, timezone), reverse=True))


def count_due(cron: str, timezone: str, after: float, until: float) -> int:
    """How many due times lie after `after` and not after `until`, at most `COUNTED_MAX`."""
    times = islice(CronSim(cron, _local(after, timezone)), COUNTED_MAX)
    count = 0
    try:
        for at in times:
            if at.timestamp() > until:
                break
            count += 1
    except CronSimError:  # how the library ends a row of times that has no next one
        return count
    return count


def stamp(due: float) -> str:
    """A due time as the end of a run's name: year to minute, in UTC, so that no hour comes twice."""
    return datetime.fromtimestamp(due, UTC).strftime("%Y%m%d%H%M")


def _local(at: float, timezone: str) -> datetime:
    return datetime.fromtimestamp(at, ZoneInfo(timezone))


def _first(times: CronSim) -> float | None:
    try:
        at: datetime = next(times)
    except (StopIteration, CronSimError):
        return None
    return at.timestamp()

"""Schedules: no due time makes two runs, no outage makes more than one, and clocks that change are kept up with."""

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from moorage.decide.decision import Draft
from moorage.decide.running.creating import create_run
from moorage.decide.running.cron import COUNTED_MAX, count_due, last_due, next_due, stamp
from moorage.decide.running.schedules import decide_schedule
from moorage.decide.running.snapshot import RunSnapshot
from moorage.domain.errors import InvalidSpec
from moorage.domain.nouns import Run
from moorage.domain.states import RunState
from moorage.wire.spec import document, normalise
from tests.memory_rows import MemoryRows

HOUR, DAY = 3600.0, 86400.0


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


class Schedule(MemoryRows):
    """A run with a schedule, and what it made."""

    def __init__(self, cron: str = "0 3 * * *", start: str = "2026-11-29T00:00", **more: object) -> None:
        super().__init__()
        self.now = at(start)
        spec = normalise(
            document(
                {
                    "kind": "Run",
                    "name": "nightly",
                    "groups": [{"runtime": {"command": ["x"]}}],
                    "schedule": {"cron": cron, **more},
                }
            )
        )
        draft = Draft((), self.now, "person:p")
        self.uid = create_run(draft, "run-s", "default", "nightly", spec).uid
        self.commit(draft.decision().change)

    @property
    def run(self) -> Run:
        row = self.rows[self.uid]
        assert isinstance(row, Run)
        return row

    @property
    def made(self) -> list[Run]:
        """Newest first."""
        return sorted((r for r in self.of(Run) if r.scheduled_by == self.uid), key=lambda r: r.name, reverse=True)

    def look(self) -> float | None:
        known = [self.rows[uid] for uid in (self.run.schedule or {}).get("made", ()) if uid in self.rows]
        snapshot = RunSnapshot(self.now, self.run, made=tuple(r for r in known if isinstance(r, Run)))
        decision = decide_schedule(snapshot, self.ids)
        self.commit(decision.change)
        return decision.wake_at

    def pass_time(self, seconds: float) -> float | None:
        self.now += seconds
        return self.look()

    def end(self, run: Run, state: RunState = RunState.COMPLETED) -> None:
        self.rows[run.uid] = replace(run, state=state, ended_at=self.now)

    def cancel(self, cause: str = "user") -> None:
        self.rows[self.uid] = replace(self.run, cancel={"cause": cause, "text": None, "at": self.now})


def test_it_waits_for_its_next_time_and_says_when_that_is() -> None:
    schedule = Schedule()
    assert schedule.look() == at("2026-11-29T03:00")
    assert schedule.run.state is RunState.PENDING
    assert schedule.made == []
    assert schedule.run.reason is not None
    assert schedule.run.reason.code == "run.scheduled"
    assert schedule.run.reason.params["next_at"] == at("2026-11-29T03:00")


def test_a_due_time_makes_one_run_that_names_it_and_has_no_schedule_itself() -> None:
    schedule = Schedule()
    assert schedule.pass_time(3 * HOUR) == at("2026-11-30T03:00")
    (made,) = schedule.made
    assert made.name == "nightly-202611290300"
    assert (made.spec["schedule"], made.spec["name"], made.schedule) == (None, made.name, None)


def test_no_due_time_makes_two_however_often_it_is_looked_at() -> None:
    schedule = Schedule()
    for _ in range(5):
        schedule.pass_time(3 * HOUR if not schedule.made else 60.0)
        schedule.end(schedule.made[0])
    assert len(schedule.made) == 1


def test_after_a_long_outage_one_run_makes_up_and_the_others_are_told() -> None:
    schedule = Schedule()
    schedule.pass_time(10 * DAY)
    assert [r.name for r in schedule.made] == ["nightly-202612080300"]
    assert schedule.codes.count("run.schedule_skipped") == 1
    assert (schedule.run.schedule or {})["next_at"] == at("2026-12-09T03:00")


@pytest.mark.parametrize(("concurrency", "count"), [("forbid", 1), ("allow", 2), ("replace", 2)])
def test_a_run_that_still_goes_on_is_waited_for_joined_or_replaced(concurrency: str, count: int) -> None:
    schedule = Schedule(concurrency=concurrency)
    schedule.pass_time(3 * HOUR)
    schedule.pass_time(DAY)
    assert len(schedule.made) == count
    oldest = schedule.made[-1]
    assert (oldest.cancel is not None) == (concurrency == "replace")
    assert ("run.schedule_skipped" in schedule.codes) == (concurrency == "forbid")


def test_the_newest_ended_runs_are_kept_and_the_others_deleted() -> None:
    schedule = Schedule(keep=2)
    schedule.pass_time(3 * HOUR)
    for _ in range(4):
        schedule.end(schedule.made[0])
        schedule.pass_time(DAY)
    assert [r.deleting for r in schedule.made] == [False, False, False, True, True]


def test_a_run_that_was_removed_is_not_asked_for_again() -> None:
    schedule = Schedule()
    schedule.pass_time(3 * HOUR)
    del schedule.rows[schedule.made[0].uid]
    schedule.pass_time(60.0)
    assert list((schedule.run.schedule or {})["made"]) == []


def test_a_cancel_ends_the_schedule_and_not_what_it_made() -> None:
    schedule = Schedule()
    schedule.pass_time(3 * HOUR)
    schedule.cancel()
    schedule.pass_time(DAY)
    assert schedule.run.state is RunState.CANCELLED
    assert [r.cancel for r in schedule.made] == [None]


def test_a_schedule_without_a_further_time_completes() -> None:
    schedule = Schedule()
    schedule.rows[schedule.uid] = replace(schedule.run, schedule={"next_at": None, "last_at": None, "made": ()})
    schedule.look()
    assert schedule.run.state is RunState.COMPLETED


# Times


def test_an_hour_that_is_skipped_makes_its_job_run_right_after_and_only_once() -> None:
    before = at("2026-03-28T12:00", "Europe/Berlin")
    first = next_due("30 2 * * *", "Europe/Berlin", before)
    assert first == at("2026-03-29T03:00", "Europe/Berlin"), "2:30 does not exist that night"
    assert next_due("30 2 * * *", "Europe/Berlin", first) == at("2026-03-30T02:30", "Europe/Berlin")


def test_an_hour_that_comes_twice_makes_a_daily_job_run_once() -> None:
    evening = at("2026-10-24T12:00", "Europe/Berlin")
    assert count_due("30 2 * * *", "Europe/Berlin", evening, evening + DAY + 5 * HOUR) == 1


def test_a_job_of_every_half_hour_goes_on_through_both_and_its_names_differ() -> None:
    until = datetime(2026, 10, 25, 3, 0, tzinfo=UTC).timestamp()
    assert count_due("*/30 * * * *", "Europe/Berlin", until - 4 * HOUR, until) == 8
    times = [next_due("*/30 * * * *", "Europe/Berlin", until - 4 * HOUR)]
    while len(times) < 8:
        times.append(next_due("*/30 * * * *", "Europe/Berlin", times[-1] or 0.0))
    assert len({stamp(t or 0.0) for t in times}) == 8


def test_the_last_due_time_is_the_newest_that_has_passed_and_includes_now() -> None:
    three = at("2026-11-29T03:00")
    assert last_due("0 3 * * *", "UTC", three) == three
    assert last_due("0 3 * * *", "UTC", three - 1.0) == three - DAY
    assert last_due("0 3 * * *", "UTC", three + 0.5) == three


def test_counting_through_a_very_long_outage_ends() -> None:
    start = at("2026-01-01T00:00")
    assert count_due("* * * * *", "UTC", start, start + 3650 * DAY) == COUNTED_MAX


@pytest.mark.parametrize(
    "schedule",
    [
        {"cron": "0 3 * *"},
        {"cron": "0 0 3 * * *"},
        {"cron": "61 3 * * *"},
        {"cron": "0 3 30 2 *"},
        {"cron": "0 3 * * *", "timezone": "Mars/Olympus"},
    ],
)
def test_a_schedule_that_can_never_be_due_is_refused_when_it_is_written(schedule: dict[str, str]) -> None:
    with pytest.raises(InvalidSpec):
        document(
            {"kind": "Run", "name": "n", "groups": [{"runtime": {"command": ["x"]}}], "schedule": schedule},
        )

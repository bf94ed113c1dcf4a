"""The times beside a log, and reading by number, time and pattern: against a plain model of the same log."""

import random
from pathlib import Path

import pytest

from moorage.domain.errors import InvalidSpec
from moorage.runners import logfile
from moorage.runners.containers.output import KeptLog, OutputCopy
from moorage.runners.logfile import Limits
from moorage.runners.shimming import log as shim_log
from moorage.runners.shimming.log import RECORD_BYTES, Log

START_MS = 1_700_000_000_000


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim_log, "SEGMENT_BYTES", 4000)
    monkeypatch.setattr(shim_log, "STRIDE_BYTES", 300)
    monkeypatch.setattr(logfile, "PIECE_BYTES", 700)
    monkeypatch.setattr(logfile, "MORE_BYTES", 50)


def written(folder: Path, seed: int, bursts: int = 400) -> list[tuple[int, float, str]]:
    """A log written in random bursts, and (number, time, text) of every line that ever was in it."""
    rng = random.Random(seed)
    log, at, rows, open_line, open_at = Log(str(folder)), START_MS, [], "", 0.0
    for _ in range(bursts):
        at += rng.choice((0, 1, 20, 500))
        text = "".join(rng.choice("abcx \n") for _ in range(rng.randrange(1, 60)))
        log.write(text.encode(), at)
        for part in text.split("\n")[:-1]:
            begun = open_at if open_line else at / 1000
            rows.append((len(rows) + 1, begun, open_line + part))
            open_line = ""
        rest = text.rpartition("\n")[2]
        if rest and not open_line:
            open_at = at / 1000
        open_line += rest
    return rows


def got(found: logfile.LogSlice) -> list[tuple[int, str]]:
    return list(zip(found.seqs, found.lines, strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_reading_gives_what_a_plain_reader_would(tmp_path: Path, seed: int) -> None:
    rows = written(tmp_path, seed)
    first = min(int(p.suffix[1:]) for p in tmp_path.glob("log.*"))
    kept = [(n, t) for n, _, t in rows if n >= first]
    end = rows[-1][0]
    assert first > 1, "the log must have been rotated"
    for lines in (0, 1, 7, 10_000):
        found = logfile.select(tmp_path, Limits(lines))
        assert got(found) == kept[len(kept) - lines if lines < len(kept) else 0 :]
        assert found.next_seq == end + 1
        matching = [(n, t) for n, t in kept if "ax" in t or t.startswith("b")]
        grepped = logfile.select(tmp_path, Limits(lines, pattern="ax|^b"))
        assert got(grepped) == (matching[-lines:] if lines else [])
    rng = random.Random(seed)
    for after in [0, first - 1, end, *(rng.randrange(end) for _ in range(12))]:
        found = logfile.select(tmp_path, Limits(5, after))
        assert got(found) == [(n, t) for n, t in kept if n > after][:5]
        assert found.missed == max(0, first - (after + 1))
        grepped = logfile.select(tmp_path, Limits(5, after, pattern="^a.*c"))
        assert got(grepped) == [(n, t) for n, t in kept if n > after and t.startswith("a") and "c" in t][:5]
        if len(grepped.lines) < 5:
            assert grepped.next_seq == max(end, after) + 1 if after < end else end + 1


@pytest.mark.parametrize("seed", range(12))
def test_times_are_those_of_the_burst_and_since_cuts_there(tmp_path: Path, seed: int) -> None:
    rows = written(tmp_path, seed)
    first = min(int(p.suffix[1:]) for p in tmp_path.glob("log.*"))
    true = {n: at for n, at, _ in rows}
    found = logfile.select(tmp_path, Limits(100_000))
    tick_s = shim_log.TICK_MS / 1000
    for number, at in zip(found.seqs, found.times, strict=True):
        assert 0 <= true[number] - at <= tick_s + 0.0011
    for since in (START_MS / 1000, true[first], true[rows[-5][0]], true[rows[-1][0]] + 60):
        shown = set(logfile.select(tmp_path, Limits(100_000, since=since)).seqs)
        surely = {n for n, at in true.items() if n >= first and at >= since + 2 * tick_s}
        maybe = {n for n, at in true.items() if n >= first and at >= since - 2 * tick_s}
        begun_before = {min(maybe) - 1} if maybe else {rows[-1][0]}  # a line whose rest came later
        assert surely <= shown <= maybe | begun_before


def test_the_last_line_counts_without_its_end_once_the_writer_has_ended(tmp_path: Path) -> None:
    log = Log(str(tmp_path))
    log.write(b"a\nb", START_MS)
    assert logfile.select(tmp_path, Limits()).lines == ("a",)
    ended = logfile.select(tmp_path, Limits(partial=True))
    assert (ended.lines, ended.next_seq) == (("a", "b"), 3)
    assert logfile.select(tmp_path, Limits(partial=True, pattern="b")).seqs == (2,)


def test_records_stay_a_share_of_the_log_however_many_bursts_come(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shim_log, "SEGMENT_BYTES", 1 << 20)
    monkeypatch.setattr(shim_log, "TIMES_BYTES", 4096)
    log = Log(str(tmp_path))
    for n in range(20_000):
        log.write(b".\n", START_MS + n * 100)
    times = (tmp_path / "times.1").stat().st_size
    assert times <= 4096 + 40_000 // 4 + RECORD_BYTES
    found = logfile.select(tmp_path, Limits(3))
    assert found.seqs == (19_998, 19_999, 20_000)
    assert found.times[-1] > 0


def test_rotated_times_go_with_their_segment_and_a_log_without_times_is_read(tmp_path: Path) -> None:
    written(tmp_path, 1)
    numbers = {p.suffix for p in tmp_path.glob("log.*")}
    assert {p.suffix for p in tmp_path.glob("times.*")} <= numbers
    assert len(numbers) == 2
    whole = got(logfile.select(tmp_path, Limits(100_000)))
    for path in tmp_path.glob("times.*"):
        path.unlink()
    bare = logfile.select(tmp_path, Limits(100_000))
    assert got(bare) == whole
    assert set(bare.times) == {0.0}


def test_a_record_that_was_cut_short_is_written_over(tmp_path: Path) -> None:
    log = KeptLog(str(tmp_path))
    log.write(b"a\n", START_MS)
    log.close()
    times = tmp_path / "times.1"
    times.write_bytes(times.read_bytes() + b"\1\2\3")
    again = KeptLog(str(tmp_path))
    again.write(b"b\n", START_MS + 5000)
    again.close()
    found = logfile.select(tmp_path, Limits())
    assert found.times == (START_MS / 1000, START_MS / 1000 + 5)


def test_a_container_s_lines_have_the_engine_s_times(tmp_path: Path) -> None:
    copy = OutputCopy(None, "c", tmp_path, None)
    copy._keep(
        [("2026-11-29T19:14:00.006Z", b"a\n"), ("2026-11-29T19:14:00.007Z", b"b\n"), ("2026-11-29T19:15:00Z", b"c\n")]
    )
    copy.close()
    found = logfile.select(tmp_path, Limits())
    assert found.lines == ("a", "b", "c")
    assert [round(at - found.times[0]) for at in found.times] == [0, 0, 60]
    assert logfile.select(tmp_path, Limits(since=found.times[0] + 30)).lines == ("c",)


@pytest.mark.parametrize("pattern", ["[", "(?=a)", r"(x)\1", "(a{1000}){1000}"])
def test_a_pattern_that_is_none_is_refused_with_its_fault(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(InvalidSpec, match="cannot be searched for") as refused:
        logfile.select(tmp_path, Limits(pattern=pattern))
    assert refused.value.errors[0]["path"] == "grep"


def test_a_catastrophic_pattern_takes_time_linear_in_the_text(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(logfile, "PIECE_BYTES", 1 << 20)
    Log(str(tmp_path)).write(b"a" * 60_000 + b"b\n", START_MS)
    assert logfile.select(tmp_path, Limits(pattern="^(a+)+$")).lines == ()

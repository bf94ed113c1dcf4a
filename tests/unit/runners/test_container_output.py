"""The engine's log stream, taken apart, and taken up again exactly where it was left."""

import pytest

from moorage.runners.containers.output import KeptLog, Position, PositionFile, _Reader, frames


def frame(at, text):
    data = f"{at} {text}".encode()
    return b"\1\0\0\0" + len(data).to_bytes(4, "big") + data


STREAM = [("01", "a\n"), ("01", "b\n"), ("02", "c\n"), ("02", "d\n"), ("02", "e\n"), ("03", "f\n")]


@pytest.mark.parametrize("size", [1, 3, 8, 11, 1000])
async def test_frames_are_found_however_the_stream_is_cut(size):
    whole = b"".join(frame(*piece) for piece in STREAM)

    async def chunks():
        for start in range(0, len(whole), size):
            yield whole[start : start + size]

    found = [piece async for pieces in frames(chunks()) for piece in pieces]
    assert found == [(at, text.encode()) for at, text in STREAM]


@pytest.mark.parametrize("done", range(len(STREAM) + 1))
def test_a_reader_that_comes_back_takes_each_piece_once(done):
    first = _Reader("", 0, 0)
    assert all(first.is_new(at) for at, _ in STREAM[:done])
    again = _Reader(first.at, first.pieces, 0)
    assert [text for at, text in STREAM if again.is_new(at)] == [text for _, text in STREAM[done:]]


@pytest.mark.parametrize("ahead", range(4))
def test_pieces_that_reached_the_log_and_not_the_position_are_skipped_too(ahead):
    reader = _Reader("01", 2, ahead)
    assert [text for at, text in STREAM if reader.is_new(at)] == [text for _, text in STREAM[2 + ahead :]]


def test_a_piece_with_an_older_time_than_the_one_before_is_not_lost():
    stream = [("01", "a"), ("03", "b"), ("02", "c"), ("03", "d")]
    first = _Reader("", 0, 0)
    assert all(first.is_new(at) for at, _ in stream[:2])
    again = _Reader(first.at, first.pieces, 0)
    assert [text for at, text in stream if again.is_new(at)] == ["c", "d"]


def test_a_position_is_read_back_and_a_log_goes_on_in_its_newest_segment(tmp_path):
    kept = PositionFile(tmp_path / "p")
    assert kept.load() == Position()
    kept.save(Position("2026-11-29T19:14:00.006413669Z", 12, 345))
    kept.save(Position("2026-11-29T19:14:00Z", 1, 2))
    assert kept.load() == Position("2026-11-29T19:14:00Z", 1, 2)
    kept.close()
    (tmp_path / "log.1").write_text("a\n")
    (tmp_path / "log.2").write_text("b\nc\n")
    log = KeptLog(str(tmp_path))
    assert log.next_line == 4
    log.write(b"d\n")
    log.close()
    assert (tmp_path / "log.2").read_text() == "b\nc\nd\n"

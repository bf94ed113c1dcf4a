"""What the demonstration shows fits where it is shown."""

import pytest

from moorage.cli.demo.narrator import Stream


def test_an_answer_that_comes_in_pieces_is_wrapped_between_words(capsys: pytest.CaptureFixture[str]):
    stream = Stream(20)
    for piece in ("A har", "bour is a ", "place whe", "re ships\nrest."):
        stream(piece)
    stream.end()
    lines = [line.strip().removeprefix("│ ") for line in capsys.readouterr().out.splitlines()]
    assert " ".join(lines) == "A harbour is a place where ships rest."
    assert all(len(line) <= 20 for line in lines)

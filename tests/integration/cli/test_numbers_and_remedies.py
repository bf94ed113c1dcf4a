"""What a command refuses before it sends anything, and that what it advises instead is something that helps."""

from collections.abc import Iterator

import pytest
from stub_api import StubApi

from moorage.cli.main import main


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


@pytest.mark.parametrize("value", ["nan", "inf", "1e400", "-1e400", "much"])
@pytest.mark.parametrize(
    "words",
    [
        ["evidence", "gemma", "--revision", "2", "--metric", "eval", "--samples", "5", "--value"],
        ["adopt", "http://10.0.0.7:8000", "--name", "llama", "--wait", "--timeout"],
        ["simulate", "--machines", "m.csv", "--trace", "t.csv", "--limits"],
    ],
    ids=lambda words: words[0],
)
def test_a_number_that_is_none_is_refused_as_usage_and_nothing_is_sent(
    words: list[str], value: str, api: StubApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, value], api.env) == 2
    shown = capsys.readouterr()
    assert "defect" not in shown.err
    assert words[0] == "adopt" or value == "much" or "finite number" in shown.err or "range" in shown.err
    assert api.requests == []

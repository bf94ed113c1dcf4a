"""A replica to which gateways send nothing is not shown as one that gets requests."""

from typing import Any

import pytest

from moorage.cli.commands.status import words

BAD = {"gateway": "g-1", "why": "bad_answers", "bad": 5, "answered": "502", "tried_in_s": 1.0, "of": 2}
GONE = {"gateway": "g-2", "why": "unreachable", "bad": 0, "answered": None, "tried_in_s": 1.0, "of": 2}


def told(**more: Any) -> tuple[str, str]:
    replica = {"ordinal": 0, "attempt": 1, "status": "running", "reason": {"message": "healthy"}, **more}
    shown = words({"name": "gemma", "phase": "ACTIVE", "replicas": [replica]}, 0.0)
    row = shown.splitlines()[-1].split(maxsplit=6)
    return row[2], row[6]


@pytest.mark.parametrize(
    ("by", "gateways", "shown"),
    [
        ([GONE], 1, ("aside", "put aside by the gateway: it cannot be reached")),
        (
            [BAD, GONE],
            2,
            ("aside", "put aside by every gateway: it answered badly 5 times in a row, last with 502"),
        ),
        ([GONE], 3, ("partly", "put aside by 1 of 3 gateways: it cannot be reached")),
    ],
)
def test_the_column_says_so_and_the_line_says_why(by: list[object], gateways: int, shown: tuple[str, str]) -> None:
    assert told(routed=True, put_aside={"by": by, "gateways": gateways}) == shown


def test_one_that_is_not_routed_keeps_its_own_reason() -> None:
    assert told(routed=False, put_aside={"by": [GONE], "gateways": 1}) == ("no", "healthy")
    assert told(routed=True, put_aside=None) == ("yes", "healthy")

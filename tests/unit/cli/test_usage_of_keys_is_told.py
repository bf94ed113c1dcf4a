"""The usage of keys is asked for in the command's own words, and what is told of a key is true."""

import pytest

from moorage.cli.commands.key_usage import first_day, last_day, usage_table
from moorage.domain.errors import InvalidSpec

NOW = 1_780_000_000.0
TODAY = "2026-05-28"
NONE_USED = {"key": "v1", "key_id": "key-1", "bucket": "day", "from": "2026-05-01", "to": TODAY, "items": []}


def test_a_key_that_did_not_use_one_endpoint_is_not_said_to_be_unused():
    assert usage_table(NONE_USED, "nope").empty == f"v1 did not use endpoint nope from 2026-05-01 to {TODAY}"
    assert usage_table(NONE_USED).empty == f"v1 was not used from 2026-05-01 to {TODAY}"


@pytest.mark.parametrize(
    ("since", "until", "says"),
    [
        ("3d", "2020-01-01", "--since is 2026-05-25, which lies after --until 2020-01-01"),
        ("3d", "yesterday", "--until yesterday is not a day"),
        ("2026-02-30", None, "--since 2026-02-30 is not a day"),
        ("2026-06-30", None, f"--since 2026-06-30 lies after today, {TODAY}"),
        ("soon", None, "--since soon is neither a day nor how long back"),
    ],
)
def test_days_that_are_none_are_refused_by_the_option_that_named_them(since: str, until: str | None, says: str):
    with pytest.raises(InvalidSpec) as refused:
        last_day(until, first_day(since, NOW), TODAY)
    assert refused.value.message.startswith(says)
    assert refused.value.remedy


@pytest.mark.parametrize(("since", "until"), [("3d", None), ("2026-01-01", "2026-01-01"), ("2026-01-01", TODAY)])
def test_days_in_their_order_are_asked_for_as_they_were_given(since: str, until: str | None):
    assert last_day(until, first_day(since, NOW), TODAY) == until

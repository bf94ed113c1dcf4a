"""Label selectors."""

import pytest

from moorage.control.paging import selector
from moorage.domain.errors import InvalidSpec

LABELS = {"team": "search", "tier": "dev", "moorage/rack": "r1"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        (None, True),
        ("", True),
        ("team=search", True),
        (" team = search , tier=dev ", True),
        ("team=search,tier=prod", False),
        ("team!=search", False),
        ("team!=ads", True),
        ("owner!=ann", True),
        ("tier", True),
        ("owner", False),
        ("moorage/rack=r1", True),
        ("team=a=b", False),
    ],
)
def test_all_terms_of_a_selector_must_hold(text: str | None, matches: bool) -> None:
    assert all(term.matches(LABELS) for term in selector(text)) is matches


@pytest.mark.parametrize("text", ["=x", "team=", "team=a,,b=c", "!=x", "  ,"])
def test_a_selector_that_says_nothing_is_refused_with_the_place(text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        selector(text)
    assert caught.value.errors[0]["path"] == "labels"

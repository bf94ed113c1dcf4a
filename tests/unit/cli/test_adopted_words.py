"""What people are told of a server that somebody else started is what is done with it, and no more."""

from typing import Any

import pytest

from moorage.cli.commands.adopt import told
from moorage.cli.commands.status import words

GATEWAY = "http://127.0.0.1:7070/v1"


def shown(mode: str) -> str:
    value: dict[str, Any] = {"name": "zo", "phase": "READY", "serving": False, "url": GATEWAY, "model": "zo"}
    return words({**value, "upstream": {"url": "http://box:8000", "mode": mode}}, 0.0, None)


def test_one_that_is_only_observed_is_shown_no_address_of_ours() -> None:
    assert GATEWAY not in shown("observe")
    assert "none: it is only observed; ask it itself at http://box:8000" in shown("observe")


@pytest.mark.parametrize("mode", ["traffic", "lifecycle"])
def test_one_that_gets_requests_is_shown_where_they_go(mode: str) -> None:
    assert f"{GATEWAY}   model zo" in shown(mode)


@pytest.mark.parametrize(
    ("mode", "means"),
    [
        ("observe", "zo: adopted; it is only observed"),
        ("traffic", "zo: adopted; it is given traffic"),
        ("lifecycle", "zo: adopted; it is given traffic, and ours to end"),
    ],
)
def test_an_adoption_says_what_it_means(mode: str, means: str) -> None:
    assert told("zo", mode, changed=True).splitlines()[0] == means
    assert told("zo", mode, changed=False).splitlines()[0] == means.replace("adopted", "was adopted already")

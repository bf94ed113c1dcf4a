"""What is said of an object that is not there: one form, and a command that lists things of its kind."""

import pytest

from moorage.control.reading import missing
from moorage.domain.nouns import Deployment, Machine, Noun, Operation, Run


@pytest.mark.parametrize(
    ("kind", "namespace", "message", "remedy"),
    [
        (Deployment, "default", "there is no deployment default/x", "`moor ls`; deleted ones with `moor ls --deleted`"),
        (Run, "default", "there is no run default/x", "`moor ls`; deleted ones with `moor ls --deleted`"),
        (Operation, None, "there is no operation x", "`moor operations list`"),
        (Machine, None, "there is no machine x", "`moor ls machines`"),
    ],
)
def test_what_is_missing_is_told_in_one_form_with_the_command_that_lists_its_kind(
    kind: type[Noun], namespace: str | None, message: str, remedy: str
) -> None:
    error = missing(kind, namespace, "x")
    assert error.message == message
    assert error.remedy == f"see what there is with {remedy}"
    assert error.target == f"{kind.kind} {message.rpartition(' ')[2]}"

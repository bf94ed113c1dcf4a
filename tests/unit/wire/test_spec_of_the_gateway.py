"""How gateways treat a deployment's requests, as its spec says it: defaults, bounds, and that a change is live."""

import pytest

from moorage.domain.errors import InvalidSpec
from moorage.wire.spec import document, live_part, normalise, revision_part
from moorage.wire.supported import unsupported


def plain(**gateway):
    return normalise(
        document({"kind": "Deployment", "name": "a", "runtime": {"command": ["server"]}, "gateway": gateway})
    )


def test_nothing_is_kept_together_or_commented_and_no_post_is_repeated_unless_asked_for():
    gateway = plain()["gateway"]
    assert (gateway["affinity"], gateway["retry"], gateway["hold_comments"]) == ("none", "idempotent", None)


@pytest.mark.parametrize("gateway", [{"affinity": "session"}, {"retry": "always"}, {"hold_comments": "15s"}])
def test_a_change_of_it_is_supported_and_makes_no_new_revision(gateway):
    before, after = plain(), plain(**gateway)
    assert not unsupported(after)
    assert revision_part(before) == revision_part(after)
    assert live_part(before) != live_part(after)


@pytest.mark.parametrize("gateway", [{"retry": "sometimes"}, {"affinity": "sticky"}, {"hold_comments": "0.5s"}])
def test_what_it_cannot_be_is_refused(gateway):
    with pytest.raises(InvalidSpec):
        plain(**gateway)

"""`moor endpoint bind`: what stands for a route, and what does not."""

import pytest

from moorage.cli.commands.endpoints import weights_of
from moorage.domain.errors import InvalidSpec


def test_a_deployment_alone_has_everything_and_weights_are_as_written():
    assert weights_of(("gemma",)) == {"gemma": 100}
    assert weights_of(("gemma=90", "llama=0")) == {"gemma": 90, "llama": 0}


@pytest.mark.parametrize("routes", [("=1",), ("gemma=",), ("gemma=x",), ("gemma=-1",), ("gemma=²",), ("a", "a=2")])
def test_what_is_no_route_is_refused_with_a_remedy(routes):
    with pytest.raises(InvalidSpec) as refused:
        weights_of(routes)
    assert refused.value.remedy

"""The table of endpoints that people made: it has one state. What they are bound to is notes in their history."""

from collections.abc import Mapping

from moorage.domain.states import EndpointState as S
from moorage.domain.transitions import Table

TRIGGERS: Mapping[str, str] = {}
"""Nothing moves it."""

ENDPOINT = Table("Endpoint", S, (S.ACTIVE,), ())

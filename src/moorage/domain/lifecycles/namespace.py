"""The namespace's table: it has one state. What people set about it (pool, quota) are notes in its history."""

from collections.abc import Mapping

from moorage.domain.states import NamespaceState as S
from moorage.domain.transitions import Table

TRIGGERS: Mapping[str, str] = {}
"""Nothing moves it."""

NAMESPACE = Table("Namespace", S, (S.ACTIVE,), ())

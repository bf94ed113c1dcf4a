"""The table of clients' keys: one is good until somebody revokes it. A note in its history says what else was set."""

from collections.abc import Mapping

from moorage.domain.states import KeyState as S
from moorage.domain.transitions import Table, rows

REVOKED = "revoked"

TRIGGERS: Mapping[str, str] = {REVOKED: "A person revoked it: gateways refuse it as soon as they have heard of it."}

KEY = Table("Key", S, (S.ACTIVE,), rows(S.ACTIVE, REVOKED, S.REVOKED))

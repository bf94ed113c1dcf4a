"""What every row has, whichever noun it is. The nouns themselves are in `nouns`, which everybody else imports from."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

from moorage.domain.reasons import Reason
from moorage.domain.written import row

JsonMap = Mapping[str, Any]


@row
class Noun:
    """What every row has. `state_field` names the attribute that its transition table governs."""

    kind: ClassVar[str] = "Noun"
    state_field: ClassVar[str] = "state"

    uid: str
    namespace: str = "default"
    name: str = ""
    version: int = 1
    created_at: float = 0.0
    updated_at: float = 0.0
    reason: Reason | None = None
    labels: JsonMap = field(default_factory=dict)
    annotations: JsonMap = field(default_factory=dict)

    @property
    def state_word(self) -> str:
        """The state as a plain word, whichever field it lives in."""
        return str(getattr(self, self.state_field))

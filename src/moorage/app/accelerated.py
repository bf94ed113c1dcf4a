"""Which compiled parts the gateway of this home uses, in words. Called by `reloading` and `commands`.

Here: reading it out of what the gateway's master tells. Not here: what is used and why not
(`moorage.gateway.accelerators`).
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moorage.app.home import Home
from moorage.gateway import holding
from moorage.gateway.accelerators import PARTS

STARTS_S = 5.0
"""How long a gateway that answers already may take until all of its processes have said what they use."""
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Accelerated:
    """What its processes use.

    Args:
        parts: those that all of them use.
        unused: why not all that was built is; empty where nothing is amiss, or nothing was built.
    """

    parts: tuple[str, ...] = ()
    unused: str = ""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "Accelerated":
        """From what a master tells."""
        each = told.get("accelerators") or [[]]
        parts = tuple(part for part in PARTS if all(part in of_one for of_one in each))
        return cls(parts, " ".join(str(told.get("accelerators_unused") or "").split()))

    def line(self) -> str:
        """What a person is told."""
        used = f"accelerators in use: {' and '.join(self.parts) or 'none'}"
        if not self.unused:
            return used
        return f"{used}, since {self.unused}; `make accelerators`, then `moor gateway --reload`"


def used_by(home: Home) -> Accelerated:
    """What the gateway of this home uses, once its processes have said so."""
    deadline = time.monotonic() + STARTS_S
    while (told := holding.told(home.gateway_state)).get("state") == "starting" and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return Accelerated.of(told)

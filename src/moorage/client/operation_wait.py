"""A wait for an operation: `why`, `logs` and `wait` know no operations, so what it advises are the commands that do.

How it is judged is in `waiting`, the loop in `watching`. Called by the operations' `wait`.
"""

from dataclasses import dataclass

from moorage.client.watching import Watch


@dataclass(frozen=True, slots=True)
class OperationWatch(Watch):
    """A wait for the end of an operation; `name` is its id."""

    @property
    def remedy(self) -> str:
        """How to look further."""
        return f"look further with `moor operations get {self.name}`"

    @property
    def onward(self) -> str:
        """How to wait on, once time is over."""
        return f"; wait on with `moor operations watch {self.name}`"

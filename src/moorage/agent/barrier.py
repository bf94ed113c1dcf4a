"""The barrier of a gang as one member waits at it: until the control plane says go, or the member is stopped.

What opens it is decided by the control plane; it says so in the assignment, again and again, so a word that was lost
is heard the next time. Made for each worker by `held`, waited at by `preparing`.
"""

import asyncio

from moorage.wire.agent import Assignment


class Barrier:
    """One member's.

    Args:
        assignment: as it was told first. Without a barrier in its launch, or with `go` in it, the way is free.
    """

    def __init__(self, assignment: Assignment) -> None:
        self._opened: asyncio.Future[Assignment] = asyncio.get_running_loop().create_future()
        if not assignment.launch.barrier or assignment.go:
            self._opened.set_result(assignment)

    @property
    def open(self) -> bool:
        """Whether the way is free."""
        return self._opened.done()

    def go(self, assignment: Assignment) -> None:
        """The control plane says go; the first word counts."""
        if not self._opened.done():
            self._opened.set_result(assignment)

    async def passed(self) -> Assignment:
        """Wait until the way is free; the assignment that says so, with the leader and the hosts of the members."""
        return await asyncio.shield(self._opened)

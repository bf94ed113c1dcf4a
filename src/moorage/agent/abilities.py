"""What this machine can do for its workers beside running them, found out once and reported at each join.

A capability that is missing keeps work that needs it off this machine. Called by the session and by `providing`.
"""

import asyncio
import importlib.util

from moorage.runners.mounting import why_no_mounts

LOGS, EXEC, PORTS, MOUNTS, IDENTITY, MODELS = "logs", "exec", "ports", "mounts", "identity", "models"
ALWAYS = (LOGS, EXEC, PORTS, IDENTITY)
"""What every agent of this version does: answers for logs, runs commands beside workers, relays external ports, keeps
certificates.
"""


class Abilities:
    """Finds out, at the first question.

    Args:
        python: interpreter of the shims, in which mounts are tried.
    """

    def __init__(self, python: str) -> None:
        self._python = python
        self._mounts: asyncio.Future[str | None] | None = None

    async def why_no_mounts(self) -> str | None:
        """Why plain processes cannot be given mounts here; None: they can."""
        if self._mounts is None:
            self._mounts = asyncio.ensure_future(asyncio.to_thread(why_no_mounts, self._python))
        return await asyncio.shield(self._mounts)

    async def reported(self) -> tuple[str, ...]:
        """Words for the join; the scheduler matches on them."""
        mounts = () if await self.why_no_mounts() else (MOUNTS,)
        models = (MODELS,) if importlib.util.find_spec("huggingface_hub") else ()
        return (*ALWAYS, *mounts, *models)

"""Servers that somebody else started and that are to be ours to end: identified, and ended by exactly that identity.

A process is pinned by a pidfd before it is looked at and signalled through it, so that no signal can reach another one
that was given its pid. A container is meant by its whole id. Nothing is watched here: whether it serves is seen through
its address. Called by the session with each `Work`.
"""

import asyncio
import os
import select
import signal as signals
from typing import Any

from moorage.agent.asked import Asked
from moorage.agent.held import signal_number
from moorage.agent.link import Link, LinkError
from moorage.agent.means import Means
from moorage.domain.errors import RunnerError
from moorage.runners.containers.host import ContainerHost
from moorage.runners.holders import listens_on
from moorage.runners.identity import COOKIE_VARIABLE, alive, boot_id
from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import slurp, start_ticks
from moorage.wire.claim import ClaimAnswer, ClaimRequest

KILLED_S = 10.0
"""So long a killed process may take to be gone before that is told as it is."""
SHOWN = 200
"""Characters of a command line that people are shown."""


class ClaimDesk:
    """Serves what the control plane asks.

    Args:
        means: the engines and the log of this agent.
        link: where answers go.
    """

    def __init__(self, means: Means, link: Link) -> None:
        self._engines = means.engines
        self._log = means.log
        self._link = link
        self.take = Asked(self._serve, means.log).take

    async def _serve(self, request: ClaimRequest) -> None:
        answer = await self._answer(request)
        try:
            await self._link.claim(request.id, answer)
        except LinkError as cause:
            self._log.info("nobody took the answer to a claim", why=str(cause))

    async def _answer(self, request: ClaimRequest) -> ClaimAnswer:
        kind, _, name = request.resource.partition(":")
        if kind == "pid" and name.isdigit():
            if request.action == "identify":
                return await asyncio.to_thread(identify, int(name), request.port)
            return await self._end_process(request)
        if kind == "container" and name:
            return await self._container(request, name)
        return ClaimAnswer(error=f"{request.resource} is neither pid:N nor container:ID")

    # Processes

    async def _end_process(self, request: ClaimRequest) -> ClaimAnswer:
        proof = request.proof
        pid, ticks = int(proof.get("pid", 0)), int(proof.get("start_ticks", 0))
        if not pid or not ticks or proof.get("boot_id") != boot_id() or not alive(pid, ticks):
            return ClaimAnswer(gone=True, proof=proof)  # that process of that boot is over
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return ClaimAnswer(gone=True, proof=proof)
        try:
            if start_ticks(pid) != ticks:
                return ClaimAnswer(gone=True, proof=proof)
            self._log.warning("ending a process that was claimed", pid=pid, grace_s=request.grace_s)
            gone = await _ended(fd, signal_number(request.signal), request.grace_s) or await _ended(
                fd, signals.SIGKILL, KILLED_S
            )
        finally:
            os.close(fd)
        return ClaimAnswer(found=True, gone=gone, proof=proof, error=None if gone else "it does not end when killed")

    # Containers

    async def _container(self, request: ClaimRequest, name: str) -> ClaimAnswer:
        if request.action == "end":
            name = str(request.proof.get("container") or name)
        wanted = request.proof.get("engine")
        missing: list[str] = []
        await self._engines.answering()  # looks for engines that were not needed so far
        for host in self._engines.containers():
            if wanted is not None and host.name != wanted:
                continue
            try:
                found = await host.described(name)
                if found is not None:
                    return await self._of(host, found, request)
            except RunnerError as cause:
                missing.append(f"{host.name}: {cause.message}")
        if missing:
            return ClaimAnswer(error="; ".join(missing))
        if wanted is not None and wanted not in {h.name for h in self._engines.containers()}:
            return ClaimAnswer(error=f"{wanted} does not answer")
        return ClaimAnswer(gone=request.action == "end", proof=request.proof)

    async def _of(self, host: ContainerHost, found: dict[str, Any], request: ClaimRequest) -> ClaimAnswer:
        proof = {"container": str(found["Id"]), "engine": host.name}
        running = bool((found.get("State") or {}).get("Running"))
        if request.action == "end":
            if running:
                self._log.warning("ending a container that was claimed", container=proof["container"][:12])
                await host.stop_other(proof["container"], signal_number(request.signal), request.grace_s)
                again = await host.described(proof["container"])
                running = bool(((again or {}).get("State") or {}).get("Running"))
            return ClaimAnswer(found=True, gone=not running, proof=proof)
        command = " ".join([str(found.get("Path") or ""), *map(str, found.get("Args") or ())]).strip()
        env = (found.get("Config") or {}).get("Env") or ()
        ours = any(str(pair).startswith(f"{COOKIE_VARIABLE}=") for pair in env)
        return ClaimAnswer(found=running, proof=proof, command=command[:SHOWN], ours=ours)


def identify(pid: int, port: int | None) -> ClaimAnswer:
    """What a pid is now, if it is a process that runs."""
    ticks = start_ticks(pid)
    if not ticks or not alive(pid, ticks):
        return ClaimAnswer()
    number = procfs.number(pid)
    try:
        command = slurp(f"/proc/{number}/cmdline").replace(b"\0", b" ").decode("utf-8", "replace").strip()
        ours = f"{COOKIE_VARIABLE}=".encode() in slurp(f"/proc/{number}/environ")
    except OSError as cause:
        return ClaimAnswer(error=_unseen(pid, number, cause)) if alive(pid, ticks) else ClaimAnswer()
    proof = {"pid": pid, "start_ticks": ticks, "boot_id": boot_id()}
    holds = listens_on(pid, port) if port is not None else None
    return ClaimAnswer(found=True, proof=proof, command=command[:SHOWN], holds_port=holds, ours=ours)


def _unseen(pid: int, number: int | None, cause: OSError) -> str:
    """Why a process that runs cannot be looked at.

    Another user's is only what has another uid: being root does not open every process, such as that of a sandbox.
    """
    owner = _owner(number)
    if isinstance(cause, PermissionError) and owner is not None and owner != os.geteuid():
        return f"pid {pid} belongs to another user: it could be neither looked at nor ended"
    return f"pid {pid} cannot be looked at: {(cause.strerror or str(cause)).lower()}"


def _owner(number: int | None) -> int | None:
    """The uid that a process runs under; None where it cannot be told."""
    try:
        lines = slurp(f"/proc/{number}/status").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(b"Uid:")), None)


async def _ended(pidfd: int, number: int, limit_s: float) -> bool:
    """Signal it and wait for its end, as long as that."""
    try:
        signals.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return True
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(await asyncio.to_thread(poll.poll, int(limit_s * 1000)))

"""The agent's side of the protocol over HTTP: one method a message, four ways to fail.

Nothing here retries or waits; the loops in `session.py` do. Bodies are the models of `wire/agent.py`.
"""

from collections.abc import AsyncIterator
from typing import TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from moorage.wire.agent import (
    Heartbeat,
    HeartbeatAnswer,
    Join,
    Joined,
    LogLines,
    Reconcile,
    ReconcileAnswer,
    Report,
    ReportAnswer,
    Work,
)
from moorage.wire.cache import CacheAnswer
from moorage.wire.claim import ClaimAnswer
from moorage.wire.giving import IdentityAnswer, SecretsAnswer, SecretsRequest
from moorage.wire.inventory import InventoryAnswer

Answer = TypeVar("Answer", bound=BaseModel)
WORK_WAIT_S = 25.0
TIMEOUT_S = 10.0
DRIVE_SILENCE_S = 60.0
"""Between two pieces of a drive: the other side's disk may be busy, and a machine that is gone says nothing more."""


class LinkError(Exception):
    """A call to the control plane did not give an answer to go on with."""


class LinkDown(LinkError):
    """It cannot be reached, or it answers that it cannot answer now: try again later, keep everything running."""


class LinkDenied(LinkError):
    """The credential or token is not accepted (401, 403)."""


class LinkStale(LinkError):
    """It does not know this machine or incarnation (other 4xx): join again."""


class LinkRemoved(LinkError):
    """This machine was removed from the cluster (410): stop all and exit."""


class Link:
    """HTTP to one control plane.

    Args:
        server_url: such as `http://127.0.0.1:7420`.
        http: a client that uses no proxy.
    """

    def __init__(self, server_url: str, http: httpx.AsyncClient) -> None:
        self._base = f"{server_url}/api/v1/agent"
        self._http = http
        self.bearer: str | None = None

    async def join(self, message: Join) -> Joined:
        """Join or join again."""
        return await self._post("join", message, Joined)

    async def reconcile(self, message: Reconcile) -> ReconcileAnswer:
        """Say what is held."""
        return await self._post("reconcile", message, ReconcileAnswer)

    async def heartbeat(self, message: Heartbeat) -> HeartbeatAnswer:
        """Renew the lease."""
        return await self._post("heartbeat", message, HeartbeatAnswer)

    async def report(self, message: Report) -> ReportAnswer:
        """Say what was seen."""
        return await self._post("report", message, ReportAnswer)

    async def work(self, machine: str, incarnation: str, after: int) -> Work | None:
        """The desired set once its version is above `after`; None when it is not, for `WORK_WAIT_S`."""
        params: dict[str, str | int | float] = {
            "machine": machine,
            "incarnation": incarnation,
            "after": after,
            "wait_s": WORK_WAIT_S,
        }
        response = await self._send("GET", "work", params=params, timeout_s=WORK_WAIT_S + TIMEOUT_S)
        return None if response.status_code == 204 else _read(response, Work)

    async def secrets(self, message: SecretsRequest) -> SecretsAnswer:
        """The values that a worker's spec names."""
        return await self._post("secrets", message, SecretsAnswer, shown=False)

    async def identity(self, message: SecretsRequest) -> IdentityAnswer:
        """A certificate for a worker."""
        return await self._post("identity", message, IdentityAnswer, shown=False)

    async def drive(self, name: str, worker: str, epoch: int, incarnation: str) -> AsyncIterator[bytes]:
        """A drive of another machine, as it comes, for a worker that takes a copy of it."""
        params = {"worker": worker, "epoch": str(epoch), "incarnation": incarnation}
        timeout = httpx.Timeout(TIMEOUT_S, read=DRIVE_SILENCE_S)
        headers = {"Authorization": f"Bearer {self.bearer}"}
        address = f"{self._base}/drives/{name}"
        try:
            async with self._http.stream("GET", address, params=params, headers=headers, timeout=timeout) as answer:
                if not answer.is_success:
                    raise LinkDown(f"drives/{name}: {answer.status_code} {(await answer.aread())[:300]!r}")
                async for piece in answer.aiter_bytes():
                    yield piece
        except httpx.HTTPError as cause:
            raise LinkDown(f"drives/{name}: {type(cause).__name__} {cause}".strip()) from cause

    async def send_drive(self, request: str, pieces: AsyncIterator[bytes]) -> None:
        """Send a drive of this machine to another that waits for it."""
        headers = {"Authorization": f"Bearer {self.bearer}"}
        timeout = httpx.Timeout(TIMEOUT_S, read=DRIVE_SILENCE_S, write=DRIVE_SILENCE_S)
        address = f"{self._base}/drives/{request}"
        try:
            answer = await self._http.post(address, content=pieces, headers=headers, timeout=timeout)
        except httpx.HTTPError as cause:
            raise LinkDown(f"drives: {type(cause).__name__} {cause}".strip()) from cause
        if not answer.is_success:
            raise LinkStale(f"drives: {answer.status_code} {answer.text[:300]}")

    async def cache(self, request: str, answer: CacheAnswer) -> None:
        """Answer a request about the models that are kept here."""
        await self._send("POST", f"caches/{request}", content=answer.model_dump_json())

    async def logs(self, request: str, lines: LogLines) -> None:
        """Answer a request for log lines."""
        await self._send("POST", f"logs/{request}", content=lines.model_dump_json())

    async def inventory(self, request: str, answer: InventoryAnswer) -> None:
        """Answer a request for what is on this machine."""
        await self._send("POST", f"inventory/{request}", content=answer.model_dump_json())

    async def claim(self, request: str, answer: ClaimAnswer) -> None:
        """Answer a request about a server that somebody else started."""
        await self._send("POST", f"claims/{request}", content=answer.model_dump_json())

    async def _post(self, path: str, message: BaseModel, answer: type[Answer], *, shown: bool = True) -> Answer:
        response = await self._send("POST", path, content=message.model_dump_json())
        return _read(response, answer, shown=shown)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        content: str | None = None,
        params: dict[str, str | int | float] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.bearer}"} if self.bearer else {}
        if content is not None:
            headers["Content-Type"] = "application/json"
        try:
            response = await self._http.request(
                method, f"{self._base}/{path}", content=content, params=params, headers=headers, timeout=timeout_s
            )
        except httpx.HTTPError as cause:
            raise LinkDown(f"{path}: {type(cause).__name__} {cause}".strip()) from cause
        if response.is_success:
            return response
        text = f"{path}: {_said(response)}"
        if response.status_code in (401, 403):
            raise LinkDenied(text)
        if response.status_code == 410:
            raise LinkRemoved(text)
        if response.status_code >= 500 or response.status_code == 429:
            raise LinkDown(text)
        raise LinkStale(text)


def _said(response: httpx.Response) -> str:
    """What an answer that is an error says, in the words of the control plane where it has any."""
    try:
        told = response.json()
        words = [str(told[name]).rstrip(".") for name in ("message", "remedy") if told.get(name)]
    except (ValueError, AttributeError):  # a proxy's page, or anything else
        words = []
    return ". ".join(words) or f"{response.status_code} {response.text[:300]}"


def _read(response: httpx.Response, answer: type[Answer], *, shown: bool = True) -> Answer:
    """The answer as a message; `shown`: one that is none may be quoted in the error."""
    try:
        return answer.model_validate_json(response.content)
    except ValidationError as cause:
        if not shown:
            raise LinkDown(f"an answer that is not {answer.__name__}") from None
        raise LinkDown(f"an answer that is not {answer.__name__}: {response.text[:300]}") from cause

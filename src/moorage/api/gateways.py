"""Asking gateways about one request: they keep the attribution of their last requests, the server keeps none.

The address of each gateway is the one it reports. Called by the routing and requests routes.
"""

import asyncio
from typing import Any, Literal
from urllib.parse import quote

import httpx
import structlog

from moorage.domain.errors import NotFound, Unavailable
from moorage.ports import Clock

FORGET_S = 600.0
"""A gateway silent for ten minutes is not asked any more."""

ASK_TIMEOUT_S = 2.0
GATEWAYS_MAX = 256

log = structlog.get_logger("moorage.api")


class GatewayBook:
    """Where gateways are.

    Args:
        http: the client to ask with.
        clock: for forgetting.
        token: what gateways are asked with.
    """

    def __init__(self, http: httpx.AsyncClient, clock: Clock, token: str | None) -> None:
        self._http = http
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._clock = clock
        self._seen: dict[str, tuple[str, float]] = {}

    def remember(self, gateway: str, address: str | None) -> None:
        """A gateway reported from this address (`host:port` or a URL)."""
        if not address or (gateway not in self._seen and len(self._seen) >= GATEWAYS_MAX):
            return
        url = address if "://" in address else f"http://{address}"
        self._seen[gateway] = (url.rstrip("/"), self._clock.monotonic())

    async def request(self, uid: str) -> dict[str, Any]:
        """What any gateway knows of a request.

        Raises:
            NotFound: every gateway answered and none knows it.
            Unavailable: none knows it, and some did not answer.
        """
        addresses = self._addresses()
        answers = await asyncio.gather(*(self._ask(address, uid) for address in addresses))
        for answer in answers:
            if isinstance(answer, dict):
                return answer
        silent = [a for a, answer in zip(addresses, answers, strict=True) if answer is None]
        if silent:
            raise Unavailable(
                f"request {uid} is not known to the gateways that answered, and {', '.join(silent)} did not",
                remedy="try again, or see whether that gateway runs",
                target=f"Request {uid}",
                retry_after_s=5.0,
            )
        raise NotFound(
            f"no gateway knows request {uid}",
            remedy="gateways keep their last requests only; the id is in X-Request-Id of the answer",
            target=f"Request {uid}",
        )

    def _addresses(self) -> list[str]:
        now = self._clock.monotonic()
        self._seen = {g: (a, at) for g, (a, at) in self._seen.items() if now - at < FORGET_S}
        # Processes of one gateway tell the same address, where any of them answers for all.
        return list(dict.fromkeys(address for address, _ in self._seen.values()))

    async def _ask(self, address: str, uid: str) -> dict[str, Any] | Literal[False] | None:
        """The record; False when it is not known there; None when nobody answered."""
        url = f"{address}/moorage/requests/{quote(uid, safe='')}"
        try:
            answer = await self._http.get(url, headers=self._headers, timeout=ASK_TIMEOUT_S)
            if answer.status_code == 404:
                return False
            answer.raise_for_status()
            found = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            log.warning("a gateway did not answer", url=url, error=repr(error))
            return None
        return found if isinstance(found, dict) else None

"""Asking gateways about one request: they keep the attribution of their last requests, the server keeps none.

The address of each gateway is the one it reports. Called by the routing and requests routes.
"""

import asyncio
import re
from dataclasses import dataclass
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

ADDRESSES_MAX = 8
REPLACED_S = 30.0
"""After it, an address that a process of a gateway told is given up where another one told another address."""
_SLOT = re.compile(r"[/~]")
_CERTIFICATE = "name its certificate's file, or its authority's, to the control plane: SSL_CERT_FILE=ca.pem moor up"

log = structlog.get_logger("moorage.api")


@dataclass(frozen=True, slots=True)
class Silent:
    """A gateway that did not answer."""

    url: str
    why: str

    @property
    def untrusted(self) -> bool:
        """Since its certificate is not believed."""
        return "CERTIFICATE_VERIFY_FAILED" in self.why


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
        self._seen: dict[str, dict[str, float]] = {}
        """by gateway: its addresses, the one that was told last at the end, and when"""

    def remember(self, gateway: str, address: str | None) -> None:
        """A gateway reported from this address (`host:port` or a URL).

        Args:
            gateway: as it calls itself: `ID`, `ID/1`, `ID~2`, of which any process answers for all of `ID`.
        """
        name = _SLOT.split(gateway, 1)[0]
        if not address or (name not in self._seen and len(self._seen) >= GATEWAYS_MAX):
            return
        url = address if "://" in address else f"http://{address}"
        told = self._seen.pop(name, {})
        told.pop(url.rstrip("/"), None)
        now = self._clock.monotonic()
        fresh = {url: at for url, at in told.items() if now - at < REPLACED_S}
        self._seen[name] = {**dict(list(fresh.items())[-ADDRESSES_MAX:]), url.rstrip("/"): now}

    async def request(self, uid: str) -> dict[str, Any]:
        """What any gateway knows of a request.

        Raises:
            NotFound: every gateway answered and none knows it.
            Unavailable: none knows it, and some did not answer.
        """
        answers = await asyncio.gather(*(self._ask_one(urls, uid) for urls in self._addresses()))
        for answer in answers:
            if isinstance(answer, dict):
                return answer
        silent = [answer for answer in answers if isinstance(answer, Silent)]
        if silent:
            told = ", ".join(f"{each.url} did not answer ({each.why})" for each in silent)
            others = "no other gateway knows it" if len(silent) < len(answers) else "no other gateway is known"
            raise Unavailable(
                f"request {uid}: {told}, and {others}",
                remedy=_CERTIFICATE if any(each.untrusted for each in silent) else "see whether that gateway runs",
                target=f"Request {uid}",
                retry_after_s=5.0,
            )
        raise NotFound(
            f"no gateway knows request {uid}",
            remedy="gateways keep their last requests only; the id is in X-Request-Id of the answer",
            target=f"Request {uid}",
        )

    def _addresses(self) -> list[list[str]]:
        """Of each gateway, the one that was told last first."""
        now = self._clock.monotonic()
        self._seen = {name: told for name, told in self._seen.items() if now - max(told.values()) < FORGET_S}
        return [list(reversed(told)) for told in self._seen.values()]

    async def _ask_one(self, urls: list[str], uid: str) -> "dict[str, Any] | Literal[False] | Silent":
        """What a gateway says: the first of its addresses that answers."""
        first: Silent | None = None
        for url in urls:
            answer = await self._ask(url, uid)
            if not isinstance(answer, Silent):
                return answer
            first = first or answer
        assert first is not None  # each has an address
        return first

    async def _ask(self, address: str, uid: str) -> "dict[str, Any] | Literal[False] | Silent":
        """The record; False when it is not known there."""
        url = f"{address}/moorage/requests/{quote(uid, safe='')}"
        try:
            answer = await self._http.get(url, headers=self._headers, timeout=ASK_TIMEOUT_S)
            if answer.status_code == 404:
                return False
            answer.raise_for_status()
            found = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            log.warning("a gateway did not answer", url=url, error=repr(error))
            return Silent(address, str(error) or type(error).__name__)
        return found if isinstance(found, dict) else Silent(address, "what it answered is no record")

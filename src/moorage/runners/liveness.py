"""Probes of a server that was ready: still answering, or not.

A number of failed probes in a row withdraws it (news, not an end); failing without a break for longer than the spec
allows ends it. Called by the agent once a worker is ready; what an answer means is `readiness.judge_health`.
"""

from collections.abc import Callable

import httpx

from moorage.domain.reasons import Reason, reason
from moorage.ports import Clock
from moorage.runners.readiness import PROBE_TIMEOUT_S, body_of, describe, judge_health
from moorage.wire.agent import Live

PROBE_TIMEOUT_MIN_S = 2.0
"""A busy server may well take a second to answer."""


class LivenessProbe:
    """Probes one ready server for ever.

    Args:
        live: what the spec asks for.
        base_url: `http://HOST:PORT`.
        http: a client that uses no proxy and keeps no connection.
        clock: for intervals.
    """

    def __init__(self, live: Live, base_url: str, http: httpx.AsyncClient, clock: Clock) -> None:
        self._live = live
        self._base_url = base_url
        self._http = http
        self._clock = clock
        # No longer than the interval, so that a server that hangs is withdrawn about when one that refuses is.
        self._timeout_s = min(PROBE_TIMEOUT_S, max(PROBE_TIMEOUT_MIN_S, live.interval_s))

    async def watch(self, on_withdrawn: Callable[[Reason], None], on_back: Callable[[], None]) -> Reason:
        """Probe until it has failed for `fail_after_s` without a break; the reason of that.

        Args:
            on_withdrawn: told once when `failures` probes in a row failed.
            on_back: told once when it passes again after that.
        """
        live, clock = self._live, self._clock
        failed = 0
        since = 0.0
        while True:
            await clock.sleep(live.interval_s)
            error, status = await self._probe()
            if error is None:
                if failed >= live.failures:
                    on_back()
                failed = 0
                continue
            failed += 1
            since = clock.monotonic() if failed == 1 else since
            if failed == live.failures:
                on_withdrawn(reason("live.failing", n=failed, error=error, status=status, path=live.path))
            if clock.monotonic() - since >= live.fail_after_s:
                return reason("live.failed", d=live.fail_after_s, error=error, status=status, path=live.path)

    async def _probe(self) -> tuple[str | None, int | None]:
        """(error or None, status or None)."""
        try:
            response = await self._http.get(self._base_url + self._live.path, timeout=self._timeout_s)
        except httpx.HTTPError as cause:
            return describe(cause), None
        answer = judge_health(self._live.path, response.status_code, body_of(response))
        if answer.why is None:
            return None, response.status_code
        return str(answer.why.params.get("error") or f"status {response.status_code}"), response.status_code

"""Probes of a server that was ready: still answering, or not.

A number of failed probes in a row withdraws it (news, not an end); failing without a break for longer than the spec
allows ends it. A probe may take as long as the interval (1 s at least, 10 s at most), and the next begins an interval
after it began: a server that hangs is withdrawn `failures` intervals and one time-out after it was last well. Called by
the agent once a worker is ready; what an answer means is `readiness.judge_health`.
"""

from collections.abc import Callable

import httpx

from moorage.domain.reasons import Reason, reason
from moorage.ports import Clock
from moorage.runners.probing import PROBE_TIMEOUT_S, ProbeFailed, probe
from moorage.runners.readiness import judge_health
from moorage.wire.agent import Live

PROBE_TIMEOUT_MIN_S = 1.0
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
        wait_s = live.interval_s
        while True:
            await clock.sleep(wait_s)
            began = clock.monotonic()
            error, status = await self._probe()
            wait_s = max(0.0, began + live.interval_s - clock.monotonic())
            if error is None:
                if failed >= live.failures:
                    on_back()
                failed = 0
                continue
            failed += 1
            since = clock.monotonic() if failed == 1 else since
            if failed == live.failures:
                on_withdrawn(
                    reason("live.failing", n=failed, error=error, status=status, path=live.path, d=live.fail_after_s)
                )
            if clock.monotonic() - since >= live.fail_after_s:
                return reason("live.failed", d=live.fail_after_s, error=error, status=status, path=live.path)

    async def _probe(self) -> tuple[str | None, int | None]:
        """(error or None, status or None)."""
        live = self._live
        try:
            answer = await probe(self._http, "GET", self._base_url + live.path, total_s=self._timeout_s)
        except ProbeFailed as cause:
            return cause.error, cause.status
        judged = judge_health(live.path, answer.status, answer.json)
        if judged.why is None:
            return None, answer.status
        return str(judged.why.params.get("error") or f"status {answer.status}"), answer.status

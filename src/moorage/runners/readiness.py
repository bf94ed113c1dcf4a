"""When a model server is ready: healthy, and serving the model that was asked for.

`GET /health` first: refused connections, 503 and a body that says "loading" mean wait; 502, 504 and a body that
carries an error mean that it is up and cannot serve. Then `GET /v1/models` must list the expected id and aliases, and
where the spec asks for it a real request must work. Everything is structured; nothing is read out of log text. Each
question is bounded in size and time (`probing.py`); a body over its limit is a failure, after a few looks in a row.
Called by the agent for each worker with a readiness check; probes of a ready server are in `liveness.py`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from moorage.domain.reasons import Reason, reason
from moorage.ports import Clock
from moorage.runners.probing import BODY_BYTES_MAX, ProbeFailed, TooLarge, probe
from moorage.runners.progress import Progress
from moorage.wire.agent import Ready

WRONG_POLLS = 3
"""Polls in a row after which a wrong model or a failing request is final: some servers list a model late."""
PROGRESS_EVERY_S = 2.0
_WORKING = frozenset({"ok", "healthy", "ready", "no slot available"})


@dataclass(frozen=True, slots=True)
class Answer:
    """What one look at a server said: ready, not yet (`final` False) or never (`final` True)."""

    why: Reason | None = None
    final: bool = False
    patient: bool = False
    """final only after `WRONG_POLLS` in a row"""

    @property
    def ready(self) -> bool:
        """Whether it passed everything."""
        return self.why is None


class ReadinessCheck:
    """Polls one server until it is ready or never will be.

    Args:
        check: what the spec asks for.
        base_url: `http://HOST:PORT`.
        http: a client that uses no proxy and keeps no connection.
        clock: for intervals and limits.
        progress: looks at the server's log, I/O and memory.
    """

    def __init__(
        self,
        check: Ready,
        base_url: str,
        http: httpx.AsyncClient,
        clock: Clock,
        progress: Callable[[], Progress],
    ) -> None:
        self._check = check
        self._base_url = base_url
        self._http = http
        self._clock = clock
        self._progress = progress

    async def wait(self, on_waiting: Callable[[Reason], None]) -> Reason | None:
        """Poll until the end.

        Args:
            on_waiting: told of the reason each time that it is another than before.

        Returns:
            None when ready; else the final reason why it never will be.
        """
        check, clock = self._check, self._clock
        began = moved_at = looked_at = clock.monotonic()
        before = self._progress()
        last: Reason | None = None
        wrong = 0
        while True:
            answer = await self.look()
            if answer.why is None:
                if check.warmup_s:
                    await clock.sleep(check.warmup_s)
                return None
            wrong = wrong + 1 if answer.patient else 0
            if answer.final and (not answer.patient or wrong >= WRONG_POLLS):
                return answer.why
            if answer.why != last:
                last = answer.why
                on_waiting(last)
            now = clock.monotonic()
            if now - looked_at >= min(PROGRESS_EVERY_S, check.stall_s / 4):
                seen, looked_at = self._progress(), now
                if seen.moved_since(before):
                    before, moved_at = seen, now
            if now - began >= check.timeout_s:
                return reason("ready.timed_out", d=check.timeout_s, last=last.message)
            if now - moved_at >= check.stall_s:
                return reason("ready.stalled", d=check.stall_s, last=last.message)
            await clock.sleep(check.interval_s)

    async def look(self) -> Answer:
        """One look: health, then the model list, then the request; the first that is not right answers."""
        health = await self._health()
        if not health.ready:
            return health
        if self._check.model:
            models = await self._models(self._check.model)
            if not models.ready:
                return models
        return await self._request() if self._check.request else health

    async def _health(self) -> Answer:
        path = self._check.path
        try:
            answer = await probe(self._http, "GET", self._base_url + path)
        except ProbeFailed as cause:
            return _unanswered(path, cause)
        return judge_health(path, answer.status, answer.json)

    async def _models(self, model: str) -> Answer:
        expected, path = (model, *self._check.aliases), "/v1/models"
        try:
            answer = await probe(self._http, "GET", self._base_url + path, bytes_max=BODY_BYTES_MAX)
        except ProbeFailed as cause:
            return _unanswered(path, cause)
        if answer.status == 503:
            return Answer(reason("ready.waiting", path=path, status=503))
        listed = listed_models(answer.json) if answer.status == 200 else []
        if set(expected) <= set(listed):
            return Answer()
        return Answer(
            reason(
                "ready.wrong_model",
                missing=", ".join(dict.fromkeys(name for name in expected if name not in listed)),
                listed=", ".join(listed)[:500] or "nothing",
            ),
            final=True,
            patient=True,
        )

    async def _request(self) -> Answer:
        wanted = dict(self._check.request or {})
        url = self._base_url + str(wanted.pop("path", "/v1/chat/completions"))
        body, limit = wanted.pop("body", wanted), self._check.timeout_s
        try:
            answer = await probe(self._http, "POST", url, bytes_max=BODY_BYTES_MAX, total_s=limit, body=body)
        except ProbeFailed as cause:
            why = reason("ready.request_failed", error=cause.error, status=cause.status)
            return Answer(why, final=True, patient=True)
        if 200 <= answer.status < 300:
            return Answer()
        text = error_in(answer.json) or answer.text[:500]
        why = reason("ready.request_failed", error=text, status=answer.status)
        return Answer(why, final=answer.status != 503, patient=True)


def _unanswered(path: str, cause: ProbeFailed) -> Answer:
    """Nothing to judge: waiting, unless what came was too much, which is final when it comes again and again."""
    endless = isinstance(cause, TooLarge)
    why = reason("ready.failed" if endless else "ready.waiting", path=path, status=cause.status, error=cause.error)
    return Answer(why, final=endless, patient=endless)


def judge_health(path: str, status: int, body: Any) -> Answer:
    """What a health answer means.

    Args:
        path: what was asked.
        status: HTTP status.
        body: the JSON body, or its text, or None.
    """
    error = error_in(body)
    if status == 503 or says_loading(body):
        return Answer(reason("ready.waiting", path=path, status=status, error=error))
    if status < 300 and not error:
        return Answer()
    if status in (502, 504) or error:
        return Answer(reason("ready.failed", path=path, status=status, error=error), final=True)
    return Answer(reason("ready.waiting", path=path, status=status))


def says_loading(body: Any) -> bool:
    """Whether the body says that it is loading: a status word, or an error object about loading."""
    if not isinstance(body, dict):
        return False
    status = body.get("status")
    return isinstance(status, str) and status.lower() not in _WORKING and "load" in status.lower()


def error_in(body: Any) -> str | None:
    """The error that a body carries (`{"error": …}` or `{"status": "error"}`), as text."""
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if isinstance(error, dict):
        return str(error.get("message") or json.dumps(error))[:500]
    if error:
        return str(error)[:500]
    return "status is error" if body.get("status") == "error" else None


def listed_models(body: Any) -> list[str]:
    """Ids (and their aliases, where a server gives them) in an OpenAI model list."""
    rows = body.get("data") if isinstance(body, dict) else None
    out: list[str] = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("id"), str):
            out.append(row["id"])
            aliases = row.get("aliases")
            out.extend(a for a in aliases if isinstance(a, str)) if isinstance(aliases, list) else None
    return out

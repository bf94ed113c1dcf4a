"""Requests to a model's server: OpenAI chat and completion, whole or streamed, and anything else as it is.

Knows nothing of states: `runner.py` waits until the model runs before it asks here.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

import httpx

from moorage.domain.errors import InvalidSpec, RunnerError
from moorage.runners.readiness import error_in

Api = Literal["chat", "completion"]
Message = Mapping[str, Any]
PATHS: Mapping[Api, str] = {"chat": "/v1/chat/completions", "completion": "/v1/completions"}


def body_of(
    model: str | None, prompt: str | None, messages: Sequence[Message] | None, api: Api, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The JSON of a request.

    Raises:
        InvalidSpec: neither or both of prompt and messages, or messages for a completion.
    """
    if api not in PATHS:
        raise InvalidSpec(f"api is {api!r}", remedy="it is `chat` or `completion`")
    if (prompt is None) == (messages is None):
        raise InvalidSpec("give prompt= or messages=, one of the two", remedy='prompt="hi" is one message of a user')
    named = {} if model is None else {"model": model}
    if api == "completion":
        if prompt is None:
            raise InvalidSpec("a completion takes prompt=", remedy='leave out api="completion" for a chat')
        return {**named, "prompt": prompt, **options}
    said = [dict(m) for m in messages] if messages is not None else [{"role": "user", "content": prompt}]
    return {**named, "messages": said, **options}


async def request(
    http: httpx.AsyncClient, name: str, method: str, url: str, *, timeout: float | None, **given: Any
) -> httpx.Response:
    """Any request; whatever the server answers is returned.

    Raises:
        RunnerError: no answer (code `model_unreachable`).
    """
    try:
        return await http.request(method, url, timeout=timeout, **given)
    except httpx.HTTPError as cause:
        raise _unreachable(name, cause) from cause


async def whole(http: httpx.AsyncClient, name: str, url: str, body: Any, timeout: float | None) -> dict[str, Any]:
    """The answer as the server's JSON.

    Raises:
        RunnerError: no answer (`model_unreachable`) or an error (`request_failed`).
    """
    answer = await request(http, name, "POST", url, timeout=timeout, json=body)
    if not answer.is_success:
        raise _refused(name, answer)
    try:
        found: dict[str, Any] = answer.json()
    except ValueError:
        raise _garbled(name, answer.text) from None
    return found


async def streamed(
    http: httpx.AsyncClient, name: str, url: str, body: Any, timeout: float | None
) -> AsyncIterator[dict[str, Any]]:
    """Each chunk of a streamed answer as the server's JSON, as it comes.

    Raises:
        RunnerError: as `whole`; also when the stream breaks off before its end.
    """
    ended = False
    try:
        async with http.stream("POST", url, json={**body, "stream": True}, timeout=timeout) as answer:
            if not answer.is_success:
                await answer.aread()
                raise _refused(name, answer)
            async for line in answer.aiter_lines():
                data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
                if data == "[DONE]":
                    ended = True
                elif data:
                    yield _chunk(name, data)
    except httpx.HTTPError as cause:
        raise _unreachable(name, cause) from cause
    if not ended:
        raise RunnerError(f"{name} ended its stream without [DONE]", target=name, code="stream_broken", retryable=True)


def _chunk(name: str, data: str) -> dict[str, Any]:
    try:
        chunk: dict[str, Any] = json.loads(data)
    except ValueError:
        raise _garbled(name, data) from None
    told = error_in(chunk)
    if told and "choices" not in chunk:
        raise RunnerError(f"{name} broke its answer off: {told}", target=name, code="request_failed")
    return chunk


def _unreachable(name: str, cause: httpx.HTTPError) -> RunnerError:
    text = "did not answer in time" if isinstance(cause, httpx.TimeoutException) else "broke the connection"
    return RunnerError(
        f"{name} {text} ({type(cause).__name__})",
        target=name,
        code="model_unreachable",
        retryable=True,
        remedy=f"see info({name!r}) and logs({name!r}); a crashed server is restarted, so try again",
    )


def _refused(name: str, answer: httpx.Response) -> RunnerError:
    try:
        said = error_in(answer.json())
    except ValueError:
        said = None
    return RunnerError(
        f"{name} answered {answer.status_code}: {said or answer.text[:500] or 'nothing more'}",
        target=name,
        code="request_failed",
        retryable=answer.status_code in (429, 502, 503, 504),
    )


def _garbled(name: str, text: str) -> RunnerError:
    return RunnerError(
        f"{name} answered something that is not JSON: {text[:200]!r}", target=name, code="request_failed"
    )

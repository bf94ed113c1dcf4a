"""One question through the gateway, as any OpenAI client would ask it, with the times that a person feels."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx

from moorage.domain.errors import Unavailable

ANSWER_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Args:
        text: the whole answer.
        request_id: of its `X-Request-Id`.
        first_token_s: seconds until the first piece of it.
        total_s: seconds until its end.
        pieces: streamed pieces of text.
    """

    text: str
    request_id: str
    first_token_s: float
    total_s: float
    pieces: int


def ask(gateway_url: str, model: str, question: str, show: Callable[[str], None], *, timeout_s: float) -> Answer:
    """Ask with streaming.

    Args:
        gateway_url: base address of the gateway.
        model: the endpoint's name.
        question: what is asked.
        show: called with each piece of the answer as it comes.
        timeout_s: seconds without a sign of life.

    Raises:
        Unavailable: the gateway answered with an error, or nothing came.
    """
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "stream": True,
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0,
    }
    began, first, texts = time.monotonic(), 0.0, list[str]()
    try:
        with httpx.stream(
            "POST", f"{gateway_url}/v1/chat/completions", json=body, timeout=timeout_s, trust_env=False
        ) as response:
            if response.status_code != 200:
                response.read()
                raise Unavailable(f"the gateway answered {response.status_code}: {response.text[:300]}")
            for piece in _pieces(response.iter_lines()):
                first = first or time.monotonic() - began
                texts.append(piece)
                show(piece)
            request_id = response.headers.get("x-request-id", "")
    except httpx.HTTPError as cause:
        raise Unavailable(f"no answer came from the gateway: {cause}") from cause
    if not texts:
        raise Unavailable("the model answered with no text at all")
    return Answer("".join(texts), request_id, first, time.monotonic() - began, len(texts))


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        data = line.removeprefix("data:").strip()
        if line.startswith("data:") and data != "[DONE]":
            for choice in json.loads(data).get("choices", ()):
                text = (choice.get("delta") or {}).get("content")
                if text:
                    yield text

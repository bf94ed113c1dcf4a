"""A model server that answers as OpenAI's API does, in all the forms that its client reads."""

import asyncio
import json
from typing import Any

from gateway_rig import Seen, reply

USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
WORDS = ("one ", "two ", "three")
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class OpenAIServer:
    """The handler of a `ModelServer`.

    Attributes:
        endless: how many streams that never end are being written.
        fail: status and headers of the next answers, in place of what was asked for.
    """

    def __init__(self) -> None:
        self.endless = 0
        self.cancelled = 0
        self.fail: list[bytes] = []
        self.go = asyncio.Event()

    async def __call__(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.fail:
            writer.write(self.fail.pop(0))
            return
        body = json.loads(seen.body)
        if body.get("user") == "endless":
            await self._without_end(reader, writer)
        elif body.get("user") == "silent":
            await self._silent(reader)
        elif body.get("stream"):
            await self._stream(seen.path, body, writer)
        else:
            answer = json.dumps(whole(seen.path, body)).encode()
            writer.write(reply(answer, extra="Content-Type: application/json\r\n"))

    async def _stream(self, path: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        for event in events(path, body):
            name = f"event: {event['type']}\n" if "type" in event else ""
            writer.write(chunk(f"{name}data: {json.dumps(event)}\n\n"))
            await writer.drain()
        writer.write((b"" if path == "/v1/responses" else chunk("data: [DONE]\n\n")) + b"0\r\n\r\n")

    async def _without_end(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunk(f"data: {json.dumps(piece({'content': 'word '}))}\n\n"))
        self.endless += 1
        try:
            await reader.read(1)  # nothing more comes before the end
        finally:
            self.endless -= 1
            self.cancelled += 1

    async def _silent(self, reader: asyncio.StreamReader) -> None:
        await reader.read(1)  # nothing more comes before the end
        self.cancelled += 1


def chunk(text: str) -> bytes:
    return b"%x\r\n%b\r\n" % (len(text.encode()), text.encode())


def piece(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "upstream", "choices": [choice]}


def called(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A call of the first tool that was offered."""
    name = tools[0]["function"]["name"]
    return [
        {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": '{"city": "Oslo"}'}}
    ]


def events(path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    if path == "/v1/responses":
        deltas = [{"type": "response.output_text.delta", "delta": w, "item_id": "m", "output_index": 0} for w in WORDS]
        numbered = [
            {**delta, "content_index": 0, "sequence_number": n, "logprobs": []} for n, delta in enumerate(deltas)
        ]
        return [*numbered, {"type": "response.completed", "sequence_number": 9, "response": response(body)}]
    if path == "/v1/completions":
        return [completion(body, [{"index": 0, "text": w, "finish_reason": None}]) for w in WORDS]
    first = {"role": "assistant", "content": ""}
    if body.get("tools"):
        out = [piece(first), piece({"tool_calls": called(body["tools"])}), piece({}, "tool_calls")]
    else:
        out = [piece(first), *(piece({"content": word}) for word in WORDS), piece({}, "stop")]
    if (body.get("stream_options") or {}).get("include_usage"):
        out.append({**piece({}), "choices": [], "usage": USAGE})
    return out


def completion(body: dict[str, Any], choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "c-1", "object": "text_completion", "created": 1, "model": body["model"], "choices": choices}


def response(body: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "output_text", "text": "".join(WORDS), "annotations": []}]
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": body["model"],
        "output": [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": content}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 1},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 12,
        },
    }


def whole(path: str, body: dict[str, Any]) -> dict[str, Any]:
    if path == "/v1/embeddings":
        data = [{"object": "embedding", "index": 0, "embedding": [0.25, 0.5]}]
        usage = {"prompt_tokens": 9, "total_tokens": 9}
        return {"object": "list", "model": body["model"], "data": data, "usage": usage}
    if path == "/v1/responses":
        return response(body)
    if path == "/v1/completions":
        choices = [{"index": 0, "text": "".join(WORDS), "finish_reason": "stop", "logprobs": None}]
        return {**completion(body, choices), "usage": USAGE}
    message: dict[str, Any] = {"role": "assistant", "content": "".join(WORDS)}
    finish = "stop"
    if body.get("tools"):
        message, finish = {"role": "assistant", "content": None, "tool_calls": called(body["tools"])}, "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return {**piece({}), "object": "chat.completion", "choices": [choice], "usage": USAGE}

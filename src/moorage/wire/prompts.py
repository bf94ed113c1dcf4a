"""The file of synthetic requests (`rollout.guard.synthetic`): text, one request a line, into what travels in a spec.

A line is JSON, one of:

    {"path": "/v1/completions", "body": {…}}     any request: POST the body to the path
    {"messages": […], …}                         the body of a chat completion
    {"prompt": "…", …}                           the body of a completion
    "Why is the sky blue?"                       a chat of one message, its answer cut at 128 tokens

Without `model` in a body each revision is sent its own `model.id`. Called by the client, which reads the file.
"""

import json
from typing import Any

from pydantic import ValidationError

from moorage.wire.deployment import SYNTHETIC_MAX, SyntheticRequest
from moorage.wire.problems import Problem, invalid, problems

PLACE = "rollout.guard.synthetic"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ANSWER_TOKENS = 128
"""A bare question has no limit of its own, and an answer without end would hold its replica."""

BYTES_MAX = 512 * 1024
"""Of a file: it is kept with the deployment."""


def parse_prompts(text: str, source: str) -> list[SyntheticRequest]:
    """The requests of a file.

    Args:
        text: its content.
        source: what errors call it.

    Raises:
        InvalidSpec: a line is wrong; `errors` has all of them, with their lines. Or it has none, or too many.
    """
    found: list[SyntheticRequest] = []
    errors: list[Problem] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(_request(json.loads(line)))
        except (ValueError, RecursionError) as cause:
            errors.append({"path": "", "message": _told(cause), "line": number})
    if not errors and not found:
        errors.append({"path": "", "message": "it holds no request"})
    if len(found) > SYNTHETIC_MAX:
        errors.append({"path": "", "message": f"it holds {len(found)} requests, at most {SYNTHETIC_MAX}"})
    if len(text.encode()) > BYTES_MAX:
        errors.append({"path": "", "message": f"it is longer than {BYTES_MAX // 1024} KiB"})
    if errors:
        raise invalid(source, errors)
    return found


def _request(line: Any) -> SyntheticRequest:
    if isinstance(line, str) and line:
        said = [{"role": "user", "content": line}]
        return SyntheticRequest(path=CHAT, body={"messages": said, "max_tokens": ANSWER_TOKENS})
    if not isinstance(line, dict):
        raise ValueError(f"expected a mapping or a question in quotes, found {type(line).__name__}")
    if "path" in line or "body" in line:
        return SyntheticRequest.model_validate(line)
    if "messages" in line:
        return SyntheticRequest(path=CHAT, body=line)
    if "prompt" in line:
        return SyntheticRequest(path=COMPLETIONS, body=line)
    raise ValueError("expected path and body, or messages, or prompt")


def _told(cause: Exception) -> str:
    if isinstance(cause, json.JSONDecodeError):
        return f"not JSON: {cause.msg} at character {cause.colno}"
    if isinstance(cause, ValidationError):
        wrong = problems(cause, SyntheticRequest)
        return "; ".join(f"{one['path']}: {one['message']}" for one in wrong)
    return "it is nested too deeply" if isinstance(cause, RecursionError) else str(cause)

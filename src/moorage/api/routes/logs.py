"""`…/{deployments,runs,workers}/{name}/logs`: lines as they are, or as they come with `follow`.

Text by default: one line a line, and what happened between them as `== …`. With `Accept: application/x-ndjson` one
JSON object a line: {kind: line | event | heartbeat, worker, seq, line}.
"""

import json
from collections.abc import AsyncIterator, Iterable
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response
from starlette.responses import StreamingResponse

from moorage.api.deps import ApiDeps, Deps, Namespace
from moorage.api.streams import paced
from moorage.control.logtail import LogLine, LogOptions, LogSubject
from moorage.domain.errors import MoorageError
from moorage.domain.nouns import Deployment, Run, Worker

router = APIRouter(prefix="/namespaces/{ns}", tags=["logs"])

NDJSON = "application/x-ndjson"
LINES_MAX = 5000
"""What agents give at once."""


async def _options(
    lines: Annotated[int, Query(ge=0, le=LINES_MAX)] = 200,
    previous: Annotated[bool, Query(description="of the attempt before")] = False,
    grep: Annotated[str | None, Query(description="only lines that contain this text", max_length=1000)] = None,
) -> LogOptions:
    return LogOptions(lines, previous, grep)


Options = Annotated[LogOptions, Depends(_options)]
Follow = Annotated[bool, Query(description="go on with what comes, until it is over")]
Accept = Annotated[str, Header()]


@router.get("/deployments/{name}/logs")
async def deployment_logs(
    *, ns: Namespace, name: str, deps: Deps, options: Options, follow: Follow = False, accept: Accept = ""
) -> Response:
    """Lines of a deployment's servers, across crashes, replacements, pauses and wakes."""
    row = await deps.reader.find(Deployment, ns, name)
    return await _answer(deps, LogSubject(row.name, deployment=row.uid), options, follow, NDJSON in accept)


@router.get("/runs/{name}/logs")
async def run_logs(
    *, ns: Namespace, name: str, deps: Deps, options: Options, follow: Follow = False, accept: Accept = ""
) -> Response:
    """Lines of a run's workers."""
    row = await deps.reader.find(Run, ns, name)
    return await _answer(deps, LogSubject(row.name, run=row.uid), options, follow, NDJSON in accept)


@router.get("/workers/{name}/logs")
async def worker_logs(
    *, ns: Namespace, name: str, deps: Deps, options: Options, follow: Follow = False, accept: Accept = ""
) -> Response:
    """Lines of one worker, across its restarts."""
    row = await deps.reader.find(Worker, ns, name)
    return await _answer(deps, LogSubject(row.name, worker=row.uid), options, follow, NDJSON in accept)


async def _answer(deps: ApiDeps, subject: LogSubject, options: LogOptions, follow: bool, as_json: bool) -> Response:
    kind = NDJSON if as_json else "text/plain; charset=utf-8"
    if options.previous or not follow:  # the attempt before is over: there is nothing to follow
        lines = await deps.tail.read(subject, options)
        return Response(_render(lines, as_json), media_type=kind)
    return StreamingResponse(
        _stream(deps, subject, options, as_json), media_type=kind, headers={"Cache-Control": "no-store"}
    )


async def _stream(deps: ApiDeps, subject: LogSubject, options: LogOptions, as_json: bool) -> AsyncIterator[bytes]:
    tail = deps.tail.follow(subject, options)
    try:
        async for line in paced(tail, deps.closing, deps.clock, deps.settings.quiet_s):
            if line is not None:
                yield _render([line], as_json)
    except MoorageError as error:  # the status was sent long ago; the reader is told in the stream
        yield _render([LogLine("event", f"the log cannot go on: {error.message}")], as_json)


def _render(lines: Iterable[LogLine], as_json: bool) -> bytes:
    if as_json:
        return b"".join(_json(line) for line in lines)
    return "".join(_text(line) for line in lines).encode()


def _json(line: LogLine) -> bytes:
    value = {"kind": line.kind, "worker": line.worker, "seq": line.seq, "line": line.line}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _text(line: LogLine) -> str:
    if line.kind == "heartbeat":
        return ""
    return f"{line.line}\n" if line.kind == "line" else f"== {line.line}\n"

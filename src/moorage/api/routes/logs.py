"""`…/{deployments,runs,workers}/{name}/logs`: lines as they are, or as they come with `follow`.

Text by default: one line a line, and what happened between them as `== …`; with `prefix` each with its worker's name in
front, with `timestamps` its time. With `Accept: application/x-ndjson` one JSON object a line:
{kind: line | event | heartbeat, worker, attempt, seq, at, line}.
"""

import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Header, Query, Response
from starlette.responses import StreamingResponse

from moorage.api.deps import ApiDeps, Deps, Namespace
from moorage.api.mounting import under_api
from moorage.api.streams import paced
from moorage.control.loglines import LINES_MAX
from moorage.control.logtail import LogLine, LogOptions, LogSubject
from moorage.domain.errors import InvalidSpec, MoorageError
from moorage.domain.nouns import Deployment, Run, Worker
from moorage.domain.units import parse_duration

router = under_api("/namespaces/{ns}", tag="logs")

NDJSON = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class Form:
    """How lines are written."""

    as_json: bool
    prefix: bool
    timestamps: bool


async def _options(
    *,
    lines: Annotated[
        int | None, Query(ge=0, le=LINES_MAX, description="of each worker; 200, or all there are with `since`")
    ] = None,
    previous: Annotated[bool, Query(description="of the attempt before")] = False,
    attempt: Annotated[int | None, Query(ge=1, description="of that attempt")] = None,
    since: Annotated[str | None, Query(description="only lines of the last 30s, 10m, 1h30m or seconds")] = None,
    grep: Annotated[
        str | None, Query(description="only lines in which this regular expression (RE2) is found", max_length=1000)
    ] = None,
    worker: Annotated[list[str] | None, Query(description="only this worker, by name or id; may be repeated")] = None,
    rank: Annotated[list[int] | None, Query(description="only workers of this rank; may be repeated")] = None,
    group: Annotated[list[str] | None, Query(description="only workers of this group; may be repeated")] = None,
) -> LogOptions:
    chosen = (frozenset(worker or ()), frozenset(rank or ()), frozenset(group or ()))
    return LogOptions(lines, previous, attempt, _seconds(since), grep, *chosen)


async def _form(
    accept: Annotated[str, Header()] = "",
    prefix: Annotated[bool, Query(description="of text: each line after its worker's name")] = False,
    timestamps: Annotated[bool, Query(description="of text: each line after its time")] = False,
) -> Form:
    return Form(NDJSON in accept, prefix, timestamps)


Options = Annotated[LogOptions, Depends(_options)]
Follow = Annotated[bool, Query(description="go on with what comes, until it is over")]
Written = Annotated[Form, Depends(_form)]


@router.get("/deployments/{name}/logs")
async def deployment_logs(
    *, ns: Namespace, name: str, deps: Deps, options: Options, form: Written, follow: Follow = False
) -> Response:
    """Lines of a deployment's servers, across crashes, replacements, pauses and wakes."""
    row = await deps.reader.find(Deployment, ns, name)
    return await _answer(deps, LogSubject(row.name, deployment=row.uid), options, form, follow)


@router.get("/runs/{name}/logs")
async def run_logs(
    *, ns: Namespace, name: str, deps: Deps, options: Options, form: Written, follow: Follow = False
) -> Response:
    """Lines of a run's workers, all of them, across their attempts."""
    row = await deps.reader.find(Run, ns, name)
    return await _answer(deps, LogSubject(row.name, run=row.uid), options, form, follow)


@router.get("/workers/{name}/logs")
async def worker_logs(
    *, ns: Namespace, name: str, deps: Deps, options: Options, form: Written, follow: Follow = False
) -> Response:
    """Lines of one worker, across its restarts."""
    row = await deps.reader.find(Worker, ns, name)
    return await _answer(deps, LogSubject(row.name, worker=row.uid), options, form, follow)


async def _answer(deps: ApiDeps, subject: LogSubject, options: LogOptions, form: Form, follow: bool) -> Response:
    kind = NDJSON if form.as_json else "text/plain; charset=utf-8"
    if options.of_the_past or not follow:  # an attempt before is over: there is nothing to follow
        lines = await deps.tail.read(subject, options)
        return Response(_render(lines, form), media_type=kind)
    await deps.tail.check(subject, options)
    return StreamingResponse(
        _stream(deps, subject, options, form), media_type=kind, headers={"Cache-Control": "no-store"}
    )


async def _stream(deps: ApiDeps, subject: LogSubject, options: LogOptions, form: Form) -> AsyncIterator[bytes]:
    tail = deps.tail.follow(subject, options)
    try:
        async for lines in paced(tail, deps.closing, deps.clock, deps.settings.quiet_s):
            if lines is not None:
                yield _render(lines, form)
    except MoorageError as error:  # the status was sent long ago; the reader is told in the stream
        yield _render([LogLine("event", f"the log cannot go on: {error.message}")], form)


def _render(lines: Iterable[LogLine], form: Form) -> bytes:
    if form.as_json:
        return b"".join(_json(line) for line in lines)
    return "".join(_text(line, form) for line in lines).encode()


def _json(line: LogLine) -> bytes:
    value = {
        "kind": line.kind,
        "worker": line.worker,
        "attempt": line.attempt,
        "seq": line.seq,
        "at": line.at,
        "line": line.line,
    }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _text(line: LogLine, form: Form) -> str:
    if line.kind == "heartbeat":
        return ""
    front = f"{line.worker} | " if form.prefix and line.worker else ""
    if line.kind == "event":
        return f"{front}== {line.line}\n"
    if form.timestamps:
        front += f"{_time(line.at)} "
    return f"{front}{line.line}\n"


def _time(at: float | None) -> str:
    if at is None:
        return "-"
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds(since: str | None) -> float | None:
    if since is None:
        return None
    try:
        return parse_duration(since)
    except InvalidSpec as wrong:
        raise InvalidSpec(
            wrong.message, remedy=wrong.remedy, errors=[{"path": "since", "message": wrong.message}]
        ) from None

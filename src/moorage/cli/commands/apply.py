"""`apply` and `plan`: files in, deployments and runs made so, or what that would change."""

import contextlib
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from moorage.cli.commands.specs import read_documents
from moorage.cli.failures import NotAcknowledged
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples, timeout_option
from moorage.cli.watching import LOOK_EVERY_S, namespace_flag, watched
from moorage.domain.errors import InvalidSpec, NotFound, Unavailable, WaitTimeout

GOALS = ("accepted", "ready", "live", "promoted", "completed", "stopped")
OF_RUNS = frozenset({"accepted", "completed", "stopped"})
SHORT = 60
"""Letters of two values that stand in one line."""
files_option = click.option("--file", "-f", "files", multiple=True, required=True, help="A spec file; - for stdin.")


@click.command(
    epilog=examples(
        "moor apply -f gemma.yaml --wait",
        "moor apply -f gemma.yaml -f llama.yaml --for promoted --timeout 10m",
        "moor apply -f gemma.yaml --key build-4711     # the same key again is the same apply",
        "moor apply -f train.yaml --for completed      # a run; `moor run -f` also shows its output",
    )
)
@files_option
@click.option("--wait", is_flag=True, help="Wait until a deployment is live, a run completed.")
@click.option("--for", "goal", type=click.Choice(GOALS), help="What to wait for.")
@click.option("--key", help="Idempotency key; with several documents each gets KEY/NAME.")
@click.option("--dry-run", is_flag=True, help="Only show what would change, as `moor plan` does.")
@timeout_option("30m")
@command
def apply(
    session: Session,
    *,
    files: tuple[str, ...],
    wait: bool,
    goal: str | None,
    key: str | None,
    dry_run: bool,
    timeout_s: float,
) -> None:
    """Make what the files say so. Doing it again changes nothing."""
    try:
        documents = documents_of(files)
    except KeyboardInterrupt:
        raise NotAcknowledged(", ".join(files), maybe=False, look="", key=None) from None
    if dry_run:
        _plan(session, documents)
        return
    documents.sort(key=lambda document: document.kind == "Endpoint")  # they name deployments, which come first
    goals = [_goal(document, goal, wait) for document in documents]
    answers = []
    key = key or uuid.uuid4().hex  # drawn here, so that whoever interrupts it can be told
    for document, wanted in zip(documents, goals, strict=True):
        own_key = f"{key}/{document.name}" if len(documents) > 1 else key
        answers.append(_APPLY[document.kind](session, document, own_key, wanted, timeout_s, again=key))
    if not session.human:
        print_value(answers[0] if len(answers) == 1 else answers, session.form)


@click.command(epilog=examples("moor plan -f gemma.yaml", "moor plan -f gemma.yaml -o json"))
@files_option
@command
def plan(session: Session, files: tuple[str, ...]) -> None:
    """Show what an apply of the files would change."""
    _plan(session, documents_of(files))


def documents_of(files: tuple[str, ...]) -> list[Any]:
    """The documents of all files, all read and checked before anything is sent."""
    documents = [document for source in files for document in read_documents(source)]
    for document in documents:
        if document.kind not in _APPLY:
            raise InvalidSpec(
                f"{document.kind} {document.name} cannot be applied by this version",
                remedy=f"documents of kind {', '.join(_APPLY)} can be applied so far",
            )
    return documents


def _goal(document: Any, goal: str | None, wait: bool) -> str | None:
    """What is waited for with this document.

    Raises:
        InvalidSpec: nothing of its kind has that goal.
    """
    if document.kind == "Drive":
        return None
    if document.kind == "Endpoint":  # whatever is waited for beside it, gateways are to have it
        return "bound" if wait or goal not in (None, "accepted") else None
    if goal is None:
        return {"Deployment": "live", "Run": "completed"}.get(document.kind) if wait else None
    fits = goal in OF_RUNS if document.kind == "Run" else goal != "completed"
    if not fits:
        raise InvalidSpec(
            f"{document.kind} {document.name} cannot be waited for until {goal}",
            remedy="--wait waits for what fits each: a deployment live, a run completed",
        )
    return goal


def apply_run(
    session: Session,
    document: Any,
    key: str | None,
    goal: str | None,
    timeout_s: float | None,
    *,
    again: str | None = None,
) -> Any:
    """Submit one run, wait where asked, tell people; returns the API's answer (the last object, after a wait)."""
    look = f"`moor status {document.name}{namespace_flag(session)}`"
    with _sending(session, document, look, again or key):
        answer = session.client.runs.apply(document, key=key)
    run = answer.get("run") or answer
    if session.human:
        click.echo(f"{document.name}: {'submitted' if answer.get('changed', True) else 'unchanged'}")
        for warning in answer.get("warnings") or ():
            click.echo(f"  warning: {_warning(warning)}", err=True)
    if goal is None:
        return answer
    runs = session.client.runs
    outcome = watched(
        session,
        document.name,
        goal,
        lambda on_status: runs.wait(run["id"], goal, timeout_s=timeout_s, interval_s=LOOK_EVERY_S, on_status=on_status),
    )
    if session.human:
        click.echo(f"{document.name}: {outcome.last.get('state')}")
    return outcome.last


def apply_one(
    session: Session,
    document: Any,
    key: str | None,
    goal: str | None,
    timeout_s: float | None,
    *,
    again: str | None = None,
) -> Any:
    """Apply one document, wait where asked, tell people; returns the API's answer (the last object, after a wait).

    Args:
        again: the `--key` with which the command is the same apply again; None: `key`.
    """
    until = math.inf if timeout_s is None else time.monotonic() + timeout_s
    there = namespace_flag(session)
    look = f"`moor operations list {document.name}{there}` or `moor status {document.name}{there}`"
    with _sending(session, document, look, again or key):
        applied = _applied(session, document, key, timeout_s)
    if session.human:
        click.echo(f"{document.name}: {'applied' if applied.changed else 'unchanged'}, {_revision(session, applied)}")
    if goal is None:
        return {
            "deployment": applied.deployment,
            "revision": applied.revision,
            "operation": applied.operation,
            "changed": applied.changed,
        }
    outcome = watched(
        session,
        document.name,
        goal,
        lambda on_status: applied.wait(goal, timeout_s=_left_s(until), interval_s=LOOK_EVERY_S, on_status=on_status),
        resume=f"moor operations watch {applied.operation}{namespace_flag(session)}" if applied.operation else None,
    )
    if session.human:
        click.echo(f"{document.name}: {outcome}")
        if outcome.serving:
            click.echo(f"  url    {outcome.last.get('url')}\n  model  {outcome.last.get('model')}")
    return outcome.last


@contextlib.contextmanager
def _sending(session: Session, document: Any, look: str, key: str | None) -> Iterator[None]:
    """While a document is on its way: a line that says what is done, and what Ctrl-C leaves behind.

    Raises:
        NotAcknowledged: Ctrl-C before an answer came.
    """
    progress, name = session.progress(), document.name
    maybe, doing = False, "sending; waiting for the control plane's answer"

    def seen(now: bool) -> None:
        nonlocal maybe, doing
        maybe = now
        if not now:  # said once, and true of every further try
            doing = "trying to send; no control plane has answered so far"
        progress.update(f"{name}: {doing}")

    session.on_seen = seen
    try:
        yield
    except KeyboardInterrupt:
        raise NotAcknowledged(name, maybe=maybe, look=look, key=key) from None
    finally:
        session.on_seen = None
        progress.clear()


def _applied(session: Session, document: Any, key: str | None, timeout_s: float | None) -> Any:
    """The accepted apply; an answer that does not come counts in the time-out as the wait does."""
    began = time.monotonic()
    try:
        return session.client.deployments.apply(document, key=key, timeout_s=timeout_s)
    except Unavailable as error:
        if timeout_s is None or time.monotonic() - began < timeout_s:
            raise
        raise WaitTimeout(
            f"{document.name} was not accepted within {timeout_s:g} s: {error.message}", remedy=error.remedy
        ) from error


def _left_s(until: float) -> float | None:
    """Of a time-out, to a tenth of a second; None of none."""
    return None if until == math.inf else max(0.1, round(until - time.monotonic(), 1))


def _revision(session: Session, applied: Any) -> str:
    known = session.client.deployments.revisions(applied.deployment["name"], namespace=applied.deployment["namespace"])
    number = next((r["number"] for r in known if r["id"] == applied.revision), None)
    return f"revision {number}" if number is not None else "no revision"


def _plan(session: Session, documents: list[Any]) -> None:
    client = session.client
    plan_of: dict[str, Callable[..., Any]] = {
        "Deployment": client.deployments.plan,
        "Run": client.runs.plan,
        "Endpoint": client.endpoints.plan,
        "Drive": lambda document: _plan_drive(session, document),
    }
    plans = [(document.name, plan_of[document.kind](document)) for document in documents]
    if not session.human:
        print_value(plans[0][1] if len(plans) == 1 else [plan for _, plan in plans], session.form)
        return
    for name, found in plans:
        click.echo(_plan_text(name, found))


def _plan_text(name: str, found: Any) -> str:
    changes = found.get("changes") or ()
    new = bool(changes) and all(change.get("before") is None for change in changes)
    moves = bool(changes or found.get("actions"))
    lines = [f"{name}: {'would be made' if new else 'would change' if moves else 'nothing would change'}"]
    for change in () if new else changes:
        lines += _change(change)
    for action in sorted(found.get("actions") or (), key=lambda a: a.get("order", 0)):
        lines.append(f"  {action.get('order')}. {action.get('summary')}")
    lines += [f"  warning: {_warning(warning)}" for warning in found.get("warnings") or ()]
    return "\n".join(lines)


def _change(change: Any) -> list[str]:
    """A field, before → after; long values under each other, so that the eye can compare them."""
    before, after = _value(change.get("before")), _value(change.get("after"))
    if len(before) + len(after) <= SHORT:
        return [f"  {change.get('path')}: {before} → {after}"]
    return [f"  {change.get('path')}", f"    - {before}", f"    + {after}"]


def _value(value: Any) -> str:
    import json

    return "(none)" if value is None else json.dumps(value, ensure_ascii=False)


def _warning(warning: Any) -> str:
    return str(warning.get("message", warning)) if isinstance(warning, dict) else str(warning)


def apply_drive(
    session: Session,
    document: Any,
    key: str | None,
    goal: str | None,
    timeout_s: float | None,
    *,
    again: str | None = None,
) -> Any:
    """Make one drive so; there is nothing to wait for, whatever is waited for beside it. It takes no key."""
    with _sending(session, document, f"`moor drives ls{namespace_flag(session)}`", None):
        made = session.client.drives.apply(document)
    if session.human:
        click.echo(f"{document.name}: on {made['machine']}, at {made['path']}")
    return made


def apply_endpoint(
    session: Session,
    document: Any,
    key: str | None,
    goal: str | None,
    timeout_s: float | None,
    *,
    again: str | None = None,
) -> Any:
    """Make one endpoint so; where asked, wait until every gateway has it. Returns the API's answer, or the object."""
    look = f"`moor endpoint get {document.name}{namespace_flag(session)}`"
    with _sending(session, document, look, again or key):
        answer = session.client.endpoints.apply(document, key=key, timeout_s=timeout_s)
    return told_endpoint(session, document.name, answer, timeout_s if goal is not None else None)


def told_endpoint(session: Session, name: str, answer: Any, timeout_s: float | None) -> Any:
    """Say what became of an endpoint, and with a `timeout_s` wait until every gateway that may route has it."""
    if session.human:
        click.echo(f"{name}: {'applied' if answer.get('changed') else 'unchanged'}")
        for warning in answer.get("warnings") or ():
            click.echo(f"  warning: {_warning(warning)}", err=True)
    if timeout_s is None:
        return answer
    outcome = wait_until_bound(session, name, timeout_s)
    if session.human:
        click.echo(bound_words(name, outcome.last))
    return outcome.last


def wait_until_bound(session: Session, name: str, timeout_s: float | None) -> Any:
    """Wait, with a line that says which gateway it waits for."""
    wait = session.client.endpoints.wait
    return watched(
        session,
        name,
        "bound",
        lambda on_status: wait(name, timeout_s=timeout_s, interval_s=LOOK_EVERY_S, on_status=on_status),
    )


def bound_words(name: str, found: Any) -> str:
    """That gateways have it, and what it answers with."""
    many = len(found.get("gateways") or ())
    there = f"at {many} gateway{'' if many == 1 else 's'}" if many else "published; no gateway is there"
    routes = ", ".join(f"{r['deployment']} ({r['share']:g} %)" for r in found.get("routes") or () if r["share"])
    return f"{name}: {there}\n  {routes}\n  url    {found.get('url')}\n  model  {found.get('model')}"


def _plan_drive(session: Session, document: Any) -> Any:
    """What an apply of a drive would do; the control plane keeps no plans of them."""
    try:
        before: Any = session.client.drives.get(document.name)["size"]
    except NotFound:
        before = None
    if before == document.size:
        return {"changes": [], "actions": []}
    summary = "make the drive" if before is None else "change its size"
    change = {"path": "size", "before": before, "after": document.size}
    return {"changes": [change], "actions": [{"order": 1, "kind": "drive", "summary": summary}]}


_APPLY: Mapping[str, Callable[..., Any]] = {
    "Deployment": apply_one,
    "Run": apply_run,
    "Drive": apply_drive,
    "Endpoint": apply_endpoint,
}
"""Kind of document → how it is applied."""

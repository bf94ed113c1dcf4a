"""`operations`: durable work: how far it is, what it waits for, and the few things that a person may do about it."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import click

from moorage.cli import rows
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples, timeout_option
from moorage.cli.times import age, clock
from moorage.cli.watching import LOOK_EVERY_S, namespace_flag, watched
from moorage.domain.errors import InvalidSpec, NotFound

OVER = ("succeeded", "failed", "cancelled")
MARKS = {"done": "✓", "pending": "·"}

key_option = click.option("--key", help="Idempotency key.")
open_option = click.option("--open", "only_open", is_flag=True, help="Only those that are not over.")


class _Operations(click.Group):
    """`moor operations ID` is short for `moor operations get ID`."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """An id in the place of a command is shown."""
        if args and args[0] not in self.commands and args[0].startswith("op-"):
            args = ["get", *args]
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Operations,
    invoke_without_command=True,
    epilog=examples(
        "moor operations",
        "moor operations list gemma --open",
        "moor operations watch op-…      # again, after Ctrl-C",
        "moor operations cancel op-…",
    ),
)
@command
def operations(session: Session) -> None:
    """Applies, promotions, rollbacks, stops and deletes: how far each is, and what it waits for."""
    if click.get_current_context().invoked_subcommand is None:
        _list(session, None, only_open=False)


@operations.command(
    name="list",
    short_help="All, or those on one deployment.",
    epilog=examples("moor operations list", "moor operations list gemma --open"),
)
@click.argument("target", required=False)
@open_option
@command
def list_(session: Session, *, target: str | None, only_open: bool) -> None:
    """List operations, oldest first; with TARGET, a deployment's name or id, only those on it."""
    _list(session, target, only_open=only_open)


@operations.command(
    short_help="One, with its steps and who holds it.",
    epilog=examples("moor operations get op-…", "moor operations get op-… -o json"),
)
@click.argument("uid", metavar="ID")
@command
def get(session: Session, *, uid: str) -> None:
    """Show one operation: its steps, what it waits for, and who holds it."""
    found = session.client.operations.get(uid)
    session.show_text(found, lambda: words(found, session.now()))


@operations.command(epilog=examples("moor operations watch op-… --timeout 30m"))
@click.argument("uid", metavar="ID")
@timeout_option(None)
@command
def watch(session: Session, *, uid: str, timeout_s: float | None) -> None:
    """Watch an operation to its end. Exit code 0: done; 1: it failed, was cancelled or needs a person; 3: time-out."""
    last = watch_operation(session, uid, timeout_s)
    if session.human:
        click.echo(f"{_title(last)}: {last.get('state')}")
    else:
        print_value(last, session.form)


@operations.command(short_help="End it before it has its effect.", epilog=examples("moor operations cancel op-…"))
@click.argument("uid", metavar="ID")
@key_option
@command
def cancel(session: Session, *, uid: str, key: str | None) -> None:
    """Ask an operation to end before it has its effect; past its point of no return it still succeeds.

    A cancelled apply takes its revision back: the active one goes on serving, and a deployment that has no other
    revision is stopped. A stop, delete or reject is written first and cannot be cancelled.
    """
    answer = session.client.operations.cancel(uid, key=key)
    over = answer.get("state") if answer.get("state") in OVER else None
    told = f"{over} already" if over else f"asked to end; watch it with  moor operations watch {uid}"
    session.show_text(answer, lambda: f"{uid}: {told}")


@operations.command(
    short_help="Say what is there, where it cannot tell.",
    epilog=examples("moor operations resolve op-… --absent", "moor operations resolve op-… --adopt box-1/pid:4711"),
)
@click.argument("uid", metavar="ID")
@click.option("--adopt", metavar="RESOURCE", help="This is there, and is ours: MACHINE/pid:N or container:ID.")
@click.option("--absent", is_flag=True, help="Nothing of it is there.")
@key_option
@command
def resolve(session: Session, *, uid: str, adopt: str | None, absent: bool, key: str | None) -> None:
    """Say what is there, where an operation cannot tell for certain (needs_attention); then it goes on.

    Your word is kept in its history with the evidence that was shown.
    """
    if absent == (adopt is not None):
        raise InvalidSpec("say what is there", remedy="either --adopt RESOURCE or --absent")
    answer = session.client.operations.resolve(uid, adopt=adopt, absent=absent, key=key)
    session.show_text(answer, lambda: f"{uid}: resolved; watch it with  moor operations watch {uid}")


def watch_operation(session: Session, uid: str, timeout_s: float | None, name: str | None = None) -> dict[str, Any]:
    """Wait for an operation with a waiting line; Ctrl-C ends only the watching.

    Args:
        name: what the line begins with; None: the operation's id, which nobody has looked up yet.
    """
    wait = partial(session.client.operations.wait, uid, timeout_s=timeout_s, interval_s=LOOK_EVERY_S)
    resume = f"moor operations watch {uid}{namespace_flag(session)}"
    outcome = watched(
        session,
        name or uid,
        "its end",
        lambda on_status: wait(on_status=on_status),
        resume=resume,
        named=name is not None,
    )
    last: dict[str, Any] = outcome.last
    return last


def words(found: dict[str, Any], now: float) -> str:
    """One operation as people read it."""
    return "\n".join(_about(found, now))


def _about(found: dict[str, Any], now: float) -> Iterator[str]:
    yield f"{_title(found)}: {found.get('state')}"
    yield f"  id          {found.get('id')}"
    why = _why(found)
    if why:
        yield f"  why         {why}"
    yield f"  age         {age(found.get('created_at'), now)}, attempt {found.get('attempt', 0)}"
    if found.get("next_attempt_at"):
        yield f"  next try    {clock(found['next_attempt_at'])}"
    lease = found.get("lease") or {}
    if lease:
        yield f"  held by     {lease['owner']}, generation {lease['generation']}, until {clock(lease['expires_at'])}"
    if found.get("cancel_requested"):
        yield f"  cancel      asked for by {found.get('cancelled_by') or 'a person'}"
    word = found.get("resolution") or {}
    if word:
        said = "nothing is there" if word["how"] == "absent" else f"{word.get('resource')} is ours"
        yield f"  resolved    {said}, said by {word.get('by')} at {clock(word.get('at'))}"
    yield f"  steps       {round(100 * float(found.get('progress') or 0))} %"
    for step in found.get("steps") or ():
        at = f"  {clock(step['at'])}" if step.get("at") else ""
        yield f"    {MARKS.get(str(step.get('state')), '·')} {step.get('name')}{at}"
    if found.get("state") == "needs_attention":
        uid = found.get("id")
        yield f"  to do: look at what it names, then  moor operations resolve {uid} --adopt RESOURCE  or  --absent"


def _title(found: dict[str, Any]) -> str:
    target = found.get("target") or {}
    return f"{found.get('operation')} {target.get('name') or target.get('id') or ''}".rstrip()


def _why(found: dict[str, Any]) -> str:
    error, waiting = found.get("error") or {}, found.get("waiting_reason") or {}
    return str(error.get("message") or waiting.get("message") or rows.why(found))


def _list(session: Session, target: str | None, *, only_open: bool) -> None:
    uid = None if target is None else _uid(session, target)
    found = session.client.operations.list(target=uid)
    shown = [o for o in found if not (only_open and o.get("state") in OVER)]
    session.show(shown, lambda: rows.table("operations", shown, session.now()))


def _uid(session: Session, name: str) -> str:
    """The uid of a deployment, alive or deleted: the operations of a deleted one stay."""
    try:
        return str(session.client.deployments.get(name)["id"])
    except NotFound as missing:
        try:
            return str(session.client.deployments.get(name, deleted=True)["id"])
        except NotFound:
            raise missing from None

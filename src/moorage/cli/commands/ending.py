"""`stop` and `delete`: durable operations that end things, and what a delete would touch."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from moorage.cli.commands.operations import watch_operation
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples, timeout_option
from moorage.cli.watching import LOOK_EVERY_S, watched
from moorage.domain.errors import InvalidSpec

wait_option = click.option("--wait", is_flag=True, help="Wait until nothing of it runs any more.")
key_option = click.option("--key", help="Idempotency key; with several names each gets KEY/NAME.")


@click.command(epilog=examples("moor stop gemma --wait", "moor stop train      # a run: the same as moor cancel"))
@click.argument("names", nargs=-1, required=True)
@key_option
@wait_option
@timeout_option("10m")
@command
def stop(session: Session, *, names: tuple[str, ...], key: str | None, wait: bool, timeout_s: float) -> None:
    """Stop deployments for good, or cancel runs. A request does not wake them; `moor delete` removes them."""
    client, answers = session.client, []
    for name in names:
        own_key = _own_key(key, name, names)
        answer = session.first_found(
            partial(client.deployments.stop, name, key=own_key), partial(client.runs.cancel, name, key=own_key)
        )
        answers.append(_finish(session, answer, _Ending(name, "stopped", timeout_s if wait else None)))
    _print(session, answers)


@click.command(epilog=examples("moor delete gemma --dry-run", "moor delete gemma --yes --wait"))
@click.argument("names", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only show what it would touch.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--keep-resources", metavar="NAME", help="Leave an adopted server running; its name once more, to be sure."
)
@key_option
@wait_option
@timeout_option("10m")
@command
def delete(
    session: Session,
    *,
    names: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    keep_resources: str | None,
    key: str | None,
    wait: bool,
    timeout_s: float,
) -> None:
    """Delete deployments, runs or endpoints: routing withdrawn, streams drained, processes stopped and proven gone."""
    client = session.client

    if keep_resources is not None and names != (keep_resources,):
        raise InvalidSpec("nothing was deleted: --keep-resources has to say the one name", remedy="type it once more")
    kept: dict[str, Any] = {} if keep_resources is None else {"keep_resources": keep_resources}

    def deleted(name: str, **how: Any) -> Any:
        return session.first_found(
            partial(client.deployments.delete, name, **how, **kept),
            partial(client.runs.delete, name, **how),
            partial(client.endpoints.delete, name, **how),
        )

    if not agreed(session, names, partial(deleted, dry_run=True), dry_run=dry_run, yes=yes):
        return
    answers = []
    for name in names:
        answer = deleted(name, key=_own_key(key, name, names))
        answers.append(_finish(session, answer, _Ending(name, "deleted", timeout_s if wait else None)))
    _print(session, answers)


def agreed(
    session: Session, names: tuple[str, ...], plan_of: Callable[[str], Any], *, dry_run: bool, yes: bool
) -> bool:
    """Show what a delete of these would touch, and ask; whether it is to be done.

    Args:
        plan_of: what the delete of one would touch.

    Raises:
        InvalidSpec: nobody can be asked.
    """
    if yes and not dry_run:
        return True
    plans = [plan_of(name) for name in names]
    if dry_run and not session.human:
        print_value(plans[0] if len(plans) == 1 else plans, session.form)
        return False
    for name, plan in zip(names, plans, strict=True):
        click.echo(touches(name, plan), err=not dry_run)
    if not dry_run:
        ask_whether_to_delete(names)
    return not dry_run


def ask_whether_to_delete(names: tuple[str, ...]) -> None:
    """Ask whether these are to be deleted.

    Raises:
        InvalidSpec: nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise InvalidSpec("nothing was deleted: there is no terminal to ask on", remedy="say --yes")
    click.confirm(f"delete {', '.join(names)}?", abort=True, err=True)


@dataclass(frozen=True, slots=True)
class _Ending:
    """What ends.

    Args:
        name: of the deployment.
        word: `stopped` or `deleted`.
        timeout_s: how long to wait for it; None does not wait.
    """

    name: str
    word: str
    timeout_s: float | None


def _finish(session: Session, answer: dict[str, Any], ending: _Ending) -> dict[str, Any]:
    name, word = ending.name, ending.word
    for warning in answer.get("warnings") or ():
        click.echo(f"warning: {warning}", err=True)
    if answer.get("deleted"):  # an endpoint: it is gone already
        if session.human:
            click.echo(f"{name}: {word}")
        return answer
    operation = answer.get("operation") or {}
    uid = operation.get("id") if isinstance(operation, dict) else operation
    if ending.timeout_s is None:
        if session.human:
            how = f"moor operations watch {uid}" if uid else f"moor wait {name} --for stopped"
            click.echo(f"{name}: will be {word}; watch it with  {how}")
        return answer
    if (answer.get("run") or answer).get("kind") == "Run":
        wait_for_run(session, name, word, ending.timeout_s)
    elif uid:  # an operation that succeeds has proven the absence of what it ended
        watch_operation(session, str(uid), ending.timeout_s, name)
    if session.human:
        click.echo(f"{name}: {word}")
    return answer


def wait_for_run(session: Session, name: str, word: str, timeout_s: float) -> None:
    """Wait until a run has ended, or where it is deleted until it is gone."""
    runs, goal = session.client.runs, "deleted" if word == "deleted" else "stopped"
    wait = partial(runs.wait, name, goal, timeout_s=timeout_s, interval_s=LOOK_EVERY_S)
    watched(session, name, "stopped", lambda on_status: wait(on_status=on_status))


def _print(session: Session, answers: list[Any]) -> None:
    if not session.human:
        print_value(answers[0] if len(answers) == 1 else answers, session.form)


def _own_key(key: str | None, name: str, names: tuple[str, ...]) -> str | None:
    return f"{key}/{name}" if key and len(names) > 1 else key


def touches(name: str, plan: dict[str, Any]) -> str:
    """A DryRun in sentences."""
    lines = [f"deleting {name} would"]
    lines += [f"  {action.get('order')}. {action.get('summary')}" for action in plan.get("actions") or ()]
    lines.append("it touches")
    for kind, named in _by_kind(plan.get("touches") or ()).items():
        lines += [f"  {kind.ljust(12)}{line}" if n == 0 else " " * 14 + line for n, line in enumerate(named)]
    lines.append("what refers to it")
    for other in plan.get("refers") or ():
        label = f"{other.get('kind')} {other['name']}: " if other.get("name") not in (None, "-") else ""
        lines.append(f"  {label}{other.get('what_happens')}")
    lines += [f"warning: {w.get('message', w) if isinstance(w, dict) else w}" for w in plan.get("warnings") or ()]
    return "\n".join(lines)


def _by_kind(touched: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Names by kind, a few a line where there are many."""
    names: dict[str, list[str]] = {}
    for thing in touched:
        names.setdefault(str(thing.get("kind")), []).append(str(thing.get("name") or thing.get("id")))
    return {kind: [", ".join(found[n : n + 3]) for n in range(0, len(found), 3)] for kind, found in names.items()}

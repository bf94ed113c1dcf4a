"""`machines`, `cordon`, `drain` and `uncordon`: where things run, and taking a machine out of use or the cluster."""

import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import click

from moorage.cli import rows
from moorage.cli.commands.accounts import get_machine
from moorage.cli.commands.listing import selected
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, duration, examples
from moorage.domain.errors import InvalidSpec

key_option = click.option("--key", help="Idempotency key.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what it would touch.")


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "moor machines", "moor machines -l pool=gpu", "moor machines get box-1", "moor machines remove box-1"
    ),
)
@click.option("--label", "-l", "labels", multiple=True, metavar="KEY=VALUE", help="Only those with this label.")
@command
def machines(session: Session, labels: tuple[str, ...]) -> None:
    """Machines that joined, with what is used of each. `remove` takes one out of the cluster."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    found = [m for m in session.client.machines.list() if m.get("state") != "Removed"]
    shown = selected(found, labels)
    session.show(shown, lambda: rows.table("machines", shown, session.now()))


machines.add_command(get_machine)


@machines.command(name="join-token", epilog=examples("moor machines join-token"))
@key_option
@command
def join_token(session: Session, *, key: str | None) -> None:
    """A token with which other machines may join, for a day, and the command to run on them. It is shown this once."""
    made = session.client.machines.join_token(key=key)
    url = session.client.url
    session.show_text({**made, "url": url}, lambda: "\n".join(_how_to_join(url, made)))


def _how_to_join(url: str, made: dict[str, Any]) -> Iterator[str]:
    yield f"moor agent join {url} --token {made['token']}"
    yield f"until {made['expires_at']}, on each machine that is to join"
    if urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1"):
        yield "this control plane listens on this machine only; for others:  MOORAGE_API=0.0.0.0:7420 moor up"


@machines.command(epilog=examples("moor machines remove box-1 --dry-run", "moor machines remove box-1 --yes"))
@click.argument("machine")
@dry_run_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@key_option
@command
def remove(session: Session, *, machine: str, dry_run: bool, yes: bool, key: str | None) -> None:
    """Take a machine out of the cluster at once: what runs there is given up, its agent stops it and exits.

    To move its work elsewhere first, `moor drain` it. It may join again: by `moor up` where that started it, else by
    `moor agent join`.
    """
    if dry_run or not yes:
        plan = session.client.machines.remove(machine, dry_run=True)
        if dry_run:
            _show_plan(session, f"removing {machine}", plan)
            return
        click.echo(_touches(f"removing {machine}", plan), err=True)
        if not sys.stdin.isatty():
            raise InvalidSpec("nothing was removed: there is no terminal to ask on", remedy="say --yes")
        click.confirm(f"remove {machine} from the cluster?", abort=True, err=True)
    answer = session.client.machines.remove(machine, key=key)
    session.show_text(answer, lambda: f"{machine}: removed; its agent stops all it holds and exits")


@click.command(epilog=examples('moor cordon box-1 --why "fan is broken"'))
@click.argument("machine")
@click.option("--why", required=True, help="Shown wherever the machine is.")
@key_option
@command
def cordon(session: Session, *, machine: str, why: str, key: str | None) -> None:
    """Place nothing new on a machine. What runs there goes on; `moor uncordon` takes it back."""
    answer = session.client.machines.cordon(machine, why=why, key=key)
    session.show_text(answer, lambda: f"{machine}: takes no new work")


@click.command(epilog=examples("moor drain box-1 --dry-run", "moor drain box-1 --grace 30m", "moor uncordon box-1"))
@click.argument("machine")
@dry_run_option
@click.option(
    "--grace",
    "grace_s",
    callback=duration,
    metavar="DURATION",
    help="How long models there may wait for their replacements.  [default: 10m]",
)
@key_option
@command
def drain(session: Session, *, machine: str, dry_run: bool, grace_s: float | None, key: str | None) -> None:
    """Empty a machine: workers of runs are stopped and queued again, models are replaced elsewhere.

    Where another machine has room, a model's replacement is ready before the old one is stopped. `moor uncordon` ends
    the drain.
    """
    if dry_run:
        _show_plan(session, f"draining {machine}", session.client.machines.drain(machine, dry_run=True))
        return
    answer = session.client.machines.drain(machine, grace=grace_s, key=key)
    session.show_text(answer, lambda: f"{machine}: is drained; watch it with  moor machines")


@click.command(epilog=examples("moor uncordon box-1"))
@click.argument("machine")
@key_option
@command
def uncordon(session: Session, *, machine: str, key: str | None) -> None:
    """Give a machine work again; ends a cordon and a drain."""
    answer = session.client.machines.uncordon(machine, key=key)
    session.show_text(answer, lambda: f"{machine}: takes work again")


def _show_plan(session: Session, what: str, plan: dict[str, Any]) -> None:
    if session.human:
        click.echo(_touches(what, plan))
    else:
        print_value(plan, session.form)


def _touches(what: str, plan: dict[str, Any]) -> str:
    lines = [f"{what} would move:"]
    lines += [f"  {other.get('name')}: {other.get('what_happens')}" for other in plan.get("refers") or ()]
    lines += [f"  {warning}" for warning in plan.get("warnings") or ()]
    return "\n".join(lines)

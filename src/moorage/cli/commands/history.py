"""`history` and `events`: every change with its reason; of one object, or of everything as it happens."""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import click

from moorage.cli import rows
from moorage.cli.failures import Interrupted
from moorage.cli.layout import Table, layout, text_of
from moorage.cli.output import print_line, terminal_width
from moorage.cli.session import Session, command, examples
from moorage.cli.watching import namespace_flag

WIDE = 150
"""Columns of a terminal that holds an event and some words of its reason in one line."""


@click.command(epilog=examples("moor history gemma", "moor history gemma -o json"))
@click.argument("name")
@click.option("--lines", type=click.IntRange(1), help="Only the last so many changes.")
@click.option("--all", "everything", is_flag=True, help="Also the changes of its replicas, runs and workers.")
@command
def history(session: Session, name: str, lines: int | None, everything: bool) -> None:
    """Show every change of a deployment (with its rollouts), run, endpoint, key or worker, oldest first.

    Also of one that is gone.
    """
    changes = list(session.client.history(name))
    own = changes if everything else [c for c in changes if _is_about(c, name) or _is_of_rollouts(c)]
    shown = own[-lines:] if lines else own
    several = everything or any(_is_of_rollouts(c) for c in shown)
    session.show(
        shown,
        lambda: Table(
            rows.EVENTS if several else rows.HISTORY,
            tuple(rows.change_line(change, with_object=several) for change in shown),
            "no changes",
        ),
    )


@click.command(epilog=examples("moor events", "moor events -f", "moor events -f -o json | jq .reason.code"))
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens.")
@click.option("--lines", type=click.IntRange(0), default=50, show_default=True, help="How many past ones.")
@click.option("--after", help="A cursor: everything after it.")
@command
def events(session: Session, follow: bool, lines: int, after: str | None) -> None:
    """Show changes of everything in the namespace, oldest first."""
    found = session.client.events(after=after, namespace=session.namespace)
    items = list(found) if after else list(deque(found, maxlen=lines))
    if session.human:
        _print(items)
    elif not follow:
        session.show(items, lambda: Table((), ()))
        return
    else:
        for item in items:
            print_line(item)
    if follow:
        _follow(session, items[-1]["cursor"] if items else after)


def _follow(session: Session, cursor: str | None) -> None:
    last = cursor
    try:
        for item in session.client.events(after=cursor, follow=True, namespace=session.namespace):
            last = item.get("cursor") or last
            if session.human:
                _print([item])
            else:
                print_line(item)
    except KeyboardInterrupt:
        after = f" --after {last}" if last else ""
        raise Interrupted(f"moor events -f{after}{namespace_flag(session)}") from None


def _print(items: Iterable[Mapping[str, Any]]) -> None:
    """Lines of the same columns each time, so that those to come stand under those that were."""
    width = terminal_width()
    for item in items:
        table = Table(rows.EVENTS, (rows.change_line(item, with_object=True),))
        least = rows.EVENTS_LEAST if width is None or width >= WIDE else rows.EVENTS_LEAST_BELOW
        click.echo(text_of(layout(table, width, least=least, heading=False)))


def _is_of_rollouts(change: Mapping[str, Any]) -> bool:
    """Of a revision: what moved, and why. Of the first one too, to which a rollback may go back."""
    return (change.get("object") or {}).get("kind") == "Revision"


def _is_about(change: Mapping[str, Any], name: str) -> bool:
    thing = change.get("object") or {}
    named = thing.get("kind") in ("Deployment", "Run", "Endpoint", "Key") and thing.get("name") == name
    return named or thing.get("id") == name

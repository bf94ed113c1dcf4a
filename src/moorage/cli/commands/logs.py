"""`logs`: output of a model server or job, across its crashes, replacements, sleeps and wakes."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import click

from moorage.cli.failures import Interrupted
from moorage.cli.output import print_line
from moorage.cli.session import Session, command, examples
from moorage.cli.watching import namespace_flag


@click.command(
    epilog=examples("moor logs gemma", "moor logs gemma -f --grep error", "moor logs gemma --previous --lines 50")
)
@click.argument("name")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes.")
@click.option("--previous", is_flag=True, help="Of the attempt before this one.")
@click.option("--lines", type=click.IntRange(0, 10_000), default=200, show_default=True, help="How many past lines.")
@click.option("--grep", help="Only lines that contain this text.")
@command
def logs(session: Session, *, name: str, follow: bool, previous: bool, lines: int, grep: str | None) -> None:
    """Show the output of a deployment's model servers, or of a run or worker.

    Lines that begin with == are Moorage's own: a crash, a replacement, a sleep.
    """
    client = session.client
    options: dict[str, Any] = {"follow": follow, "previous": previous, "lines": lines, "grep": grep}
    try:
        for line in session.first_found(
            lambda: _begun(client.deployments.logs(name, **options)),
            lambda: _begun(client.runs.logs(name, **options)),
            lambda: _begun(client.workers.logs(name, **options)),
        ):
            if not session.human:
                print_line(line)
            elif line.get("kind") != "heartbeat":
                click.echo(f"== {line['line']}" if line.get("kind") == "event" else line.get("line", ""))
    except KeyboardInterrupt:
        if not follow:
            raise
        raise Interrupted(f"moor logs {name} -f{namespace_flag(session)}") from None


def _begun(lines: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The lines, once the first of them has come: only then is it known whether there is such a thing at all."""
    first = next(lines, None)
    return lines if first is None else chain((first,), lines)

"""`logs`: output of a model server or job, over all its workers, their crashes, replacements, sleeps and wakes."""

from collections.abc import Callable, Iterator
from typing import Any

import click

from moorage.cli.failures import Interrupted
from moorage.cli.logview import LogView
from moorage.cli.session import Session, command, examples
from moorage.cli.watching import namespace_flag

Json = dict[str, Any]
Opening = Callable[[], tuple[Iterator[Json], bool]]


@click.command(
    epilog=examples(
        "moor logs gemma",
        "moor logs -f train                       every worker, until the run has ended",
        "moor logs train --rank 0 --since 10m --grep 'loss=|error'",
        "moor logs train --previous --lines 50    the attempt before this one",
    )
)
@click.argument("name")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until it is over.")
@click.option("--previous", is_flag=True, help="Of the attempt before this one.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Of attempt N.")
@click.option(
    "--lines", type=click.IntRange(0, 10_000), help="Past lines of each worker; 200, or all there are with --since."
)
@click.option("--since", metavar="DURATION", help="Only lines of the last 30s, 10m or 1h30m.")
@click.option("--grep", metavar="PATTERN", help="Only lines in which this regular expression is found.")
@click.option("--timestamps", "-t", is_flag=True, help="The time in front of each line.")
@click.option("--worker", "workers", multiple=True, metavar="NAME", help="Only this worker of a run; may be repeated.")
@click.option("--rank", "ranks", multiple=True, type=int, metavar="N", help="Only this rank of a run; may be repeated.")
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Only this group of a run; may be repeated.")
@click.option("--no-prefix", is_flag=True, help="No worker's name in front of each line.")
@command
def logs(session: Session, *, name: str, no_prefix: bool, timestamps: bool, **which: Any) -> None:
    """Show the output of a deployment's model servers, or of a run or worker.

    Lines of several workers are put together by time, each after its worker's name. What happened between them (a new
    attempt, a crash, a sleep) is told on stderr.

    Machines keep logs of ended attempts for 7 days while there is room, those of failed ones longest:
    MOORAGE_AGENT_LOGS_AGE_S and MOORAGE_AGENT_LOGS_BYTES where the agent is started.
    """
    client = session.client
    chosen = {key: which.pop(key) for key in ("workers", "ranks", "groups")}
    try:
        open_lines = session.first_found(
            lambda: _of_deployment(client, name, which, chosen),
            lambda: _of_run(client, name, which, chosen),
            lambda: _of_worker(client, name, which),
        )
        lines, several = open_lines()
        view = LogView(human=session.human, prefix=several and not no_prefix, timestamps=timestamps)
        for line in lines:
            view.show(line)
    except KeyboardInterrupt:
        if not which["follow"]:
            raise
        raise Interrupted(f"moor logs {name} -f{namespace_flag(session)}") from None


def _of_deployment(client: Any, name: str, which: Json, chosen: Json) -> Opening:
    """Where there is one of that name: how to get its lines, and whether they are of several workers."""
    deployment = client.deployments.get(name)
    if any(chosen.values()):
        raise click.UsageError("--worker, --rank and --group choose among the workers of a run; this is a deployment")
    return lambda: (client.deployments.logs(name, **which), int(deployment.get("current_replicas") or 0) > 1)


def _of_run(client: Any, name: str, which: Json, chosen: Json) -> Opening:
    groups = ((client.runs.get(name).get("spec") or {}).get("groups")) or ()
    several = len(groups) > 1 or any(int(g.get("count") or 2) > 1 for g in groups)
    return lambda: (client.runs.logs(name, **which, **chosen), several)


def _of_worker(client: Any, name: str, which: Json) -> Opening:
    client.workers.get(name)
    return lambda: (client.workers.logs(name, **which), False)

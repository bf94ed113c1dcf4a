"""`exec`: a command beside a running worker, its streams and its exit code passed on."""

import sys
from typing import Any

import click

from moorage.cli.commands.serve import ServeCommand
from moorage.cli.failures import say
from moorage.cli.session import Session, command, examples
from moorage.domain.errors import InvalidSpec, NotFound

LISTED = 20
RUNS_NOW = frozenset({"Starting", "Running", "Stale", "Stopping"})


@click.command(
    cls=ServeCommand,
    epilog=examples(
        "moor exec train-0 -- nvidia-smi",
        "moor exec train -- bash                        the run's only worker; a terminal where this is one",
        "tar c data | moor exec -i train -- tar x -C /tmp",
    ),
)
@click.argument("worker", metavar="WORKER|RUN|RUN/WORKER")
@click.option("--tty/--no-tty", "-t/-T", default=None, help="A terminal of its own; so by itself where this is one.")
@click.option("--stdin", "-i", is_flag=True, help="Pass standard input on; so by itself with a terminal or a pipe.")
@command
def exec(session: Session, *, worker: str, tty: bool | None, stdin: bool) -> int:
    """Run a command beside a running worker: in its directory and environment, with its GPUs and mounts.

    Everything after -- is the command. Its output and exit code are this command's. A stop of the worker ends it, as
    does a lost connection.
    """
    from moorage.cli.terminal import Attached, terminal_size

    argv = list(click.get_current_context().meta.get(ServeCommand.REST) or ())
    if not argv:
        raise InvalidSpec("nothing to run", remedy=f"give the command after --: moor exec {worker} -- COMMAND")
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with_tty = on_terminal if tty is None else tty
    rows, columns = terminal_size()
    uid = _worker(session, worker)
    channel = session.client.workers.attach(
        uid,
        argv,
        tty=with_tty,
        stdin=stdin or with_tty or not sys.stdin.isatty(),
        rows=rows,
        columns=columns,
        term=session.env.get("TERM") if with_tty else None,
    )
    attached = Attached(channel, tty=with_tty, reads=stdin or with_tty or not sys.stdin.isatty())
    code, error = attached.carry()
    if error:
        say(f"error: {argv[0]} was not executed: {error}")
    return code


def _worker(session: Session, name: str) -> str:
    """What the API is asked for: the only worker of a run or deployment, RUN/WORKER, else the worker's own name or id.

    Raises:
        InvalidSpec: a run or deployment of several workers.
        NotFound: there is none.
    """
    client = session.client
    run, slash, of_run = name.partition("/")
    try:
        workers = session.first_found(lambda: client.runs.workers(run), lambda: _of_deployment(client, run))
    except NotFound:
        if slash:
            raise
        return name
    wanted = [w for w in workers if of_run in ("", w["name"], w["id"])]
    running = [w for w in wanted if w["state"] in RUNS_NOW] or wanted
    if len(running) == 1:
        return str(running[0]["id"])
    if not running:
        raise NotFound(f"{run} has no worker {of_run}".rstrip(), remedy=f"see what there is: moor workers {run}")
    names = ", ".join(f"{run}/{w['name']}" for w in running[:LISTED])
    more = f" and {len(running) - LISTED} more" if len(running) > LISTED else ""
    raise InvalidSpec(f"{name} has {len(running)} workers", remedy=f"name one of them: {names}{more}")


def _of_deployment(client: Any, name: str) -> list[dict[str, Any]]:
    """Workers of a deployment's live replicas."""
    live = [r for r in client.deployments.replicas(name) if r.get("run") and r["status"] not in ("stopped", "failed")]
    return [worker for replica in live for worker in client.runs.workers(replica["run"])]

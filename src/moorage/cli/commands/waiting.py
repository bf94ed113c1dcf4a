"""`wait`: for a goal, by the SDK's rules; fails with the reason when the goal cannot be reached."""

import click

from moorage.cli.commands.apply import bound_words, wait_until_bound
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples, timeout_option
from moorage.cli.watching import LOOK_EVERY_S, watched
from moorage.domain.errors import NotFound

OF_DEPLOYMENTS = ("accepted", "ready", "live", "promoted", "stopped")
OF_RUNS = ("accepted", "running", "completed", "stopped", "deleted")
OF_ENDPOINTS = ("bound",)
GOALS = tuple(dict.fromkeys((*OF_DEPLOYMENTS, *OF_RUNS, *OF_ENDPOINTS)))


@click.command(
    epilog=examples(
        "moor wait gemma --for live --timeout 10m",
        "moor wait gemma --for stopped",
        "moor wait train",
        "moor wait chat --for bound",
    )
)
@click.argument("name")
@click.option(
    "--for", "goal", type=click.Choice(GOALS), help="What to wait for: live, of a run completed, of an endpoint bound."
)
@timeout_option("30m")
@command
def wait(session: Session, name: str, goal: str | None, timeout_s: float) -> None:
    """Wait for a goal. Exit code 0: reached; 1: it cannot be reached, and why; 3: the time-out passed first."""
    if goal in OF_ENDPOINTS or (goal is None and _is_endpoint(session, name)):
        found = wait_until_bound(session, name, timeout_s).last
        session.show_text(found, lambda: bound_words(name, found))
        return
    is_run = _is_run(session, name, goal)
    goal = goal or ("completed" if is_run else "live")
    resource = session.client.runs if is_run else session.client.deployments
    outcome = watched(
        session,
        name,
        goal,
        lambda on_status: resource.wait(name, goal, timeout_s=timeout_s, interval_s=LOOK_EVERY_S, on_status=on_status),
    )
    if session.human:
        click.echo(f"{name}: {outcome.last.get('state') or goal if is_run else outcome}")
    else:
        print_value(outcome.last, session.form)


def _is_endpoint(session: Session, name: str) -> bool:
    """Whether people made an endpoint of that name; a deployment's own is none of them."""
    try:
        return not session.client.endpoints.get(name)["own"]
    except NotFound:
        return False


def _is_run(session: Session, name: str, goal: str | None) -> bool:
    """Whether a run is meant: told by the goal where only one kind has it, else by what there is of that name."""
    if goal is not None and (goal in OF_RUNS) != (goal in OF_DEPLOYMENTS):
        return goal in OF_RUNS
    client = session.client
    try:
        client.deployments.get(name)
    except NotFound:
        try:
            client.runs.get(name)
        except NotFound:
            return False
        return True
    return False

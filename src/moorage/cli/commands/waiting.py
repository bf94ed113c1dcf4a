"""`wait`: for a goal, by the SDK's rules; fails with the reason when the goal cannot be reached."""

import click

from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples, timeout_option
from moorage.cli.watching import LOOK_EVERY_S, watched

GOALS = ("accepted", "ready", "live", "promoted", "stopped", "completed")


@click.command(epilog=examples("moor wait gemma --for live --timeout 10m", "moor wait gemma --for stopped"))
@click.argument("name")
@click.option("--for", "goal", type=click.Choice(GOALS), default="live", show_default=True, help="What to wait for.")
@timeout_option("30m")
@command
def wait(session: Session, name: str, goal: str, timeout_s: float) -> None:
    """Wait for a goal. Exit code 0: reached; 1: it cannot be reached, and why; 3: the time-out passed first."""
    resource = session.client.runs if goal == "completed" else session.client.deployments
    outcome = watched(
        session,
        name,
        goal,
        lambda on_status: resource.wait(name, goal, timeout_s=timeout_s, interval_s=LOOK_EVERY_S, on_status=on_status),
    )
    if session.human:
        click.echo(f"{name}: {outcome}")
    else:
        print_value(outcome.last, session.form)

"""`cancel` and `restart`: runs ended by a person, and started again."""

from typing import Any

import click

from moorage.cli.following import follow
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples, timeout_option
from moorage.cli.watching import LOOK_EVERY_S, namespace_flag, watched

Json = dict[str, Any]


@click.command(epilog=examples("moor cancel train", "moor cancel train --why 'wrong data' --wait"))
@click.argument("names", nargs=-1, required=True)
@click.option("--why", help="Shown to all who ask why it ended.")
@click.option("--key", help="Idempotency key; with several names each gets KEY/NAME.")
@click.option("--wait", is_flag=True, help="Wait until nothing of it runs any more.")
@timeout_option("10m")
@command
def cancel(
    session: Session, *, names: tuple[str, ...], why: str | None, key: str | None, wait: bool, timeout_s: float
) -> None:
    """End runs: each worker gets its stop signal and its grace, then nothing of it is left.

    Kept while the control plane or a machine is away: it is carried out when that is back.
    """
    answers = []
    for name in names:  # all are asked to end before any is waited for
        own_key = f"{key}/{name}" if key and len(names) > 1 else key
        answers.append(session.client.runs.cancel(name, text=why, key=own_key))
        if session.human and not wait:
            click.echo(f"{name}: will be cancelled; watch it with  moor wait {name} --for stopped")
    if wait:
        answers = [until_ended(session, name, timeout_s) for name in names]
    if not session.human:
        print_value(answers[0] if len(answers) == 1 else answers, session.form)


@click.command(epilog=examples("moor restart train", "moor restart train --follow"))
@click.argument("name")
@click.option("--follow", "-f", "followed", is_flag=True, help="Show its output until it has ended.")
@click.option("--key", help="Idempotency key.")
@command
def restart(session: Session, *, name: str, followed: bool, key: str | None) -> int | None:
    """Start a run again. Of one that lives every worker is stopped and queued again; a finished one runs anew."""
    answer = session.client.runs.restart(name, key=key)
    run: Json = answer.get("run") or answer
    if followed:
        return follow(session, run)
    if session.human:
        flag = namespace_flag(session)
        what = "runs anew" if run.get("restarted_from") else "starts again"
        click.echo(f"{name}: {what}; watch it with  moor logs -f {run['name']}{flag}")
    else:
        print_value(answer, session.form)
    return None


def until_ended(session: Session, name: str, timeout_s: float | None) -> Json:
    """Wait until the run has ended however, and say how."""
    runs = session.client.runs
    outcome = watched(
        session,
        name,
        "stopped",
        lambda on_status: runs.wait(name, "stopped", timeout_s=timeout_s, interval_s=LOOK_EVERY_S, on_status=on_status),
    )
    if session.human:
        click.echo(f"{name}: {outcome.last.get('state')}")
    return dict(outcome.last)

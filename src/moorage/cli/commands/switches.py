"""`scale`, `pause` and `wake`: orders that take effect at once and are not operations."""

from typing import Any

import click

from moorage.cli.session import Session, command, examples
from moorage.cli.times import clock
from moorage.cli.watching import sentence

COUNT = click.IntRange(0, 10_000)
"""What the API takes for a number of replicas."""


@click.command(epilog=examples("moor scale gemma --min 1 --max 3", "moor scale gemma"))
@click.argument("name")
@click.option("--min", "minimum", type=COUNT, help="Least replicas.")
@click.option("--max", "maximum", type=COUNT, help="Most replicas.")
@click.option("--key", help="Idempotency key.")
@command
def scale(session: Session, name: str, minimum: int | None, maximum: int | None, key: str | None) -> None:
    """Change how many replicas a deployment may have, until its next apply; without a number, show how it scales."""
    if minimum is None and maximum is None:
        shown = session.client.deployments.scaling(name)
        session.show_text(shown, lambda: scaling_words(shown))
        return
    answer = session.client.deployments.scale(name, minimum=minimum, maximum=maximum, key=key)
    _tell(session, name, answer, "its limits are changed")


def scaling_words(shown: dict[str, Any]) -> str:
    """Size and limits, the last decision, the load and the decisions before, in sentences."""
    limits = f"between {shown['min']} and {shown['max']}" if shown["scales"] else "fixed"
    lines = [f"{shown['name']}: {shown['desired']} replicas wanted ({limits})", f"  {shown['reason']['message']}"]
    load = shown.get("load")
    if load is not None:
        target = shown["target_in_flight"]
        lines.append(
            f"  load: {load['urgent']:g} requests in flight or held now, {load['stable']:g} over "
            f"{load['stable_s']:g} s, {load['peak']:g} at most; {target:g} for a replica"
        )
    decisions = shown.get("decisions") or []
    if decisions:
        lines.append("  decisions, newest last:")
        lines += [f"    {clock(d['at'])}  {d['reason']['message']}" for d in decisions]
    return "\n".join(lines)


@click.command(epilog=examples("moor pause gemma"))
@click.argument("name")
@click.option("--key", help="Idempotency key.")
@command
def pause(session: Session, name: str, key: str | None) -> None:
    """Put a deployment to sleep. The next request wakes it, and waits meanwhile."""
    slept = session.human and session.client.deployments.get(name).get("status") == "paused"
    ordered = "sleeps already" if slept else "will sleep once nothing is in flight"
    _tell(session, name, session.client.deployments.pause(name, key=key), ordered)


@click.command(epilog=examples("moor wake gemma"))
@click.argument("name")
@click.option("--key", help="Idempotency key.")
@command
def wake(session: Session, name: str, key: str | None) -> None:
    """Wake a sleeping deployment without a request."""
    _tell(session, name, session.client.deployments.wake(name, key=key), "is being woken")


def _tell(session: Session, name: str, answer: dict[str, Any], ordered: str) -> None:
    """The API's answer for programs; what was ordered, and what the deployment does now, for people."""
    session.show_text(answer, lambda: f"{name}: {ordered}; now {sentence(session.client.deployments.get(name))}")

"""`machines get`: one machine with its ledger of GPUs, a line for each."""

from collections.abc import Iterator
from typing import Any

import click

from moorage.cli import gpus, rows
from moorage.cli.output import print_table
from moorage.cli.session import Session, command, examples
from moorage.cli.times import age


@click.command(name="get", epilog=examples("moor machines get box-1", "moor machines get box-1 -o json"))
@click.argument("machine")
@command
def get_machine(session: Session, *, machine: str) -> None:
    """Show one machine: what is used of it, and who holds each of its GPUs, since and until when."""
    found = session.client.machines.get(machine)
    session.show_text(found, lambda: "\n".join(_about(found, session.now())))
    if session.human and found.get("gpus"):
        click.echo("")
        print_table(gpus.machine_table(found, session.now()))


def _about(found: dict[str, Any], now: float) -> Iterator[str]:
    capacity, held = found.get("capacity") or {}, found.get("allocated") or {}
    yield f"{found['name']}: {found.get('state')}, heard {age(found.get('heartbeat_at'), now)} ago"
    yield (
        f"{held.get('cpu_milli', 0) / 1000:g} of {capacity.get('cpu_milli', 0) / 1000:g} cores, "
        f"{rows.size(held.get('memory_bytes'))} of {rows.size(capacity.get('memory_bytes'))} memory, "
        + (gpus.summary(found.get("gpus") or ()) or "no GPUs")
    )
    if found.get("cordoned"):
        yield f"takes no new work: {found['cordoned']}"
    if found.get("pressure"):
        yield f"short of {', '.join(found['pressure'])}: takes no new work"

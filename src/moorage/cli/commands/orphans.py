"""`orphans`: what is really on the machines and belongs to nothing, from a real inventory."""

from typing import Any

import click

from moorage.cli.failures import say
from moorage.cli.output import Column, Table
from moorage.cli.session import Session, command, examples

COLUMNS = (
    Column("MACHINE"),
    Column("RESOURCE"),
    Column("IS"),
    Column("IDENTITY", minor=True),
    Column("WHY", flex=True),
)


@click.command(epilog=examples("moor orphans", "moor orphans --all", "moor orphans -o json"))
@click.option("--all", "everything", is_flag=True, help="Also what is as it should be.")
@command
def orphans(session: Session, *, everything: bool) -> None:
    """Processes and containers with our marks that nothing means, or that a person must judge.

    Every machine is asked now. One that cannot tell everything is named: an empty list says nothing about it.
    """
    found = session.client.inventory() if everything else session.client.orphans()
    rows = tuple(_row(item) for item in found["items"])
    if found["inventory_complete"]:
        nothing = "nothing is out of place: every machine told everything that it has"
    else:
        nothing = "nothing out of place was seen"
    session.show(found, lambda: Table(COLUMNS, rows, nothing))
    for part in found["incomplete"]:
        say(f"incomplete: {part['machine']}: {part['why']}")


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    return (item["machine"], item["resource_id"] or "-", item["drift"], item["identity"] or "-", item["why"])

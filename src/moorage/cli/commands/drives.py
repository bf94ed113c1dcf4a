"""`drives`: make, list and forget drives of a namespace."""

from typing import Any

import click

from moorage.cli.output import Column, Table
from moorage.cli.session import Session, command, examples
from moorage.cli.times import age


@click.group(
    epilog=examples(
        "moor drives create data --size 80GiB --machine box-1",
        "moor drives create data --size 80GiB --site oslo",
        "moor drives ls",
        "moor drives rm data",
    )
)
def drives() -> None:
    """Data that lies on one machine, by name and size.

    Workers see it at a path of their own: `drives: [{name: data, target: /data}]` takes them to its machine, with
    `place: true` a copy is made on theirs.
    """


@drives.command("ls", epilog=examples("moor drives ls", "moor drives ls -n research -o json"))
@command
def list_all(session: Session) -> None:
    """What there is, and where it lies."""
    found = session.client.drives.list()
    now = session.now()
    columns = (
        Column("NAME"),
        Column("SIZE", right=True),
        Column("MACHINE"),
        Column("SITE", minor=True),
        Column("AGE"),
        Column("PATH", flex=True),
    )
    rows = tuple(_row(drive, now) for drive in found)
    session.show(found, lambda: Table(columns, rows, "no drive is in this namespace"))


@drives.command("create", epilog=examples("moor drives create data --size 80GiB --machine box-1"))
@click.argument("name")
@click.option("--size", required=True, metavar="SIZE", help="Room it may take, such as 80GiB.")
@click.option("--machine", help="Where it lies; else the machine with the most room.")
@click.option("--site", help="Chosen among the machines of this site.")
@command
def create(session: Session, *, name: str, size: str, machine: str | None, site: str | None) -> None:
    """Make a drive; what is put at its path on its machine is its data."""
    wanted = {"name": name, "size": size, "machine": machine, "site": site}
    made = session.client.drives.apply({key: value for key, value in wanted.items() if value is not None})
    session.show_text(made, lambda: f"{name}: on {made['machine']}, at {made['path']}")


@drives.command("rm", epilog=examples("moor drives rm data"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@command
def remove(session: Session, names: tuple[str, ...]) -> None:
    """Forget drives; refused while something uses them. Their data stays where it is."""
    gone = [session.client.drives.remove(name) for name in names]
    session.show_text(gone, lambda: "\n".join(f"{d['name']}: forgotten; its data stays on {_where(d)}" for d in gone))


def _where(drive: dict[str, Any]) -> str:
    return f"{drive['machine']} at {drive['path']}" if drive["path"] else str(drive["machine"])


def _row(drive: dict[str, Any], now: float) -> tuple[str, ...]:
    from moorage.domain.units import show_size

    where = drive["unusable"] or drive["path"] or "-"
    since = age(drive["created_at"], now)
    return (drive["name"], show_size(drive["size"]), drive["machine"], drive["site"] or "-", since, where)

"""`config show` and `version`: what this installation is and which settings are in force."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from moorage._version import VERSION
from moorage.cli.layout import GAP, NOTHING
from moorage.cli.output import Column, Table, terminal_width
from moorage.cli.session import Session, command, examples
from moorage.domain.errors import InvalidSpec, MoorageError


@click.group()
def config() -> None:
    """Effective settings, and where each comes from."""


@config.command(epilog=examples("moor config show", "moor config show -o json"))
@command
def show(session: Session) -> None:
    """Show every setting with its value and its source: a variable, the file, or the default.

    They are those of this shell and of $MOORAGE_HOME/config.toml, with which `moor up` would start now. Where what was
    started last has another value, that is shown beside it.
    """
    rows = _settings(session)
    session.show(rows, lambda: settings_table(rows, terminal_width()))


def settings_table(rows: Sequence[Mapping[str, Any]], width: int | None) -> Table:
    """Settings as people read them: an empty value is a dash, so that nothing else is taken for it.

    Where there is no room for their sources beside them, those that are not the default stand below their row.

    Args:
        width: columns there are; None where nothing needs to fit.
    """
    differ = any("runs" in row for row in rows)
    cells = [
        (row["name"], str(row["value"]) or NOTHING, row["source"], (row["runs"] or NOTHING) if "runs" in row else "")
        for row in rows
    ]
    heads = ("SETTING", "VALUE", "FROM", "STARTED WITH")
    many = 4 if differ else 3
    room = sum(max(len(line[i]) for line in (heads, *cells)) + GAP for i in range(many)) - GAP
    if width is None or room <= width:
        return Table(tuple(Column(head) for head in heads[:many]), tuple(cell[:many] for cell in cells))
    columns = [Column("SETTING"), Column("VALUE"), Column("FROM, where it is not the default", flex=True)]
    columns += [Column("STARTED WITH, where that is another value", flex=True)] if differ else []
    lines = [
        (
            name,
            value,
            "" if source == "default" else f"from {source}",
            f"started with {runs}" if runs else "",
        )[: len(columns)]
        for name, value, source, runs in cells
    ]
    return Table(tuple(columns), tuple(lines))


def _settings(session: Session) -> list[dict[str, Any]]:
    # settings belong to the composition, which commands do not import: they ask it
    argv = [sys.executable, "-P", "-m", "moorage.app.commands", "config", "{}"]
    done = subprocess.run(argv, env=dict(session.env), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = done.stderr.strip().removeprefix("error: ")
        raise InvalidSpec(message or "the settings cannot be read", remedy=None)
    click.echo(done.stderr, err=True, nl=False)  # warnings
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


@click.command(epilog=examples("moor version"))
@command
def version(session: Session) -> None:
    """Show the version of this command, and whether the control plane answers."""
    session.patient = False  # it asks how things are now
    value: dict[str, Any] = {"command": VERSION, "python": sys.version.split()[0], "server": None, "url": None}
    try:
        value |= _server(session)
    except MoorageError as cause:
        value["server_error"] = cause.message
    session.show_text(value, lambda: _words(value))


def _server(session: Session) -> dict[str, Any]:
    health = session.client.health()
    return {"server": health.get("version") or "ready", "url": session.client.address.url}


def _words(value: dict[str, Any]) -> str:
    server = f"{value['server']} at {value['url']}" if value["server"] else f"no answer: {value.get('server_error')}"
    return f"moor           {value['command']} (Python {value['python']})\ncontrol plane  {server}"

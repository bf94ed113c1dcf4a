"""`secrets`: set, list and remove secrets of a namespace. What is set is never printed."""

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from moorage.cli.output import Column, Table
from moorage.cli.session import Session, command, examples
from moorage.cli.times import age
from moorage.domain.errors import InvalidSpec


@click.group(
    epilog=examples(
        "moor secrets set hf-token --from-file value=token.txt",
        "moor secrets set ghcr --from-env username=GH_USER --from-env password=GH_TOKEN",
        "moor secrets ls",
        "moor secrets rm hf-token",
    )
)
def secrets() -> None:
    """Values that workers are given and nobody can read back.

    A spec names them: `runtime.secrets: {HF_TOKEN: hf-token}`, or `NAME/KEY` for one key of several.
    `runtime.registry_secret: ghcr` logs in at an image's registry with the keys `username` and `password`.
    """


@secrets.command("ls", epilog=examples("moor secrets ls", "moor secrets ls -n research -o json"))
@command
def list_all(session: Session) -> None:
    """Names, keys and when they were set."""
    found = session.client.secrets.list()
    now = session.now()
    lines = tuple((s["name"], ", ".join(s["keys"]), str(s["version"]), age(s["updated_at"], now)) for s in found)
    columns = (Column("NAME"), Column("KEYS", flex=True), Column("VERSION", right=True), Column("SET"))
    session.show(found, lambda: Table(columns, lines, "no secret is set in this namespace"))


@secrets.command(
    "set",
    epilog=examples(
        "moor secrets set hf-token < token.txt           # the key `value`, from standard input",
        "moor secrets set hf-token --from-file value=token.txt",
        "moor secrets set ghcr username=me --from-env password=GH_TOKEN",
    ),
)
@click.argument("name")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--from-file", "files", multiple=True, metavar="KEY=PATH", help="A key's value is the file's text.")
@click.option("--from-env", "variables", multiple=True, metavar="KEY[=VARIABLE]", help="... or that of a variable.")
@click.option("--allow-empty", is_flag=True, help="Set it although a value is empty.")
@command
def set_one(
    session: Session,
    *,
    name: str,
    pairs: tuple[str, ...],
    files: tuple[str, ...],
    variables: tuple[str, ...],
    allow_empty: bool,
) -> None:
    """Set a secret, with exactly the keys given; without any, the key `value` is read from standard input.

    What stands on the command line is seen by whoever may list processes here and kept by the shell: for anything but
    names use a file, a variable or standard input.
    """
    values = {
        **dict(_pair(pair, "KEY=VALUE") for pair in pairs),
        **{key: _text_of(Path(path)) for key, path in (_pair(file, "KEY=PATH") for file in files)},
        **dict(_from_variable(variable, session.env) for variable in variables),
    }
    if not (pairs or files or variables):
        values = {"value": _standard_input()}
    empty = sorted(key for key, value in values.items() if not value)
    if empty and not allow_empty:
        raise InvalidSpec(
            f"the value of {', '.join(empty)} is empty", remedy="check where it comes from, or add --allow-empty"
        )
    made = session.client.secrets.set(name, values)
    session.show_text(made, lambda: f"{name}: set ({', '.join(made['keys'])}), version {made['version']}")


@secrets.command("rm", epilog=examples("moor secrets rm hf-token"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@command
def remove(session: Session, names: tuple[str, ...]) -> None:
    """Remove secrets. Workers that have their values keep them until they end."""
    gone = [session.client.secrets.remove(name) for name in names]
    session.show_text(gone, lambda: "\n".join(f"{name}: removed" for name in names))


def _pair(text: str, form: str) -> tuple[str, str]:
    """Key and the rest; the message of a wrong one shows nothing that might be a value."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise InvalidSpec(f"an argument is not {form}", remedy=f"write it as {form}")
    return key, value


def _from_variable(text: str, env: Mapping[str, str]) -> tuple[str, str]:
    key, equals, variable = text.partition("=")
    found = env.get(variable if equals else key)
    if found is None:
        said = f"the variable named for {key}" if equals else f"there is no variable {key}, or it"
        raise InvalidSpec(f"--from-env: {said} is not set", remedy="export it first, and write KEY=VARIABLE")
    return key, found


def _text_of(path: Path) -> str:
    try:
        return _without_newline(path.read_text())
    except (OSError, UnicodeDecodeError) as cause:
        said = cause.strerror if isinstance(cause, OSError) else "it is not UTF-8 text"
        raise InvalidSpec(f"cannot read {path}: {said}") from None


def _standard_input() -> str:
    if sys.stdin.isatty():
        return str(click.prompt("value", hide_input=True))
    return _without_newline(sys.stdin.read())


def _without_newline(text: str) -> str:
    """A file of one line has a newline at its end that nobody means to be part of a token."""
    return text[:-1] if text.endswith("\n") and text.count("\n") == 1 else text

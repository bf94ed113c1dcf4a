"""`keys`: what clients of endpoints show. A key's text is printed once, by the command that makes it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from moorage.cli.output import Column, Table, print_value
from moorage.cli.session import Session, command, duration, examples
from moorage.cli.times import age, seconds, span
from moorage.domain.errors import InvalidSpec

F = TypeVar("F", bound=Callable[..., Any])

LIMITS: Mapping[str, str] = {
    "requests_per_minute": "Requests with it in any 60 seconds.",
    "tokens_per_minute": "Tokens of prompts and answers in any 60 seconds.",
    "in_flight": "Requests with it at the same time.",
}
"""What a key may be limited in."""


@click.group(
    epilog=examples(
        "moor keys create app --endpoint chat --requests-per-minute 60 --expires 30d",
        "moor keys ls",
        "moor keys limit app --tokens-per-minute 20000",
        "moor keys revoke app --text 'it was in a log'",
        "moor keys delete app",
    )
)
def keys() -> None:
    """What clients of endpoints show to the gateway, where an OpenAI client has its API key.

    A namespace answers clients without one too, until `moor namespaces set NAME --keys required`.
    """


def _limit_options(function: F) -> F:
    for name, text in reversed(list(LIMITS.items())):
        kind = click.IntRange(min=1, max=1_000_000_000)
        function = click.option(f"--{name.replace('_', '-')}", name, type=kind, default=None, help=text)(function)
    return function


@keys.command(
    "create",
    epilog=examples(
        "moor keys create app",
        "moor keys create app --endpoint chat --endpoint embed --in-flight 8 --expires 30d",
        "moor keys create app -n research -o json",
    ),
)
@click.argument("name")
@click.option("--endpoint", "endpoints", multiple=True, metavar="NAME", help="An endpoint that it opens; none: all.")
@_limit_options
@click.option(
    "--expires", "expires_in_s", metavar="DURATION", callback=duration, help="When it ends, such as 12h, 30d."
)
@click.option("--description", default="", help="Whose it is, and what for.")
@command
def create(
    session: Session,
    *,
    name: str,
    endpoints: tuple[str, ...],
    expires_in_s: float | None,
    description: str,
    **given: int | None,
) -> None:
    """Make a key. Its text is printed now and never again: only a digest of it is kept."""
    made = session.client.keys.create(
        name,
        endpoints=endpoints,
        limits={limit: value for limit, value in given.items() if value is not None},
        expires_in_s=expires_in_s,
        description=description,
    )
    session.show_text(made, lambda: _told(made))


@keys.command("ls", epilog=examples("moor keys ls", "moor keys ls -n research -o json"))
@command
def list_all(session: Session) -> None:
    """Every key of the namespace: what it opens, its limits, and how long it lasts."""
    found = session.client.keys.list()
    now = session.now()
    names = ("NAME", "STATE", "BEGINS WITH", "ENDPOINTS", "LIMITS", "EXPIRES", "AGE")
    columns = tuple(Column(name, flex=name == "LIMITS") for name in names)
    lines = tuple(_line(key, now) for key in found)
    session.show(found, lambda: Table(columns, lines, "no key is issued in this namespace"))


@keys.command("get", epilog=examples("moor keys get app", "moor keys get app -o json"))
@click.argument("name")
@command
def get(session: Session, name: str) -> None:
    """Show one whole, without its text."""
    print_value(session.client.keys.get(name), "yaml" if session.human else session.form)


@keys.command(
    "limit",
    epilog=examples(
        "moor keys limit app --requests-per-minute 600 --in-flight 8",
        "moor keys limit app --unlimited in-flight",
        "moor keys limit app --endpoint chat",
        "moor keys limit app --all-endpoints",
    ),
)
@click.argument("name")
@_limit_options
@click.option(
    "--unlimited",
    multiple=True,
    type=click.Choice([limit.replace("_", "-") for limit in LIMITS]),
    help="Take a limit away.",
)
@click.option("--endpoint", "endpoints", multiple=True, metavar="NAME", help="What it opens, and nothing else.")
@click.option("--all-endpoints", "every", is_flag=True, help="It opens every endpoint of its namespace.")
@click.option("--description", help="Whose it is, and what for.")
@command
def limit(
    session: Session,
    *,
    name: str,
    unlimited: tuple[str, ...],
    endpoints: tuple[str, ...],
    every: bool,
    description: str | None,
    **given: int | None,
) -> None:
    """Change what a key may do; what is not named stays. Gateways follow at once; its text stays the same."""
    wanted = {limit: value for limit, value in given.items() if value is not None}
    away = {word.replace("-", "_") for word in unlimited}
    if endpoints and every:
        raise InvalidSpec("--endpoint and --all-endpoints exclude each other", remedy="give one of them")
    if both := sorted(away & wanted.keys()):
        raise InvalidSpec(f"{', '.join(both)} is given a limit and none", remedy="give one of them")
    if not (wanted or away or endpoints or every or description is not None):
        raise InvalidSpec("nothing is to be changed", remedy=f"say what, such as  moor keys limit {name} --in-flight 8")
    limits = None
    if wanted or away:
        before = session.client.keys.get(name)["limits"]
        limits = {limit: value for limit, value in {**before, **wanted}.items() if limit not in away}
    opens = endpoints if endpoints or every else None
    made = session.client.keys.limit(name, endpoints=opens, limits=limits, description=description)
    session.show_text(made, lambda: f"{name}: opens {_opens(made)}; {_limits(made)}")


@keys.command("revoke", epilog=examples("moor keys revoke app", "moor keys revoke app --text 'it was in a log'"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--text", help="Why, for its history.")
@command
def revoke(session: Session, names: tuple[str, ...], text: str | None) -> None:
    """Make keys open nothing any more, for good. They stay in the list until they are deleted."""
    ended = [session.client.keys.revoke(name, text=text) for name in names]
    session.show_text(ended, lambda: "\n".join(f"{name}: revoked" for name in names))


@keys.command("delete", epilog=examples("moor keys delete app"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@command
def delete(session: Session, names: tuple[str, ...]) -> None:
    """Forget keys: they open nothing any more, and their names are free again."""
    gone = [session.client.keys.delete(name) for name in names]
    session.show_text(gone, lambda: "\n".join(f"{name}: deleted" for name in names))


def _told(made: Mapping[str, Any]) -> str:
    """The text and how to use it; without one, why and what to do."""
    name, text = made["name"], made["key"]
    if text is None:
        return (
            f"{name}: made, but its text was told in an answer that was lost, and is kept nowhere\n"
            f"  make it anew: moor keys delete {name} -n {made['namespace']}, then create it again"
        )
    return (
        f"{name}: opens {_opens(made)}; {_limits(made)}\n\n  {text}\n\n"
        "Keep it now: it is not shown again. Clients show it to the gateway:\n"
        f"  export OPENAI_API_KEY={text}\n"
        f'  curl -H "Authorization: Bearer $OPENAI_API_KEY" …'
    )


def _line(key: Mapping[str, Any], now: float) -> tuple[str, ...]:
    until = key["expires_at"]
    left_s = None if until is None else seconds(until) - now
    ends = "never" if left_s is None else f"in {span(left_s)}" if left_s > 0 else f"{age(until, now)} ago"
    opens, limits = ", ".join(key["endpoints"]) or "all", _limits(key)
    return key["name"], key["state"], key["hint"], opens, limits, ends, age(key["created_at"], now)


def _opens(key: Mapping[str, Any]) -> str:
    return ", ".join(key["endpoints"]) or f"every endpoint of the namespace {key['namespace']}"


def _limits(key: Mapping[str, Any]) -> str:
    return (
        ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in sorted(key["limits"].items())) or "unlimited"
    )

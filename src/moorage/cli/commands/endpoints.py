"""`endpoint`: names that clients call, what they are bound to, and binding them anew."""

from functools import partial

import click

from moorage.cli import rows
from moorage.cli.commands.apply import told_endpoint
from moorage.cli.commands.ending import agreed
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples, timeout_option
from moorage.domain.errors import InvalidSpec

WHOLE = 100


@click.group(
    epilog=examples(
        "moor endpoint ls --all",
        "moor endpoint bind chat gemma --wait",
        "moor endpoint bind chat gemma=90 llama=10 --wait",
        "moor endpoint delete chat",
    )
)
def endpoint() -> None:
    """Names that clients send as `model`, in front of deployments.

    Every deployment has an endpoint of its own name. One that you make can be bound to another deployment, or to
    several by weight, without a lost request: what is in flight ends where it is.
    """


@endpoint.command("ls", epilog=examples("moor endpoint ls", "moor endpoint ls --all -o json"))
@click.option("--all", "-a", "own", is_flag=True, help="Also those that deployments have of their own.")
@command
def list_all(session: Session, own: bool) -> None:
    """What there is, what answers, and whether it does."""
    found = session.client.endpoints.list(own=own)
    session.show(found, lambda: rows.table("endpoints", found, session.now()))


@endpoint.command("get", epilog=examples("moor endpoint get chat", "moor endpoint get chat -o json"))
@click.argument("name")
@command
def get(session: Session, name: str) -> None:
    """Show one whole: routes, limits, its generation and that of every gateway."""
    print_value(session.client.endpoints.get(name), "yaml" if session.human else session.form)


@endpoint.command("bind", epilog=examples("moor endpoint bind chat gemma", "moor endpoint bind chat gemma=90 llama=10"))
@click.argument("name")
@click.argument("routes", nargs=-1, required=True, metavar="DEPLOYMENT[=WEIGHT]...")
@click.option("--key", help="Idempotency key.")
@click.option("--wait", is_flag=True, help="Wait until every gateway has it.")
@timeout_option("60s")
@command
def bind(
    session: Session, *, name: str, routes: tuple[str, ...], key: str | None, wait: bool, timeout_s: float
) -> None:
    """Bind an endpoint to these deployments and no others; made where there is none. Limits and labels stay."""
    answer = session.client.endpoints.bind(name, weights_of(routes), key=key)
    last = told_endpoint(session, name, answer, timeout_s if wait else None)
    if not session.human:
        print_value(last, session.form)


@endpoint.command("delete", epilog=examples("moor endpoint delete chat --dry-run", "moor endpoint delete chat --yes"))
@click.argument("names", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only show what it would touch.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@command
def delete(session: Session, *, names: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Take endpoints away; their deployments go on. Requests in flight end where they are."""
    endpoints = session.client.endpoints
    if not agreed(session, names, partial(endpoints.delete, dry_run=True), dry_run=dry_run, yes=yes):
        return
    gone = [endpoints.delete(name) for name in names]
    session.show_text(gone, lambda: "\n".join(f"{name}: deleted" for name in names))


def weights_of(routes: tuple[str, ...]) -> dict[str, int]:
    """Weight by deployment.

    Raises:
        InvalidSpec: one is not DEPLOYMENT or DEPLOYMENT=WEIGHT, or is named twice.
    """
    weights: dict[str, int] = {}
    for route in routes:
        name, equals, weight = route.partition("=")
        if not name or (equals and not (weight.isascii() and weight.isdigit())):
            raise InvalidSpec(
                f"{route!r} is not DEPLOYMENT or DEPLOYMENT=WEIGHT", remedy="write it as  gemma  or  gemma=90"
            )
        if name in weights:
            raise InvalidSpec(f"{name} is named twice", remedy="give each deployment one weight")
        weights[name] = int(weight) if equals else WHOLE
    return weights

"""`inspect`: everything known of one object, or of one request that went through the gateway."""

from typing import Any

import click

from moorage.cli.commands.listing import GETTABLE, fetch
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples

KINDS = ("request", *GETTABLE)
_TIMES = ("queued_ms", "ttft_ms", "total_ms")


@click.command(
    epilog=examples(
        "moor inspect deployment gemma", "moor inspect request req-5f3a1c2e-17", "moor inspect worker 01HV…"
    )
)
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("name")
@command
def inspect(session: Session, kind: str, name: str) -> None:
    """Show everything known of one object or request. A request's id is its answer's X-Request-Id.

    For a deployment or run every machine is asked what is really there of it: identity, digest, owner and resource of
    each process or container beside what is meant, and whether the machines told everything.
    """
    if kind != "request":
        whole = fetch(session, kind, name)
        if kind in ("deployment", "run"):
            seen = session.client.inventory(owner=whole["id"])
            shown = ("inventory_complete", "observed_at", "incomplete", "items")
            whole = {**whole, "inventory": {part: seen[part] for part in shown}}
        print_value(whole, "yaml" if session.human else session.form)
        return
    found = session.client.request(name)
    session.show_text(found, lambda: words(found))


def words(found: dict[str, Any]) -> str:
    """A request's way, one fact a line; what is not known is left out."""
    known = {k: v for k, v in found.items() if v is not None and k != "kind"}
    return "\n".join(f"{k.removesuffix('_ms').ljust(12)}{_value(k, v)}" for k, v in known.items())


def _value(key: str, value: Any) -> str:
    return f"{value:.1f} ms" if key in _TIMES and isinstance(value, int | float) else str(value)

"""`inspect`: everything known of one object, or of one request that went through the gateway."""

from typing import Any

import click

from moorage.cli.commands.listing import GETTABLE, fetch
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples

KINDS = ("request", *GETTABLE)
_TOLD = (
    "request_id",
    "outcome",
    "status",
    "error",
    "model",
    "endpoint",
    "deployment",
    "key",
    "generation",
    "revision",
    "replica",
    "worker",
    "machine",
    "queued_ms",
    "ttft_ms",
    "total_ms",
    "retried",
    "bytes",
    "tokens",
)
"""Of a request, in this order; what a newer gateway tells besides comes behind."""
_OUTCOMES = {
    "cut": "cut: the replica died in the middle of the answer",
    "client_gone": "client_gone: the client left before the answer's end",
    "upstream_error": "upstream_error: the replica gave no proper answer",
    "held": "held: it waits, and was sent nowhere so far",
    "in_flight": "in_flight: its answer has not ended",
}


@click.command(
    epilog=examples(
        "moor inspect deployment gemma", "moor inspect request req-5f3a1c2e-17", "moor inspect worker 01HV…"
    )
)
@click.argument("kind", type=click.Choice(KINDS), metavar="KIND")
@click.argument("name")
@command
def inspect(session: Session, kind: str, name: str) -> None:
    """Show everything known of one object or request. A request's id is its answer's X-Request-Id.

    KIND is request, deployment, run, endpoint, machine, operation, revision or worker.

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
    known = {k: v for k, v in found.items() if v not in (None, "", {}) and k != "kind"}
    if not known.get("generation"):
        known.pop("generation", None)
    order = [*(k for k in _TOLD if k in known), *(k for k in known if k not in _TOLD)]
    return "\n".join(f"{k.removesuffix('_ms').ljust(12)}{_value(k, known[k])}" for k in order)


def _value(key: str, value: Any) -> str:
    if key.endswith("_ms") and isinstance(value, int | float):
        return f"{value:.1f} ms"
    if key == "tokens" and isinstance(value, dict):
        return ", ".join(f"{count} {_KINDS_OF_TOKENS.get(kind, kind)}" for kind, count in value.items())
    if key == "retried":
        return f"{value} time{'' if value == 1 else 's'}, over a new connection"
    return _OUTCOMES.get(value, str(value)) if key == "outcome" else str(value)


_KINDS_OF_TOKENS = {"counted": "events counted in the stream, which told no usage"}

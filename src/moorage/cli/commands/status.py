"""`status`: what a deployment (or run) does now, why, and what carries it; with `-w` until Ctrl-C."""

import time
from typing import Any

import click

from moorage.cli import asides, rows
from moorage.cli.commands.parts import become
from moorage.cli.failures import Interrupted
from moorage.cli.layout import legible, wrapped
from moorage.cli.output import plain, print_value, terminal_width
from moorage.cli.session import Session, command, examples
from moorage.cli.times import age, clock
from moorage.cli.watching import namespace_flag
from moorage.domain.errors import InvalidSpec

LOOK_EVERY_S = 1.0
SHOWN_ENDED = 3
FACTS_AT = 15


@click.command(epilog=examples("moor status gemma", "moor status gemma -w", "moor status      # this machine's parts"))
@click.argument("name", required=False)
@click.option("--watch", "-w", is_flag=True, help="Show it again whenever it changes.")
@command
def status(session: Session, name: str | None, watch: bool) -> None:
    """Show what a deployment or run is doing now, why, and its replicas.

    Without a name: how the parts of this machine stand (control plane, agent, gateway), and why one was started again.
    """
    if name is None:
        if watch:
            raise click.UsageError("--watch needs a NAME")
        become(session.env, "status", output=session.form)
    shown = _show(session, name, None)
    try:
        while watch:
            time.sleep(LOOK_EVERY_S)  # a person's eye is the only thing that waits here
            shown = _show(session, name, shown)
    except KeyboardInterrupt:
        raise Interrupted(f"moor status {name} -w{namespace_flag(session)}") from None


def _show(session: Session, name: str, before: Any) -> Any:
    """Print it where it differs from what was shown last."""
    value = look(session, name)
    key = (value.get("version"), value.get("phase"), value.get("state"), _fingerprint(value))
    if key != before:
        if before is not None and session.human:
            click.echo("")
        if session.human:
            click.echo(legible(words(value, session.now(), terminal_width())))
        else:
            print_value({k: v for k, v in value.items() if k != "replicas"}, session.form)
    return key


def look(session: Session, name: str) -> dict[str, Any]:
    """The object, with its `replicas` where it is a deployment."""
    client = session.client
    found: dict[str, Any] = session.first_found(
        lambda: client.deployments.get(name), lambda: client.runs.get(name), lambda: _not_of(client.endpoints.get(name))
    )
    if found.get("kind") == "Run" or not session.human:
        return found
    return {**found, "replicas": client.deployments.replicas(name)}


def _not_of(endpoint: dict[str, Any]) -> dict[str, Any]:
    """An endpoint has no status of its own.

    Raises:
        InvalidSpec: always.
    """
    name = endpoint["name"]
    raise InvalidSpec(f"{name} is an endpoint, and has no state of its own", remedy=f"moor why {name}")


def words(value: dict[str, Any], now: float, width: int | None = None) -> str:
    """The status as people read it.

    Args:
        value: the object, with its `replicas`.
        now: seconds since the epoch, for ages.
        width: columns of the terminal; None cuts nothing.
    """
    word = value.get("phase") or value.get("state")
    serving = "serving" if value.get("serving") else "not serving"
    head = f"{value.get('name')}  {word}"
    lines = [f"{head}  ({serving})" if "serving" in value else head, *_facts(value, now, width)]
    replicas = value.get("replicas") or []
    live = [r for r in replicas if r.get("status") not in ("failed", "stopped")]
    ended = [r for r in replicas if r not in live][-SHOWN_ENDED:]
    if live or ended:
        lines += ["", plain(rows.table("replicas", [*ended, *live], now), width)]
    return "\n".join(lines)


def _facts(value: dict[str, Any], now: float, width: int | None) -> list[str]:
    facts: list[tuple[str, Any]] = [("why", rows.why(value))]
    if "desired_replicas" in value:
        ready, desired, starting = (value.get(f"{k}_replicas", 0) for k in ("ready", "desired", "starting"))
        facts.append(("replicas", f"{ready} ready of {desired} wanted, {starting} starting"))
    if value.get("rollout"):
        facts.append(("rollout", value["rollout"]["message"]))
    if (value.get("upstream") or {}).get("mode") == "observe":
        facts.append(("requests", f"none: it is only observed; ask it itself at {value['upstream'].get('url')}"))
    elif value.get("url"):
        facts.append(("url", f"{value['url']}   model {value.get('model')}"))
    facts.append(("age", age(value.get("created_at"), now)))
    if value.get("crash_looping") and value.get("status") != "failed":
        crashed = (value.get("last_failure") or {}).get("fail_reason") in (None, "container_crashed")
        facts.append(("note", "it keeps crashing" if crashed else "each new replica of it fails"))
    if value.get("retry_at"):
        facts.append(("retry at", clock(value["retry_at"])))
    failure = value.get("last_failure") or {}
    if failure:
        facts.append(("last failure", _failure(failure)))
    lines = [f"  {name.ljust(13)}{text}" for name, text in facts if text]
    return lines if width is None else [wrapped_fact(line, width) for line in lines]


def wrapped_fact(line: str, width: int) -> str:
    """A line of facts broken at words; what goes on stands under its beginning."""
    return (
        line
        if len(line) <= width
        else line[:FACTS_AT] + wrapped(line[FACTS_AT:], width - FACTS_AT).replace("\n", "\n" + " " * FACTS_AT)
    )


def _failure(failure: dict[str, Any]) -> str:
    reason = failure.get("reason") or {}
    text = str(reason.get("message") if isinstance(reason, dict) else reason)
    code = failure.get("exit_code")
    return text if code is None or str(code) in text else f"{text} (exit code {code})"


def _fingerprint(value: dict[str, Any]) -> tuple[Any, ...]:
    return tuple((r.get("id"), r.get("version"), asides.routed(r)) for r in value.get("replicas") or ())

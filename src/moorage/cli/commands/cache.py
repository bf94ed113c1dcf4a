"""`cache`: the models that machines keep: list, fetch before they are needed, pin, unpin, evict."""

from collections.abc import Sequence
from typing import Any

import click

from moorage.cli.failures import Interrupted
from moorage.cli.output import Column, Table
from moorage.cli.session import Session, command, examples
from moorage.cli.times import age
from moorage.domain.errors import InvalidSpec

SOURCE = "hf://org/name@main"
machine_option = click.option(
    "--machine", "-m", "machines", multiple=True, metavar="MACHINE", help="On this machine; may be repeated."
)


@click.group(
    epilog=examples(
        "moor cache ls",
        f"moor cache prefetch {SOURCE} --machine box-1",
        f"moor cache pin {SOURCE}",
        f"moor cache evict {SOURCE}",
    )
)
def cache() -> None:
    """Models that machines fetched from hubs and keep.

    A model is fetched once a machine, by the first worker that needs it or by `prefetch`. When there is no room for
    another one, those that nobody uses and that are not pinned go, the longest unused first.
    """


@cache.command("ls", epilog=examples("moor cache ls", "moor cache ls box-1", "moor cache ls -o json"))
@click.argument("machines", nargs=-1, metavar="[MACHINE]...")
@command
def list_all(session: Session, machines: tuple[str, ...]) -> None:
    """What is kept, and how far what is on its way has come."""
    names = machines or tuple(m["name"] for m in session.client.machines.list() if m.get("state") == "Ready")
    found = [session.client.machines.cache(name) for name in names]
    session.show(found, lambda: _table(found, session.now()))


@cache.command(
    epilog=examples(
        f"moor cache prefetch {SOURCE}",
        "moor cache prefetch 'hf://org/name@main/*Q4_K_M.gguf' -m box-1 -m box-2 --pin",
        f"moor cache prefetch {SOURCE} --no-wait",
    )
)
@click.argument("source")
@machine_option
@click.option("--pin", is_flag=True, help="It stays there until `moor cache unpin`.")
@click.option("--no-wait", is_flag=True, help="Only begin; `moor cache ls` shows how far it is.")
@command
def prefetch(session: Session, *, source: str, machines: tuple[str, ...], pin: bool, no_wait: bool) -> None:
    """Have a model on a machine before it is needed.

    Ctrl-C ends the watching only. What breaks off goes on where it ended, also after a restart of the machine's agent.
    """
    names = _chosen(session, machines)
    for name in names:
        session.client.machines.prefetch(name, source, pin=pin)
    if not no_wait:
        for name in names:
            _wait(session, name, source)
    found = [session.client.machines.cache(name) for name in names]
    word = "is being fetched to" if no_wait else "is on"
    session.show_text(found, lambda: "\n".join(f"{source}: {word} {name}" for name in names))


@cache.command(epilog=examples(f"moor cache pin {SOURCE} -m box-1"))
@click.argument("source")
@machine_option
@command
def pin(session: Session, *, source: str, machines: tuple[str, ...]) -> None:
    """Keep a model that is there, whatever else needs room."""
    done = [session.client.machines.pin(name, source) for name in _chosen(session, machines)]
    session.show_text(done, lambda: _each(done, f"{source}: stays"))


@cache.command(epilog=examples(f"moor cache unpin {SOURCE} -m box-1"))
@click.argument("source")
@machine_option
@command
def unpin(session: Session, *, source: str, machines: tuple[str, ...]) -> None:
    """Let a model go again when room is needed."""
    done = [session.client.machines.unpin(name, source) for name in _chosen(session, machines)]
    session.show_text(done, lambda: _each(done, f"{source}: may go when room is needed"))


@cache.command(epilog=examples(f"moor cache evict {SOURCE} -m box-1"))
@click.argument("source")
@machine_option
@command
def evict(session: Session, *, source: str, machines: tuple[str, ...]) -> None:
    """Remove a model that nobody uses, or end its fetch and remove what came."""
    done = [session.client.machines.evict(name, source) for name in _chosen(session, machines)]
    session.show_text(done, lambda: _each(done, f"{source}: removed"))


def _chosen(session: Session, machines: Sequence[str]) -> tuple[str, ...]:
    """Those that were named; the only one, where there is but one."""
    if machines:
        return tuple(machines)
    ready = [m["name"] for m in session.client.machines.list() if m.get("state") == "Ready"]
    if len(ready) != 1:
        there = f"there are {len(ready)}: {', '.join(ready)}" if ready else "none is ready"
        raise InvalidSpec(f"say on which machine; {there}", remedy="name it with --machine")
    return (ready[0],)


def _wait(session: Session, machine: str, source: str) -> None:
    progress = session.progress()
    try:
        session.client.machines.wait_cached(
            machine, source, timeout_s=None, on_status=lambda seen: progress.update(_far(machine, seen))
        )
    except KeyboardInterrupt:
        raise Interrupted(f"moor cache ls {machine}") from None
    finally:
        progress.clear()


def _far(machine: str, model: dict[str, Any]) -> str:
    return f"{machine}: {model['source']}: {_progress(model)}"


def _progress(model: dict[str, Any]) -> str:
    from moorage.domain.units import show_size

    if model["state"] == "cached":
        return show_size(model["size"])
    if model["state"] == "failed":
        return "failed"
    text = f"{show_size(model['done'])} of {show_size(model['size'])}" if model["size"] else show_size(model["done"])
    return f"{text}, {show_size(model['rate'])}/s" if model["rate"] else text


def _table(found: Sequence[dict[str, Any]], now: float) -> Table:
    columns = (
        Column("MACHINE"),
        Column("STATE"),
        Column("SIZE", right=True),
        Column("PINNED"),
        Column("USED BY"),
        Column("LAST USED", minor=True),
        Column("SOURCE", flex=True),
    )
    rows = tuple(_row(one["machine"], model, now) for one in found for model in one["models"])
    return Table(columns, rows, "no model is kept")


def _row(machine: str, model: dict[str, Any], now: float) -> tuple[str, ...]:
    users = model["used_by"]
    used = f"{users[0]} and {len(users) - 1} more" if len(users) > 1 else "".join(users) or "-"
    last = age(model["used_at"], now) if model["used_at"] else "-"
    names = f" ({', '.join(model['names'])})" if model["names"] else ""
    trouble = f": {model['error']}" if model["error"] else ""
    pinned = "yes" if model["pinned"] else "-"
    return (machine, model["state"], _progress(model), pinned, used, last, f"{model['source']}{names}{trouble}")


def _each(done: Sequence[dict[str, Any]], what: str) -> str:
    return "\n".join(f"{one['machine']}: {what}" for one in done)

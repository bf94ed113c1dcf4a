"""`top`: machines with what is taken of each, what runs, and what waits for what; on a terminal until Ctrl-C."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from moorage.cli import gpus, rows
from moorage.cli.output import Table, plain, print_value, terminal_width
from moorage.cli.session import Session, command, duration, examples
from moorage.cli.times import age

Json = Mapping[str, Any]
ENDED = frozenset({"Completed", "Failed", "Cancelled"})
AT_HOME, CLEAR_BELOW, CLEAR_LINE = "\x1b[H", "\x1b[J", "\x1b[K"
OTHER_SCREEN, THIS_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@click.command(epilog=examples("moor top", "moor top --once", "moor top -o json"))
@click.option("--once", is_flag=True, help="Print it once; so does any output that is not a terminal.")
@click.option("--every", "every_s", default="2s", show_default=True, callback=duration, help="How often it is shown.")
@command
def top(session: Session, *, once: bool, every_s: float) -> None:
    """Show machines and what is taken of each, what runs on them, and what waits for what."""
    if once or not session.human or not sys.stdout.isatty():
        seen = look(session)
        if session.human:
            click.echo(words(seen, session.now(), terminal_width()))
        else:
            print_value(seen, session.form)
        return
    sys.stdout.write(OTHER_SCREEN)
    try:
        while True:
            draw(words(look(session), session.now(), terminal_width()))
            time.sleep(every_s)  # a person's eye is the only thing that waits here
    except KeyboardInterrupt:
        return
    finally:
        sys.stdout.write(THIS_SCREEN)
        sys.stdout.flush()


def look(session: Session) -> dict[str, Any]:
    """What there is now: `machines`, and the `deployments` and `runs` of the namespace that are not over."""
    client = session.client
    runs = [run for run in client.runs.list() if not run.get("deployment") and run.get("state") not in ENDED]
    machines = [machine for machine in client.machines.list() if machine.get("state") != "Removed"]
    return {"machines": machines, "deployments": client.deployments.list(), "runs": runs}


def words(seen: Mapping[str, Sequence[Json]], now: float, width: int | None) -> str:
    """All of it as people read it: machines, GPUs that are taken, deployments, running jobs, the queue in its order."""
    runs = sorted(seen["runs"], key=lambda run: (run.get("queue_position") or 0, str(run["name"])))
    running = [run for run in runs if run.get("state") != "Pending"]
    waiting = [run for run in runs if run.get("state") == "Pending"]
    parts = [summary(seen["machines"]), plain(rows.table("machines", seen["machines"], now), width)]
    taken, more = gpus.taken_table(seen["machines"], now)
    if taken.rows:
        parts += ["", plain(taken, width)]
        parts += [f"and {more} more; see `moor machines get MACHINE`"] if more else []
    if seen["deployments"]:
        parts += ["", plain(rows.table("deployments", seen["deployments"], now), width)]
    if running:
        parts += ["", plain(rows.table("runs", running, now), width)]
    if waiting:
        parts += ["", f"waiting: {len(waiting)}", plain(_queue(waiting, now), width)]
    return "\n".join(part for part in parts if part is not None)


def summary(machines: Sequence[Json]) -> str:
    """One line: how much of the whole is taken."""
    ready = [m for m in machines if m.get("state") == "Ready"]
    known = gpus.summary([gpu for machine in ready for gpu in machine.get("gpus") or ()])
    cpu, cpu_all = _sums(ready, "cpu_milli")
    memory, memory_all = _sums(ready, "memory_bytes")
    shown = [f"{len(ready)} of {len(machines)} machines ready"]
    shown += [known] if known else []
    shown += [f"{cpu / 1000:g} of {cpu_all / 1000:g} cores", f"{rows.size(memory)} of {rows.size(memory_all)} memory"]
    return ", ".join(shown)


def draw(text: str) -> None:
    """Over what was drawn before, without a flicker."""
    body = text.replace("\n", f"{CLEAR_LINE}\r\n")
    sys.stdout.write(f"{AT_HOME}{body}{CLEAR_LINE}{CLEAR_BELOW}")
    sys.stdout.flush()


def _sums(machines: Sequence[Json], what: str) -> tuple[int, int]:
    taken = sum(int((machine.get("allocated") or {}).get(what) or 0) for machine in machines)
    return taken, sum(int((machine.get("capacity") or {}).get(what) or 0) for machine in machines)


def _queue(waiting: Sequence[Json], now: float) -> Table:
    cells = tuple(
        (
            str(run.get("queue_position") or "-"),
            str(run["name"]),
            str(run.get("priority") or 0),
            age(run.get("queued_at"), now),
            rows.why(run),
        )
        for run in waiting
    )
    return Table(rows.QUEUE, cells)

"""`ls`, `get` and `workers`: what there is. Machines and operations have modules of their own."""

from typing import Any

import click
from click.core import ParameterSource

from moorage.cli import rows
from moorage.cli.layout import Table
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples
from moorage.domain.errors import InvalidSpec, NotFound

KINDS = ("deployments", "runs", "endpoints", "machines", "operations")
GETTABLE = ("deployment", "run", "endpoint", "machine", "operation", "revision", "worker")


@click.command(epilog=examples("moor ls", "moor ls runs -n research", "moor ls -l team=search", "moor ls --deleted"))
@click.argument("kind", type=click.Choice(KINDS), default="deployments")
@click.option("--label", "-l", "labels", multiple=True, metavar="KEY=VALUE", help="Only those with this label.")
@click.option("--all", "-a", "with_replicas", is_flag=True, help="Also the runs behind the replicas of deployments.")
@click.option("--deleted", is_flag=True, help="What was deleted, by whom and why.")
@command
def ls(session: Session, kind: str, labels: tuple[str, ...], with_replicas: bool, deleted: bool) -> None:
    """List deployments, runs, endpoints, machines or operations. Alone it lists deployments and the runs there are."""
    if deleted and kind not in ("deployments", "runs", "endpoints"):
        raise InvalidSpec(f"deleted {kind} cannot be listed", remedy="moor ls deployments --deleted")
    alone = click.get_current_context().get_parameter_source("kind") is ParameterSource.DEFAULT
    if alone and session.human:
        _list_both(session, labels, with_replicas, deleted)
    else:
        _list(session, kind, labels, deleted, with_replicas)


@click.command(epilog=examples("moor get deployment gemma", "moor get machine box-1 -o yaml"))
@click.argument("kind", type=click.Choice(GETTABLE), metavar="KIND")
@click.argument("name")
@command
def get(session: Session, kind: str, name: str) -> None:
    """Show one object whole, as the API has it.

    KIND is deployment, run, endpoint, machine, operation, revision or worker. Keys have `moor keys get`.
    """
    print_value(fetch(session, kind, name), "yaml" if session.human else session.form)


@click.command(epilog=examples("moor workers gemma", "moor workers 01HV…"))
@click.argument("run")
@command
def workers(session: Session, run: str) -> None:
    """Processes of a run, or of every live replica of a deployment."""
    found = workers_of(session, run)
    session.show(found, lambda: rows.table("workers", found, session.now()))


def fetch(session: Session, kind: str, name: str) -> dict[str, Any]:
    """One object of a kind."""
    client = session.client
    if kind == "revision":
        return _revision(session, name)
    reads = {
        "deployment": client.deployments.get,
        "run": client.runs.get,
        "endpoint": client.endpoints.get,
        "machine": client.machines.get,
        "operation": client.operations.get,
        "worker": client.workers.get,
    }
    found: dict[str, Any] = reads[kind](name)
    return found


def workers_of(session: Session, name: str) -> list[dict[str, Any]]:
    """Workers of a run; of a deployment, those of its live replicas' runs."""
    client = session.client
    found = session.first_found(
        lambda: client.deployments.replicas(name), lambda: [{"status": "running", "run": client.runs.get(name)["id"]}]
    )
    live = [r for r in found if r.get("status") not in ("failed", "stopped") and r.get("run")]
    return [worker for replica in live for worker in session.client.runs.workers(replica["run"])]


def selected(items: list[dict[str, Any]], labels: tuple[str, ...]) -> list[dict[str, Any]]:
    """Those that carry every one of the labels.

    Raises:
        InvalidSpec: a label is not written KEY=VALUE.
    """
    pairs = [label.partition("=") for label in labels]
    for key, equals, _ in pairs:
        if not key or not equals:
            raise InvalidSpec(f"-l {key!r} is not KEY=VALUE", remedy="write it as  -l team=search")
    return [item for item in items if all((item.get("labels") or {}).get(k) == v for k, _, v in pairs)]


def runs_of(session: Session, with_replicas: bool, deleted: bool = False) -> list[dict[str, Any]]:
    """Runs of the namespace; those behind replicas only where asked for."""
    return [run for run in session.client.runs.list(deleted=deleted) if with_replicas or not run.get("deployment")]


def _list_both(session: Session, labels: tuple[str, ...], with_replicas: bool, deleted: bool) -> None:
    deployments = selected(session.client.deployments.list(deleted=deleted), labels)
    runs = selected(runs_of(session, with_replicas, deleted), labels)
    if deployments or not runs:
        _show(session, "deleted" if deleted else "deployments", deployments, labels)
    if runs:
        if deployments:
            click.echo("")
        _show(session, "deleted" if deleted else "runs", runs, labels)


def _show(session: Session, kind: str, items: list[dict[str, Any]], labels: tuple[str, ...]) -> None:
    """As a table; where labels left nothing, that is said."""
    table = rows.table(kind, items, session.now())
    nothing = f"nothing has the label {' and '.join(labels)}"
    session.show(items, lambda: Table(table.columns, table.rows, nothing if labels else table.empty))


def _list(
    session: Session, kind: str, labels: tuple[str, ...], deleted: bool = False, with_replicas: bool = False
) -> None:
    client = session.client
    if kind == "deployments":
        found = client.deployments.list(deleted=deleted)
    elif kind == "runs":
        found = runs_of(session, with_replicas, deleted)
    elif kind == "endpoints":
        found = client.endpoints.list(deleted=deleted)
    elif kind == "machines":
        found = [m for m in client.machines.list() if m.get("state") != "Removed"]
    else:
        found = client.operations.list()
    shown = selected(list(found), labels)
    _show(session, "deleted" if deleted else kind, shown, labels)


def _revision(session: Session, name: str) -> dict[str, Any]:
    """`DEPLOYMENT/NUMBER`."""
    deployment, slash, number = name.rpartition("/")
    if not slash or not number.isdigit():
        raise InvalidSpec(f"{name!r} does not name a revision", remedy="write DEPLOYMENT/NUMBER, such as gemma/2")
    for revision in session.client.deployments.revisions(deployment):
        if revision.get("number") == int(number):
            return dict(revision)
    raise NotFound(f"{deployment} has no revision {number}", remedy=f"see `moor history {deployment}`")

"""`why`: why something is (not) running, machine by machine, and the smallest changes that would alter that."""

from typing import Any

import click

from moorage.cli import asides
from moorage.cli.commands.parts import become
from moorage.cli.session import Session, command, examples


@click.command(epilog=examples("moor why gemma", "moor why         # why a part of this machine was started again"))
@click.argument("name", required=False)
@command
def why(session: Session, name: str | None) -> None:
    """Say why a deployment or run is (not) running, or which deployments answer for an endpoint.

    Without a name: how the parts of this machine stand, and why one was started again.
    """
    if name is None:
        become(session.env, "status", output=session.form)
    client = session.client
    found = session.first_found(
        lambda: client.deployments.why(name), lambda: client.runs.why(name), lambda: client.endpoints.why(name)
    )
    session.show_text(found, lambda: words(name, found))


def words(name: str, found: dict[str, Any]) -> str:
    """The answer in sentences."""
    reason = found.get("reason") or {}
    word = found.get("phase") or found.get("state")
    lines = [f"{name} is {word}: {reason.get('message') or 'no reason is recorded'}"]
    advice = _advice(reason)
    if advice:
        lines.append(f"  advice: {advice}")
    if found.get("rollout"):
        lines.append(f"  rollout: {found['rollout']}")
    lines += _routes(found.get("routes") or ())
    lines += _unready(found.get("unready") or {})
    lines += [f"  {line}" for line in asides.lines(found.get("aside") or ())]
    lines += _on_its_way(found.get("worker") or {})
    lines += _scaling(found.get("scaling") or {})
    queue = found.get("queue") or {}
    if queue.get("position"):
        ahead = queue.get("ahead") or []
        names = ", ".join(_name(item) for item in ahead[:5])
        lines.append(f"  queue: place {queue['position']}{f', behind {names}' if names else ''}")
    machines = found.get("machines") or []
    if machines:
        lines.append("  machines:")
        lines += [f"    {_machines(group)}" for group in machines]
    changes = found.get("changes") or []
    if changes:
        lines.append("  what would change it:")
        lines += [f"    - {_change(change)}" for change in changes]
    return "\n".join(lines)


def _advice(reason: dict[str, Any]) -> str:
    """What to do, without the hint at this very command."""
    from moorage.domain.catalogue.placement import PER_MACHINE

    return str(reason.get("advice") or "").removesuffix(PER_MACHINE).rstrip()


def _routes(routes: Any) -> list[str]:
    """Of an endpoint: each deployment, its part of the requests, and whether it answers."""
    return [f"  {r['share']:g} % {r['deployment']}: {_answers(r)}" for r in routes]


def _answers(route: dict[str, Any]) -> str:
    if route.get("passed_over"):
        return f"answers nothing, {route['passed_over']}"
    if not route.get("weight"):
        return f"gets no request (weight 0); it is {route.get('phase')}"
    ready = route.get("ready_replicas", 0)
    return f"{route.get('phase')}, {ready} replica{'' if ready == 1 else 's'} ready"


def _unready(replica: dict[str, Any]) -> list[str]:
    """The first replica that is not ready, and what to do about it."""
    reason = replica.get("reason") or {}
    if not reason:
        return []
    status = replica.get("status")
    lines = [f"  replica {replica.get('name')} is {_DOES.get(str(status), status)}: {reason.get('message')}"]
    return [*lines, f"    advice: {_advice(reason)}"] if _advice(reason) else lines


_DOES = {"initing_docker_container": "starting", "pulling_docker_image": "fetching its image"}
"""The contract's words for what a replica does, where they would mislead: most replicas are no containers."""


def _on_its_way(worker: dict[str, Any]) -> list[str]:
    """What a worker that does not run yet is doing: how far its model is."""
    reason = worker.get("reason") or {}
    if worker.get("state") not in ("Preparing", "Pulling", "ReadyToStart", "Starting") or not reason:
        return []
    where = f" on {worker['machine']}" if worker.get("machine") else ""
    return [f"  worker {worker.get('name')} is {worker.get('state')}{where}: {reason.get('message')}"]


def _scaling(scaling: dict[str, Any]) -> list[str]:
    """What the autoscaler decided last, or what it holds the size for; nothing of one that has one size alone."""
    reason = scaling.get("reason") or {}
    if not reason or reason.get("code") == "scale.disabled":
        return []
    return [f"  scaling: {scaling.get('desired')} replicas wanted. {reason.get('message')}"]


def _machines(group: dict[str, Any]) -> str:
    reasons = "; ".join(_name(reason) for reason in group.get("reasons") or ()) or "fits"
    examples_ = ", ".join(_name(item) for item in (group.get("examples") or ())[:3])
    count = group.get("count", 1)
    return f"{count} × {reasons}{f'  ({examples_})' if examples_ else ''}"


def _change(change: dict[str, Any]) -> str:
    checked = "" if change.get("verified", True) else "  (not checked)"
    effect = change.get("effect")
    return f"{_name(change.get('change'))}{f' → {_name(effect)}' if effect else ''}{checked}"


def _name(item: Any) -> str:
    """A reason's sentence, an object's name, or the text itself."""
    if isinstance(item, dict):
        return str(item.get("message") or item.get("name") or item.get("code") or item)
    return str(item)

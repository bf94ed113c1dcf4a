"""Waiting on an applied thing from a command: the waiting line, the result, and Ctrl-C that ends only the watching.

The rules of waiting are the SDK's (`moorage.client.waiting`); here is only how it looks. Called by `apply`, `serve`,
`wait`, `stop` and `delete`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from moorage.cli.failures import Interrupted
from moorage.cli.session import Session

Json = Mapping[str, Any]

LOOK_EVERY_S = 0.25
"""A person is waiting: a quarter of a second is not felt, and costs the server a read of a few milliseconds."""


def watched(
    session: Session,
    name: str,
    goal: str,
    wait: Callable[[Callable[[Json], None]], Any],
    *,
    resume: str | None = None,
    named: bool = True,
) -> Any:
    """Run a wait of the SDK with a waiting line.

    Args:
        session: the command's.
        name: of what is waited for.
        goal: for the words, and for how to resume.
        wait: called with `on_status`.
        resume: the command that goes on watching; None: `moor wait` for the same goal.
        named: whether it is known to be there. What a person only typed is spoken of once it was seen.

    Raises:
        Interrupted: Ctrl-C; the work goes on.
    """
    progress = session.progress()
    if named:
        progress.update(f"{name}: waiting for {goal}")
    try:
        return wait(lambda seen: progress.update(f"{name}: {sentence(seen)}; waiting for {goal}"))
    except KeyboardInterrupt:
        raise Interrupted(resume or f"moor wait {name} --for {goal}{namespace_flag(session)}") from None
    finally:
        progress.clear()


def namespace_flag(session: Session) -> str:
    """` -n NS` where it is not the default one."""
    return "" if session.namespace == "default" else f" -n {session.namespace}"


def sentence(seen: Json) -> str:
    """What it is doing now, in a few words, with its reason."""
    if seen.get("kind") == "Operation":
        return _operation(seen)
    if seen.get("kind") in ("Endpoint", "Key"):
        return _spread(seen)
    word = seen.get("phase") or seen.get("state") or ("deleted" if seen.get("deleted") else "?")
    counts = ""
    if "desired_replicas" in seen:
        counts = f" {seen.get('ready_replicas', 0)}/{seen.get('desired_replicas', 0)} ready"
    moving = (seen.get("rollout") or {}).get("message")
    if moving:
        return str(moving)
    reason = (seen.get("reason") or {}).get("message")
    return f"{word}{counts}{f' ({reason})' if reason else ''}"


def _spread(seen: Json) -> str:
    """At which gateways an endpoint or a key is as it is, and which have not confirmed it."""
    from moorage.client.endpoint_wait import lagging

    generation, gateways, behind = seen.get("generation"), seen.get("gateways") or (), lagging(seen)
    if generation is None:
        return "not published yet"
    there = f"generation {generation} is at {len(gateways) - len(behind)} of {len(gateways)} gateways"
    return f"{there}, not yet at {', '.join(behind)}" if behind else there


def _operation(seen: Json) -> str:
    """What is being done, the step it is at, and what that waits for."""
    steps = seen.get("steps") or ()
    done = sum(step.get("state") == "done" for step in steps)
    step = next((step["name"] for step in steps if step.get("state") != "done"), None)
    why = (seen.get("waiting_reason") or {}).get("message")
    at = f", {step} ({done}/{len(steps)})" if step else ""
    return f"{seen.get('operation')} {seen.get('state')}{at}{f': {why}' if why else ''}"

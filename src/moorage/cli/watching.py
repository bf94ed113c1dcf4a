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


def watched(session: Session, name: str, goal: str, wait: Callable[[Callable[[Json], None]], Any]) -> Any:
    """Run a wait of the SDK with a waiting line.

    Args:
        session: the command's.
        name: of what is waited for.
        goal: for the words, and for how to resume.
        wait: called with `on_status`.

    Raises:
        Interrupted: Ctrl-C; the work goes on.
    """
    progress = session.progress()
    progress.update(f"{name}: waiting for {goal}")
    try:
        return wait(lambda seen: progress.update(f"{name}: {sentence(seen)}; waiting for {goal}"))
    except KeyboardInterrupt:
        raise Interrupted(f"moor wait {name} --for {goal}{namespace_flag(session)}") from None
    finally:
        progress.clear()


def namespace_flag(session: Session) -> str:
    """` -n NS` where it is not the default one."""
    return "" if session.namespace == "default" else f" -n {session.namespace}"


def sentence(seen: Json) -> str:
    """What it is doing now, in a few words, with its reason."""
    word = seen.get("phase") or seen.get("state") or ("deleted" if seen.get("deleted") else "?")
    counts = ""
    if "desired_replicas" in seen:
        counts = f" {seen.get('ready_replicas', 0)}/{seen.get('desired_replicas', 0)} ready"
    reason = (seen.get("reason") or {}).get("message")
    return f"{word}{counts}{f' ({reason})' if reason else ''}"

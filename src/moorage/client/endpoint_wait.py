"""What a wait for an endpoint reads, look by look: whether every gateway has it as it is. Loaded by the first wait."""

from collections.abc import Callable, Mapping
from typing import Any

from moorage.client.session import Session
from moorage.client.waiting import Done, Failed, KeepPolling, Verdict
from moorage.client.watching import Outcome, Sight, Watch, watch
from moorage.domain.errors import NotFound

Json = dict[str, Any]


async def wait_for_endpoint(session: Session, namespace: str, what: Watch) -> Outcome:
    """Wait; arguments and errors as `AsyncEndpoints.wait`."""
    return await wait_for_spread(
        session, session.path("endpoints", what.name, namespace=namespace), what, judge_endpoint
    )


async def wait_for_spread(
    session: Session, path: str, what: Watch, judge: Callable[[Mapping[str, Any]], Verdict]
) -> Outcome:
    """Read an object that gateways go by until they do; one that is deleted meanwhile fails the wait.

    Args:
        path: of the object.
        judge: what one look at it says.

    Raises:
        NotFound: it was not there at the first look.
    """
    seen = False

    async def look(limit_s: float) -> Sight:
        nonlocal seen
        try:
            found: Json = await session.get(path, limit_s=limit_s)
        except NotFound:
            if not seen:
                raise
            return Sight({"deleted": True}, Failed("it was deleted", None))
        seen = True
        return Sight(found, judge(found))

    return await watch(what, look, session.transport)


def judge_endpoint(found: Mapping[str, Any]) -> Verdict:
    """Whether every gateway that may route has it as it is; with no gateway there is nothing to wait for."""
    if found.get("generation") is None:
        return KeepPolling("no control plane has published it yet")
    behind = lagging(found)
    if behind:
        return KeepPolling(f"generation {found['generation']} is not confirmed by {', '.join(behind)}")
    return Done(bool(found.get("serving")), None)


def lagging(found: Mapping[str, Any]) -> list[str]:
    """Gateways that may route and have not confirmed it, by id."""
    wanted = found.get("generation")
    return [str(g["id"]) for g in found.get("gateways") or () if wanted is None or (g.get("generation") or 0) < wanted]

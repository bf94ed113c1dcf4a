"""What a wait for a key reads, look by look: whether every gateway goes by it as it is. Loaded by the first wait."""

from collections.abc import Mapping
from typing import Any

from moorage.client.endpoint_wait import lagging, wait_for_spread
from moorage.client.session import Session
from moorage.client.waiting import Done, KeepPolling, Verdict
from moorage.client.watching import Outcome, Watch


async def wait_for_key(session: Session, namespace: str, what: Watch) -> Outcome:
    """Wait; arguments and errors as `AsyncKeys.wait`."""
    return await wait_for_spread(session, session.path("keys", what.name, namespace=namespace), what, judge_key)


def judge_key(found: Mapping[str, Any]) -> Verdict:
    """Whether every gateway in reach goes by it as it is; one that is out of reach is not waited for."""
    if found.get("generation") is None:
        return KeepPolling("no control plane has told gateways of it yet")
    behind = lagging(found)
    if behind:
        has = "have" if len(behind) > 1 else "has"
        return KeepPolling(f"{', '.join(behind)} {has} not confirmed it, and may go by what was before")
    return Done(False, None)

"""What is said of a model that could not be had, by the kind of its failure. Pure; called by `cache`."""

from moorage.agent.given import Refused
from moorage.domain.reasons import Reason, reason
from moorage.domain.sources import HubSource
from moorage.sources.hub import SourceError

OF_MACHINE = {"full": "model cache", "disk": "model cache", "absent": "model sources"}
"""Kinds of failure that another machine, or this one once mended, does not have: what could not be set up."""


def why_not(source: HubSource, cause: SourceError) -> Reason:
    """The reason for a worker: what is of the machine is a set-up that failed, what is of the hub a failed fetch."""
    feature = OF_MACHINE.get(cause.kind)
    if feature is not None:
        return reason("setup.failed", feature=feature, error=cause.message)
    permanent = cause.kind != "busy"
    return reason("model.fetch_failed", error=cause.message, permanent=permanent, source=str(source))


def refused(source: HubSource, cause: SourceError) -> Refused:
    """The same as an error."""
    return Refused(why_not(source, cause))


def stalled(source: HubSource, limit_s: float, last: SourceError | None) -> Refused:
    """Nothing came for too long: with the last error where there was one."""
    if last is not None:
        return refused(source, last)
    return Refused(reason("pull.stalled", d=limit_s, source=str(source)))

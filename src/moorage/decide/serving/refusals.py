"""What a gateway answers in place of a model server, and how it says so: one function a cause.

Not here: when (`routing`).
"""

from moorage.decide.serving import estimates
from moorage.decide.serving.routes import EndpointState, Refuse

_NAME_SHOWN = 200

NOT_LOADED = Refuse(503, "not_ready", "this gateway has no routing table yet; retry shortly", 1.0)


def not_found(name: str) -> Refuse:
    """A name that the table does not have; it lists nothing, since other names may not be yours."""
    shown = name if len(name) <= _NAME_SHOWN else name[:_NAME_SHOWN] + "…"
    return Refuse(404, "model_not_found", f"The model `{shown}` does not exist or you do not have access to it.")


def leads_nowhere(name: str) -> Refuse:
    """An endpoint that people made, none of whose deployments is there with a weight."""
    return Refuse(
        503,
        "endpoint_unbound",
        f"endpoint {name} leads to no deployment now: those that it names do not exist or have the weight 0; "
        "it answers again once it is bound to one that does",
        estimates.COLD_S,
    )


def moved(name: str) -> Refuse:
    """It came by an endpoint that people made, and waited at a deployment that is gone now."""
    return Refuse(
        503,
        "endpoint_rebound",
        f"the deployment that this request for endpoint {name} waited for was removed; retry",
        estimates.LEAST_S,
    )


def settled(endpoint: EndpointState) -> Refuse | None:
    """The refusal of an endpoint that cannot serve whatever one waits; None of one that may."""
    route = endpoint.route
    if not endpoint.listed:
        return not_found(endpoint.public_id)
    if route.mode not in ("failed", "stopped"):
        return None
    message = route.error or f"endpoint {endpoint.public_id} is {route.mode}"
    return Refuse(503, route.error_code or f"endpoint_{route.mode}", message, route.retry_after_s)


def nobody_to_wake_it(endpoint: EndpointState, now: float) -> Refuse:
    """Cold, and the control plane is away."""
    return Refuse(
        503,
        "control_plane_unreachable",
        f"endpoint {endpoint.public_id} has no running replica, "
        "and the control plane that would start one does not answer",
        estimates.of_wake(endpoint, now),
    )


def queue_full(endpoint: EndpointState, held: int, now: float) -> Refuse:
    """As many wait as may."""
    whole = endpoint.route.limits.queue_of_all
    limit = "its limit" if whole is None else f"this process's part of its {whole}"
    return Refuse(
        429,
        "queue_full",
        f"endpoint {endpoint.public_id} already holds {held} request{'' if held == 1 else 's'}, {limit}",
        estimates.of_queue(endpoint, now),
    )


def displaced(endpoint: EndpointState, now: float) -> Refuse:
    """It waited in a full queue, of which its tenant held most, and another tenant needed a place."""
    return Refuse(
        429,
        "queue_full",
        f"endpoint {endpoint.public_id} holds as many requests as it may, most of them yours; "
        "this one gave its place to another client",
        estimates.of_queue(endpoint, now),
    )


def timed_out(endpoint: EndpointState, now: float) -> Refuse:
    """It waited as long as requests may."""
    route = endpoint.route
    why = f": {route.error}" if route.error else ""
    return Refuse(
        503,
        "queue_timeout",
        f"endpoint {endpoint.public_id} was not ready within {route.limits.queue_timeout_s:g} s{why}",
        estimates.of_queue(endpoint, now),
    )


def wake_failed(endpoint: EndpointState) -> Refuse:
    """The start that it waited for failed."""
    route = endpoint.route
    return Refuse(
        503,
        route.error_code or "wake_failed",
        route.error or f"endpoint {endpoint.public_id} could not be started",
        route.retry_after_s or estimates.COLD_S,
    )


def no_such_revision(endpoint: EndpointState, word: str) -> Refuse:
    """It named a revision that takes no requests of clients."""
    known = ", ".join(state.label for state in endpoint.nameable())
    return Refuse(
        404,
        "revision_not_found",
        f"endpoint {endpoint.public_id} has no revision `{word[:100]}` that may be asked for by X-Moorage-Revision; "
        + (f"it has {known}" if known else "it has none now"),
    )


def revision_not_ready(endpoint: EndpointState, label: str) -> Refuse:
    """It named a candidate of which no replica can be reached."""
    return Refuse(
        503,
        "revision_not_ready",
        f"revision {label} of endpoint {endpoint.public_id} has no replica that can be reached; "
        "leave X-Moorage-Revision out to be answered by the active revision",
        endpoint.route.retry_after_s or 1.0,
    )

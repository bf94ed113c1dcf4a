"""Endpoints as the API shows them: the object, what an apply or a delete of one would do, and why it does (not) answer.

Pure: rows and the objects of the deployments in, JSON values out. Called by `control.endpoints`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.control.bindings import Spread
from moorage.control.gateways import GatewayLease
from moorage.control.views import JsonObject, document, head, iso
from moorage.control.views_serving import endpoint_name
from moorage.decide.endpoints import EndpointIntent, KnownEndpoint, drawn, limits_text, routes_of, unknown
from moorage.decide.serving.differences import changed_fields
from moorage.domain.nouns import Deployment, Endpoint, Noun

NO_LIMITS: Mapping[str, None] = dict.fromkeys(("requests_per_minute", "tokens_per_minute", "in_flight"))
WHOLE = 100
"""Weight of the one route of a deployment's own endpoint."""


@dataclass(frozen=True, slots=True)
class EndpointScene:
    """What an endpoint is shown by.

    Args:
        deployments: objects of the namespace's deployments, by name; those that it names at least.
        over: why nothing is drawn for one of its deployments while others can answer, by name.
        spread: how far what is published of it has come.
        gateway_url: base address of the gateway, without a slash at its end.
        now: seconds since the epoch.
    """

    deployments: Mapping[str, JsonObject]
    gateway_url: str
    now: float
    over: Mapping[str, str] = field(default_factory=dict)
    spread: Spread = field(default_factory=Spread)


def endpoint_object(row: Endpoint, scene: EndpointScene) -> JsonObject:
    """An Endpoint that people made."""
    routes = route_objects(routes_of(row.spec), scene)
    limits = {**NO_LIMITS, **dict(row.spec.get("limits") or {})}
    published = scene.spread.version >= row.version
    return {**head(row), "own": False, "spec": document(row.spec), **_rest(row, routes, limits, scene, published)}


def own_endpoint_object(row: Deployment, scene: EndpointScene) -> JsonObject:
    """The endpoint that a deployment has of its own; its id is the deployment's."""
    routes = route_objects([(row.name, WHOLE)], scene)
    shown = {**head(row), "kind": Endpoint.kind, "own": True, "spec": None}
    return {**shown, **_rest(row, routes, dict(NO_LIMITS), scene, True)}


def _rest(
    row: Noun, routes: list[JsonObject], limits: Mapping[str, Any], scene: EndpointScene, published: bool
) -> JsonObject:
    return {
        "url": f"{scene.gateway_url}/v1",
        "model": endpoint_name(row),
        "routes": routes,
        "serving": any(route["serving"] for route in routes if route["share"]),
        "limits": dict(limits),
        "generation": scene.spread.number if published else None,
        "gateways": [_gateway(one, scene.now) for one in scene.spread.gateways],
    }


def route_objects(routes: Sequence[tuple[str, int]], scene: EndpointScene) -> list[JsonObject]:
    """Each route with what stands behind it: `share` is its part of the requests now, in per cent."""
    weights = dict(routes)
    names = set(drawn(weights, scene.over))
    total = sum(weights[name] for name in names)
    return [
        _route(name, weight, round(100.0 * weight / total, 2) if name in names else 0.0, scene)
        for name, weight in routes
    ]


def _route(name: str, weight: int, share: float, scene: EndpointScene) -> JsonObject:
    found = scene.deployments.get(name) or {}
    return {
        "deployment": name,
        "id": found.get("id"),
        "weight": weight,
        "share": share,
        "phase": found.get("phase"),
        "ready_replicas": int(found.get("ready_replicas") or 0),
        "serving": bool(found.get("serving")),
        "passed_over": scene.over.get(name),
    }


def _gateway(lease: GatewayLease, now: float) -> JsonObject:
    return {"id": lease.id, "generation": lease.number, "lease_expires_at": iso(now + lease.left_s)}


# Plans


def plan_object(intent: EndpointIntent, known: KnownEndpoint, scene: EndpointScene) -> JsonObject:
    """What an apply would do. That a deployment is not there yet is a warning: a file may make it first."""
    row = known.endpoint
    before: Mapping[str, Any] = {} if row is None else row.spec
    paths = changed_fields(before, intent.spec)
    return {
        "kind": "Plan",
        "changes": [{"path": p, "before": _at(before, p), "after": _at(intent.spec, p)} for p in paths],
        "actions": [{"order": n, **a} for n, a in enumerate(_actions(row, intent, paths), start=1)],
        "warnings": list(_warnings(intent, known, scene)),
        "touches": [{"kind": Endpoint.kind, "name": intent.name, "id": row.uid if row else None}],
        "refers": [
            {"kind": Deployment.kind, "name": r["deployment"], "what_happens": f"gets {r['share']:g} % of its requests"}
            for r in route_objects(routes_of(intent.spec), scene)
        ],
    }


def _actions(row: Endpoint | None, intent: EndpointIntent, paths: Sequence[str]) -> Iterator[JsonObject]:
    routes = _shares(routes_of(intent.spec))
    if row is None:
        yield {"kind": "create", "summary": f"make the endpoint {intent.name} for {routes}"}
    elif routes_of(row.spec) != routes_of(intent.spec):
        yield {"kind": "bind", "summary": f"bind it to {routes}"}
    if row is not None and any(path.startswith("limits") for path in paths):
        yield {"kind": "limit", "summary": f"limit each key to {limits_text(intent.spec.get('limits') or {})}"}
    if paths:
        yield {"kind": "publish", "summary": "every gateway takes it in; requests in flight end where they are"}


def _shares(routes: Iterable[tuple[str, int]]) -> str:
    found = list(routes)
    total = sum(weight for _, weight in found) or 1
    return ", ".join(f"{name} ({100.0 * weight / total:g} %)" for name, weight in found)


def _warnings(intent: EndpointIntent, known: KnownEndpoint, scene: EndpointScene) -> Iterator[str]:
    absent = {str(e["message"]) for e in unknown(intent, known)}
    for message in sorted(absent):
        yield f"{message}; an apply is refused until there is one"
    for name, weight in routes_of(intent.spec):
        found = scene.deployments.get(name)
        if found is None or not weight:
            continue
        if name in scene.over:
            yield f"deployment {name} answers nothing: {scene.over[name]}"
        elif not found.get("serving"):
            yield f"deployment {name} is {found.get('phase')}: its share of the requests waits until it is ready"


def delete_object(row: Endpoint, deployments: Collection[str], keys: Sequence[str]) -> JsonObject:
    """What a delete of one touches.

    Args:
        deployments: names of those that it names and that are there.
        keys: names of the clients' keys that name it.
    """
    gone = "requests in flight end where they are; later ones by that name are answered 404"
    return {
        "kind": "DryRun",
        "changes": [],
        "actions": [
            {"order": 1, "kind": "unbind", "summary": "take the name out of every gateway's table"},
            {"order": 2, "kind": "tombstone", "summary": "keep a tombstone and the history; the name is free again"},
        ],
        "warnings": [],
        "touches": [{"kind": row.kind, "name": row.name, "id": row.uid}],
        "refers": [
            *({"kind": "Deployment", "name": name, "what_happens": "goes on as it is"} for name in deployments),
            *({"kind": "Key", "name": key, "what_happens": "opens nothing by that name any more"} for key in keys),
            {"kind": "Stream", "name": "-", "what_happens": gone},
        ],
    }


# Why


def why_object(shown: JsonObject) -> JsonObject:
    """Which deployments answer for it, and their state."""
    return {
        "kind": "Why",
        "subject": {"kind": Endpoint.kind, "name": shown["name"], "id": shown["id"]},
        "state": _state(shown["routes"]),
        "reason": shown["reason"],
        "queue": None,
        "machines": [],
        "changes": [],
        "routes": shown["routes"],
        "generation": shown["generation"],
        "gateways": shown["gateways"],
    }


def _state(routes: Sequence[JsonObject]) -> str:
    """serving: every deployment with a share is ready; partly: some are; waking: one sleeps and none is ready."""
    asked = [route for route in routes if route["share"]]
    ready = [route for route in asked if route["serving"]]
    if ready:
        return "serving" if len(ready) == len(asked) else "partly"
    if all(route["passed_over"] for route in asked):
        return "down"
    return "asleep" if any(route["phase"] == "SCALED_TO_ZERO" for route in asked) else "starting"


def _at(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value

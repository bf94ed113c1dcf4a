"""The app: routes, door, error answers and the published description, put together.

Called by the composition root (`moorage.app`) and by tests; holds no state of its own but what a scrape and the
gateways' addresses need.
"""

from collections import Counter
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from moorage.api import errors, metrics
from moorage.api.auth import API
from moorage.api.bodies import content, schemas
from moorage.api.deps import ApiDeps
from moorage.api.door import Door
from moorage.api.gateways import GatewayBook
from moorage.api.mounting import mount
from moorage.api.routes import (
    adopting,
    agent,
    deployments,
    drives,
    endpoints,
    events,
    evidence,
    exec,
    identity,
    inventory,
    keys,
    logs,
    machines,
    namespaces,
    operations,
    rollouts,
    routing,
    runs,
    secrets,
    tokens,
)
from moorage.api.schemas import ANSWERS, MODELS, Error

VERSION = "1"
ROUTERS: tuple[APIRouter, ...] = (
    agent.router,
    routing.router,
    deployments.router,
    rollouts.router,
    evidence.router,
    adopting.router,
    endpoints.router,
    keys.router,
    runs.router,
    logs.router,
    exec.router,
    machines.router,
    operations.router,
    events.router,
    secrets.router,
    drives.router,
    drives.copies,
    inventory.router,
    identity.router,
    namespaces.router,
    namespaces.quotas,
    tokens.router,
)
"""Paths are matched one after another: those that agents and gateways use many times a second come first."""


def create_app(deps: ApiDeps) -> FastAPI:
    """The control plane's HTTP server, ready to be given to an ASGI server."""
    # The framework's own documentation pages load scripts from elsewhere, so they are off.
    app = FastAPI(title="Moorage", version=VERSION, openapi_url=f"{API}/openapi.json", docs_url=None, redoc_url=None)
    app.state.deps = deps
    app.state.gateways = GatewayBook(deps.http, deps.clock, deps.settings.gateway_token)
    app.state.counts = metrics.StateCounts(deps.store)
    app.state.seen = Counter()
    mount(app, (*ROUTERS, metrics.router))
    errors.install(app)
    app.add_middleware(Door, deps=deps, seen=app.state.seen)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's documented way to describe an app
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The description, with the objects and the messages of both protocols; made once."""
    if app.openapi_schema is None:
        described = get_openapi(title=app.title, version=app.version, routes=app.routes)
        parts = described.setdefault("components", {})
        parts.setdefault("schemas", {}).update(
            schemas(
                *agent.MESSAGES,
                *routing.MESSAGES,
                secrets.SecretBody,
                *namespaces.MESSAGES,
                *endpoints.MESSAGES,
                *keys.MESSAGES,
                *MODELS,
            )
        )
        parts["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        described["security"] = [{"bearer": []}]
        _describe_answers(described["paths"])
        app.openapi_schema = described
    return app.openapi_schema


def _describe_answers(paths: dict[str, Any]) -> None:
    """Say what each GET answers, and that every failure is the one error object."""
    for path, methods in paths.items():
        for method, operation in methods.items():
            responses = operation["responses"]
            responses.pop("422", None)  # the framework's own shape of it, which is not ours
            responses["default"] = {"description": "what went wrong", "content": content(Error)}
            if method == "get" and path in ANSWERS:
                responses["200"] = {"description": "as asked", "content": content(ANSWERS[path])}

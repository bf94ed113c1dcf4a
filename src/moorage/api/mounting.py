"""Where routes stand: routers whose paths are whole from the start, and an app that takes their routes as they are.

FastAPI's own way, `include_router`, takes every signature apart a second time for each app, at the first request that
passes by, and looks for each request twice. Called by the modules of `routes` and by `app`.
"""

from collections.abc import Iterable

from fastapi import APIRouter, FastAPI

from moorage.api.auth import API


def under_api(prefix: str = "", *, tag: str) -> APIRouter:
    """A router for paths of the API.

    Args:
        prefix: of all its paths, after the API's own.
        tag: under which the published description lists them.
    """
    return APIRouter(prefix=f"{API}{prefix}", tags=[tag])


def mount(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Serve the routes of these routers; of two that fit a path, the one that comes first."""
    for router in routers:
        app.router.routes.extend(router.routes)

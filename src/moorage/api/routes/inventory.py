"""`/orphans` and `/inventory`: what is really on the machines, and what of it nobody means."""

from typing import Any

from fastapi import APIRouter, Response

from moorage.api.deps import Deps
from moorage.api.errors import json_response
from moorage.control.inventory import PROVIDER, Taken

router = APIRouter(tags=["inventory"])


@router.get("/orphans")
async def orphans(deps: Deps) -> Response:
    """Processes and containers with our marks that nothing means, or that a person must judge.

    Every machine is asked while this call waits; one that does not answer makes the answer incomplete, and is named.
    """
    taken = await deps.inventories.take()
    return json_response({"items": taken.orphans(), **_whole(taken), "next": None})


@router.get("/inventory")
async def inventory(deps: Deps) -> Response:
    """Everything that machines say is there, beside what rows say should be."""
    taken = await deps.inventories.take()
    items = [
        {
            "provider": PROVIDER,
            "machine": taken.names.get(f.machine, f.machine),
            "identity": f.identity or None,
            "resource_id": f.resource,
            "drift": str(f.drift),
            "why": f.why,
            "kind": f.kind,
            "name": f.name,
            "observed_at": f.observed_at,
            "inventory_complete": f.machine not in taken.compared.incomplete,
        }
        for f in taken.compared.findings
    ]
    return json_response({"items": items, **_whole(taken), "next": None})


def _whole(taken: Taken) -> dict[str, Any]:
    return {"observed_at": taken.at, "inventory_complete": taken.compared.complete, "incomplete": taken.incomplete()}

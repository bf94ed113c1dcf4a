"""`/orphans` and `/inventory`: what is really on the machines, and what of it nobody means."""

from typing import Annotated, Any

from fastapi import Query, Response

from moorage.api.deps import Deps
from moorage.api.errors import json_response
from moorage.api.mounting import under_api
from moorage.control.inventory import Taken
from moorage.control.views import iso

router = under_api(tag="inventory")


@router.get("/orphans")
async def orphans(deps: Deps) -> Response:
    """Processes and containers with our marks that nothing means, or that a person must judge.

    Every machine is asked while this call waits; one that does not answer makes the answer incomplete, and is named.
    """
    taken = await deps.inventories.take()
    return json_response({"items": taken.orphans(), **_whole(taken), "next": None})


@router.get("/inventory")
async def inventory(
    deps: Deps, owner: Annotated[str | None, Query(description="uid of a deployment or run")] = None
) -> Response:
    """Everything that machines say is there, beside what rows say should be; of one owner, where that is given."""
    taken = await deps.inventories.take()
    return json_response({"items": taken.lines(owner), **_whole(taken), "next": None})


def _whole(taken: Taken) -> dict[str, Any]:
    return {
        "observed_at": iso(taken.at),
        "inventory_complete": taken.compared.complete,
        "incomplete": taken.incomplete(),
    }

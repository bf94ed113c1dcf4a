"""Protocol messages in and out with one parse and one dump, and their schemas for the published description.

FastAPI would parse JSON to Python values first and validate those; agents and gateways are worth the shorter way.
Called by the agent and routing routes.
"""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

from moorage.api.errors import invalid_message

M = TypeVar("M", bound=BaseModel)


async def read(request: Request, kind: type[M]) -> M:
    """The request's body as a message.

    Raises:
        InvalidSpec: it is not one.
    """
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        raise invalid_message(error, f"the {kind.__name__} message") from error


def write(message: BaseModel | None) -> Response:
    """A message, or 204 for none."""
    if message is None:
        return Response(status_code=204)
    return Response(message.model_dump_json().encode(), media_type="application/json")


def described(takes: type[BaseModel] | None, gives: type[BaseModel] | None) -> dict[str, Any]:
    """`openapi_extra` of a route that uses `read` and `write`."""
    extra: dict[str, Any] = {}
    if takes is not None:
        extra["requestBody"] = {"required": True, "content": content(takes)}
    if gives is not None:
        extra["responses"] = {"200": {"description": gives.__doc__ or "", "content": content(gives)}}
    return extra


def schemas(*kinds: type[BaseModel]) -> dict[str, Any]:
    """The messages' schemas, for `components.schemas`."""
    _, whole = models_json_schema([(k, "validation") for k in kinds], ref_template="#/components/schemas/{model}")
    return dict(whole.get("$defs", {}))


def content(kind: type[BaseModel]) -> dict[str, Any]:
    """A JSON body of that shape, by reference."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema_name(kind)}"}}}


def schema_name(kind: type[BaseModel]) -> str:
    """What a model is called in the description: `Items[Run]` as `Items_Run_`."""
    return "".join(c if c.isalnum() or c in "_-." else "_" for c in kind.__name__)

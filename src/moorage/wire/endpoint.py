"""`kind: Endpoint` (a stable name in front of deployments) and `kind: Drive` (data kept for workers)."""

from collections import Counter
from typing import Literal

from pydantic import Field, field_validator

from moorage.wire.document import Document
from moorage.wire.fields import AtLeastOne, Count, Name, Part, Size

ROUTES_MAX = 100
"""Of one endpoint: more are a mistake, and each makes every draw longer."""


class Route(Part):
    """One deployment behind an endpoint, with its share of the traffic: its weight out of the sum of them all.

    Weight 0 gets no request: a route that is kept beside the others until it is given one.
    """

    deployment: Name
    weight: Count = 100


class Limits(Part):
    """Per tenant key unless overridden; null means unlimited."""

    requests_per_minute: AtLeastOne | None = None
    tokens_per_minute: AtLeastOne | None = None
    in_flight: AtLeastOne | None = None


class Endpoint(Document):
    """A stable name in front of one or more deployments."""

    kind: Literal["Endpoint"] = "Endpoint"
    name: Name
    routes: list[Route] = Field(min_length=1, max_length=ROUTES_MAX)
    limits: Limits = Field(default_factory=Limits)

    @field_validator("routes")
    @classmethod
    def _each_once(cls, routes: list[Route]) -> list[Route]:
        twice = [name for name, times in Counter(r.deployment for r in routes).items() if times > 1]
        if twice:
            raise ValueError(f"{', '.join(twice)} stands there more than once; give each deployment one weight")
        if not any(r.weight for r in routes):
            raise ValueError("every weight is 0, so that nothing would answer; give one of them a weight")
        return routes


class BindBody(Part):
    """Body of `POST …/endpoints/{name}/bind`: the routes, all of them."""

    routes: list[Route] = Field(min_length=1, max_length=ROUTES_MAX)


class Drive(Document):
    """Data kept for workers."""

    kind: Literal["Drive"] = "Drive"
    name: Name
    size: Size
    site: str | None = None
    machine: str | None = None

"""`kind: Endpoint` (a stable name in front of deployments) and `kind: Drive` (data kept for workers)."""

from typing import Literal

from pydantic import Field

from moorage.wire.document import Document
from moorage.wire.fields import AtLeastOne, Count, Name, Part, Size


class Route(Part):
    """One deployment behind an endpoint, with its share of the traffic."""

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
    routes: list[Route] = Field(min_length=1)
    limits: Limits = Field(default_factory=Limits)


class Drive(Document):
    """Data kept for workers."""

    kind: Literal["Drive"] = "Drive"
    name: Name
    size: Size
    site: str | None = None
    machine: str | None = None

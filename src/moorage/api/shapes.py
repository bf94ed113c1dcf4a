"""What every published object is made of. Called by the modules of `schemas`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Json = dict[str, Any]
Time = str
"""RFC 3339 in UTC with milliseconds."""


class Shape(BaseModel):
    """Exactly these fields."""

    # Built when the description is asked for: an answer is never read by them.
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Reason(Shape):
    """Why; programs match on `code`, never on text."""

    code: str
    class_: Literal["waiting", "impossible", "failed", "by_person", "progress"] = Field(alias="class")
    message: str
    params: Json
    advice: str | None = None


class Head(Shape):
    """What every object has."""

    id: str
    name: str
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]
    created_at: Time
    updated_at: Time
    version: int
    reason: Reason | None

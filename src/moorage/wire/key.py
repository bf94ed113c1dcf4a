"""A client's key as people ask for it: bodies of POST and PATCH under `/namespaces/{ns}/keys`."""

from typing import Annotated

from pydantic import Field

from moorage.wire.fields import Part

Amount = Annotated[int, Field(ge=1, le=1_000_000_000)]
"""A limit: one at least, since a key that may do nothing is a key to revoke."""

Names = Annotated[list[Annotated[str, Field(min_length=1, max_length=63)]], Field(max_length=1000)]
Description = Annotated[str, Field(max_length=1000)]


class KeyLimits(Part):
    """At most so much with one key. What is left out is unlimited."""

    requests_per_minute: Amount | None = None
    tokens_per_minute: Amount | None = None
    in_flight: Amount | None = None

    def amounts(self) -> dict[str, int]:
        """As they are stored."""
        return {name: value for name, value in self.model_dump().items() if value is not None}


class KeyBody(Part):
    """POST `/namespaces/{ns}/keys`: a new key."""

    name: str
    endpoints: Names = Field(default_factory=list, description="names in its namespace that it opens; none: all")
    limits: KeyLimits = KeyLimits()
    expires_in_s: Annotated[float, Field(gt=0, le=36_500 * 86_400.0)] | None = None
    description: Description = ""


class KeyChange(Part):
    """PATCH `/namespaces/{ns}/keys/{name}`: what is left out stays; `limits` replaces all of its limits."""

    endpoints: Names | None = None
    limits: KeyLimits | None = None
    description: Description | None = None


class RevokeBody(Part):
    """Why, in the words of whoever revokes it."""

    text: Description | None = None

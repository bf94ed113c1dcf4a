"""What every spec document has, and how a wrong one is refused.

A document made in Python (`Deployment(name=…, runtime={…})`) and one read from a file fail alike: one `InvalidSpec`
with every error, its place and, for an unknown key, the nearest known one.
"""

from typing import Any

from pydantic import Field, ValidationError

from moorage.wire.fields import Annotations, Labels, Name, Part
from moorage.wire.problems import invalid, problems


class Document(Part):
    """A spec document: `kind` says which."""

    kind: str
    name: Name
    namespace: Name = "default"
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            what = f"{type(self).__name__} {fields.get('name', '(no name)')}"
            raise invalid(what, problems(error, type(self))) from error

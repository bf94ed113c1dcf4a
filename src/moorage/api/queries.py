"""Query parameters and headers that several routes share, and the check that a document and its path agree."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Header, Query

from moorage.control.paging import LIMIT_DEFAULT, LIMIT_MAX, Page, selector
from moorage.control.reading import HISTORY_MAX
from moorage.domain.errors import InvalidSpec


async def _page(
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT,
    after: Annotated[str | None, Query(description="`next` of the page before")] = None,
    labels: Annotated[str | None, Query(description="k=v,k2!=v2,k3")] = None,
) -> Page:
    return Page(limit, after, selector(labels))


async def _create_only(
    if_none_match: Annotated[str | None, Header(description="`*`: only create")] = None,
) -> bool:
    if if_none_match not in (None, "*"):
        raise InvalidSpec(
            f"If-None-Match {if_none_match!r} is not understood",
            remedy="send `If-None-Match: *` to create only, or leave it out",
            errors=[{"path": "If-None-Match", "message": "only * is understood"}],
        )
    return if_none_match == "*"


def check_address(document: Mapping[str, Any], ns: str, name: str) -> None:
    """A document that names another object than the path is a mistake that must not be guessed about."""
    for field, expected in (("name", name), ("namespace", ns)):
        if document.get(field, expected) != expected:
            raise InvalidSpec(
                f"the document's {field} is {document[field]!r}, the path says {expected!r}",
                remedy=f"use the same {field} in both",
                errors=[{"path": field, "message": f"differs from the path's {expected!r}"}],
            )


Paged = Annotated[Page, Depends(_page)]
After = Annotated[str | None, Query(description="cursor after which to go on")]
HistoryLimit = Annotated[int, Query(ge=1, le=HISTORY_MAX)]
CreateOnly = Annotated[bool, Depends(_create_only)]
Deleted = Annotated[bool, Query(description="deleted objects instead of live ones")]
"""The parameters, ready to be named in a signature."""

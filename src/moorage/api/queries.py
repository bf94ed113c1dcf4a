"""Query parameters that several lists share."""

from typing import Annotated

from fastapi import Depends, Query

from moorage.control.paging import LIMIT_DEFAULT, LIMIT_MAX, Page, selector
from moorage.control.reading import HISTORY_MAX


async def _page(
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT,
    after: Annotated[str | None, Query(description="`next` of the page before")] = None,
    labels: Annotated[str | None, Query(description="k=v,k2!=v2,k3")] = None,
) -> Page:
    return Page(limit, after, selector(labels))


Paged = Annotated[Page, Depends(_page)]
After = Annotated[str | None, Query(description="cursor after which to go on")]
HistoryLimit = Annotated[int, Query(ge=1, le=HISTORY_MAX)]
Deleted = Annotated[bool, Query(description="deleted objects instead of live ones")]
"""The parameters, ready to be named in a signature."""

"""Pages of a long list, and the label selectors that narrow it.

A page is asked for with the last item's uid as cursor, so that it stays right while rows come and go. Called by
`control.reading`; the API parses queries into `Page` here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from moorage.domain.errors import InvalidSpec
from moorage.domain.nouns import Noun
from moorage.ports import Store

N = TypeVar("N", bound=Noun)

LIMIT_DEFAULT = 200
LIMIT_MAX = 1000
CHUNK = 500
"""Rows read at once while a selector is looked for; labels are not indexed."""


@dataclass(frozen=True, slots=True)
class Label:
    """One term of a selector: `key=value`, `key!=value`, or `key` alone (it is set)."""

    key: str
    value: str | None = None
    negated: bool = False

    def matches(self, labels: Mapping[str, Any]) -> bool:
        """Whether an object with these labels is meant."""
        if self.value is None:
            return self.key in labels
        return (labels.get(self.key) == self.value) is not self.negated


@dataclass(frozen=True, slots=True)
class Page:
    """What part of a list is asked for."""

    limit: int = LIMIT_DEFAULT
    after: str | None = None
    labels: tuple[Label, ...] = ()


def selector(text: str | None) -> tuple[Label, ...]:
    """`team=search,tier!=dev,gpu` as terms that all must hold.

    Raises:
        InvalidSpec: a term has no key or nothing after its sign.
    """
    return tuple(_term(part.strip()) for part in text.split(",")) if text else ()


async def page(store: Store, kind: type[N], wanted: Page, **equals: Any) -> tuple[list[N], str | None]:
    """One page of rows in order of uid, and the cursor of the next (None: that was all)."""
    found: list[N] = []
    after = wanted.after
    chunk = max(CHUNK, wanted.limit + 1) if wanted.labels else wanted.limit + 1
    while True:
        rows = await store.find(kind, limit=chunk, after=after, order="uid", **equals)
        found += [r for r in rows if all(label.matches(r.labels) for label in wanted.labels)]
        if len(found) > wanted.limit:
            return found[: wanted.limit], found[wanted.limit - 1].uid
        if len(rows) < chunk:
            return found, None
        after = rows[-1].uid


def _term(part: str) -> Label:
    key, sign, value = part.partition("=")
    negated = key.endswith("!")
    key = key.removesuffix("!").strip() if sign else key.strip()
    if not key or (sign and not value.strip()):
        raise InvalidSpec(
            f"{part!r} is not a label selector",
            remedy="write key=value, key!=value or key, with commas between",
            errors=[{"path": "labels", "message": f"{part!r} has no key or no value"}],
        )
    return Label(key, value.strip() if sign else None, negated)

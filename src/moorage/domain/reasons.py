"""Reasons: why a thing is as it is. A closed catalogue of codes; programs match on codes, never on text.

`reason("exited", code=1)` builds a checked `Reason`: an unknown code or a missing or unknown param is a defect and
raises at once. The catalogue itself is in `catalogue/`, as data.
"""

from typing import Any

from moorage.domain.catalogue import CATALOGUE
from moorage.domain.reason_types import Reason, ReasonClass, ReasonType, render

__all__ = ["Reason", "ReasonClass", "ReasonType", "reason", "render"]


def reason(code: str, /, **params: Any) -> Reason:
    """A reason of the catalogue.

    Args:
        code: a code of the catalogue.
        params: exactly its required params, and any of its optional ones. A value of None counts as absent.

    Raises:
        KeyError: the catalogue has no such code.
        TypeError: a param is missing or unknown.
    """

    entry = CATALOGUE[code]
    given = {k: v for k, v in params.items() if v is not None}
    missing = [p for p in entry.params if p not in given]
    unknown = [p for p in given if p not in entry.params and p not in entry.optional]
    if missing or unknown:
        raise TypeError(f"reason {code}: missing {missing}, unknown {unknown}")
    if entry.is_progress(given):
        return Reason(code, ReasonClass.PROGRESS, render(entry, given), given)
    return Reason(code, entry.klass, render(entry, given), given, entry.advice)

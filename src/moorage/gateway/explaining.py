"""Why no endpoint was found in a body: said of requests that are refused for it, so it may take its time.

Here: looking at such a body once more, as a whole. Not here: finding names (`skim`, `naming`). Called by `intake`.
"""

import json
from typing import Final

from moorage.decide.serving.routes import Refuse
from moorage.gateway.naming import HOW

_FORM: Final = b"application/x-www-form-urlencoded"
_LOOKED_AT_BYTES_MAX: Final = 256 * 1024
_NAME_BYTES_MAX: Final = 1024


def nameless(content_type: bytes, body: bytes, *, whole: bool) -> Refuse:
    """The refusal of a request that names no endpoint.

    Args:
        content_type: what its head says of the body; empty: nothing.
        body: what of it came.
        whole: whether that is all of it.
    """
    why = _wrong(content_type.partition(b";")[0].strip().lower(), body, whole=whole) if body.strip() else None
    if why is not None:
        return Refuse(400, "invalid_body", why)
    return Refuse(400, "model_missing", f"the request has no `model`; {HOW}")


def _wrong(kind: bytes, body: bytes, *, whole: bool) -> str | None:
    """What is wrong with a body that is meant to be JSON; None of one that is not, or merely has no name."""
    begin = body.lstrip(b" \t\r\n")[:1]
    if kind == _FORM and begin in (b"{", b"["):
        return f"the body is a form (Content-Type: {_FORM.decode()}), not JSON: send Content-Type: application/json"
    if kind and not kind.endswith(b"json") and begin != b"{":
        return None
    if not whole or len(body) > _LOOKED_AT_BYTES_MAX:
        return None if begin == b"{" else "the body is no JSON object"
    return _wrong_in(body)


def _wrong_in(body: bytes) -> str | None:
    try:
        read = json.loads(body.decode())
    except UnicodeDecodeError as error:
        return f"the body is not valid JSON: what stands at byte {error.start} is not UTF-8"
    except json.JSONDecodeError as error:
        at = len(error.doc[: error.pos].encode())
        return f"the body is not valid JSON at byte {at}: {error.msg[:1].lower()}{error.msg[1:]}"
    except (RecursionError, ValueError):  # nested deeper, or a number longer, than is read here
        return None
    if not isinstance(read, dict):
        return "the body is no JSON object"
    if "model" not in read:
        return None
    if isinstance(read["model"], str):
        return f"`model` is longer than {_NAME_BYTES_MAX} bytes"
    return f"`model` is {_KINDS.get(type(read['model']), 'a number')}, not a string"


_KINDS: Final = {dict: "an object", list: "an array", bool: "true or false", type(None): "null"}

"""A spec as it was submitted: checked, normalised, and of the object that it was addressed to.

Called by the commands about deployments and runs; what becomes of it is decided elsewhere.
"""

from collections.abc import Mapping
from typing import Any

from moorage.domain.errors import InvalidSpec
from moorage.wire.spec import document as read_document
from moorage.wire.spec import normalise
from moorage.wire.supported import unsupported


def checked_spec(kind: str, ns: str, name: str, document: Mapping[str, Any], *, verb: str) -> dict[str, Any]:
    """A checked and normalised spec of the `kind` `ns`/`name`.

    Args:
        verb: what was to be done with it, for the message.

    Raises:
        InvalidSpec: it is wrong, asks for what this version does not have, or names another object.
    """
    spec = normalise(read_document(document))
    errors = [dict(e) for e in unsupported(spec)]
    if spec.get("kind") != kind:
        errors.append({"path": "kind", "message": f"expected {kind}, found {spec.get('kind')}"})
    if spec.get("name") != name or spec.get("namespace", "default") != ns:
        shown = f"{spec.get('namespace')}/{spec.get('name')}"
        errors.append({"path": "name", "message": f"the document is {shown}, the address says {ns}/{name}"})
    if errors:
        text = "; ".join(f"{e['path']}: {e['message']}" for e in errors)
        raise InvalidSpec(f"cannot {verb} {ns}/{name}: {text}", errors=errors, remedy="change the fields named")
    return spec

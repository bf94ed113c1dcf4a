"""What a caller hands in as a spec, made into the plain document that travels.

The only place of the SDK that needs pydantic and YAML; both are imported when a spec is handed in, so that reading
commands start without them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.client.address import unread
from moorage.domain.errors import InvalidSpec

if TYPE_CHECKING:
    from moorage.wire.spec import Document

    Spec = Document | Mapping[str, Any] | str | Path
else:
    Spec = Any


def plain_document(spec: "Spec", kind: str, namespace: str) -> dict[str, Any]:
    """The normalised document.

    Args:
        spec: a document (`moorage.Deployment(…)`), a mapping with the fields of one, or the path of a file with one.
        kind: the kind it must be; a mapping may leave it out.
        namespace: where it belongs if it does not say.

    Relative paths are made absolute: from the file's directory, else from the current one. A file of synthetic requests
    is read, so that the server needs none.

    Raises:
        InvalidSpec: it is wrong, of another kind, or the file has several documents or cannot be read.
    """
    from moorage.wire import spec as specs

    doc: Document
    if isinstance(spec, Mapping):
        doc = specs.rooted_at(specs.document({"kind": kind, **spec}), str(Path.cwd()))
    elif isinstance(spec, str | Path):
        base = str(Path(spec).absolute().parent)
        doc = _only(specs.parse_documents(_text(Path(spec)), source=str(spec), base=base), str(spec))
    else:
        doc = specs.rooted_at(spec, str(Path.cwd()))
    if getattr(doc, "kind", None) != kind:
        raise InvalidSpec(
            f"a {kind} is needed here, not {getattr(doc, 'kind', None) or type(doc).__name__}",
            errors=[{"path": "kind", "message": f"must be {kind}"}],
        )
    plain = specs.normalise(with_prompts(doc))
    return plain if "namespace" in doc.model_fields_set else {**plain, "namespace": namespace}


def with_prompts(doc: "Document") -> "Document":
    """The document with the requests of its `rollout.guard.synthetic` file in place of the file's path.

    Raises:
        InvalidSpec: the file cannot be read, or a line of it is wrong.
    """
    from moorage.wire.prompts import PLACE, parse_prompts
    from moorage.wire.spec import Deployment

    if not isinstance(doc, Deployment) or not isinstance(doc.rollout.guard.synthetic, str):
        return doc
    path = Path(doc.rollout.guard.synthetic)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read {path}: {unread(error)}"
        raise InvalidSpec(
            f"{PLACE}: {message}",
            errors=[{"path": PLACE, "message": message}],
            remedy="name a file with one JSON request a line, from the folder of the spec",
        ) from error
    guard = doc.rollout.guard.model_copy(update={"synthetic": parse_prompts(text, str(path))})
    return doc.model_copy(update={"rollout": doc.rollout.model_copy(update={"guard": guard})})


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSpec(f"cannot read {path}: {unread(error)}", remedy="name a spec file (YAML or JSON)") from error


def _only(documents: list["Document"], source: str) -> "Document":
    if len(documents) != 1:
        names = ", ".join(f"{d.kind} {d.name}" for d in documents)
        raise InvalidSpec(
            f"{source} holds {len(documents)} documents ({names}), and one is applied at a time here",
            remedy="read them with moorage.wire.spec.parse_documents and apply each, or use `moor apply -f`",
        )
    return documents[0]

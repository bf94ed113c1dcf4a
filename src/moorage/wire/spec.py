"""Spec documents: reading them, their normalised form, and which part of it makes a revision.

The door of this room for clients, commands and the API: `parse_documents` for files, `document` for a value that
travelled as JSON, `normalise` for what is stored and compared. The fields are in `deployment`, `run` and `endpoint`.
"""

import posixpath
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from moorage.domain.errors import InvalidSpec
from moorage.wire.deployment import LIVE_FIELDS, REVISION_FIELDS, Deployment, Rollout
from moorage.wire.endpoint import Drive, Endpoint
from moorage.wire.problems import Lines, Problem, invalid, nearest, problems
from moorage.wire.reading import read
from moorage.wire.run import Run
from moorage.wire.runtime import Runtime

__all__ = [
    "Deployment",
    "Document",
    "Drive",
    "Endpoint",
    "Run",
    "document",
    "live_part",
    "normalise",
    "parse_documents",
    "revision_part",
    "rooted_at",
    "serve_document",
]

Document = Deployment | Run | Endpoint | Drive

KINDS: Mapping[str, type[Deployment] | type[Run] | type[Endpoint] | type[Drive]] = {
    "Deployment": Deployment,
    "Run": Run,
    "Endpoint": Endpoint,
    "Drive": Drive,
}


def parse_documents(text: str, *, source: str, base: str | None = None) -> list[Document]:
    """Every document of a file.

    Args:
        text: YAML (several documents allowed) or JSON.
        source: what errors call it (a path, `standard input`).
        base: absolute directory that relative paths in it are meant from; None leaves them as they are.

    Raises:
        InvalidSpec: anything is wrong in any of them; `errors` has all of it, with places and lines.
    """
    found: list[Document] = []
    errors: list[Problem] = []
    readings = read(text, source)
    for reading in readings:
        errors.extend(reading.problems)
        one = _checked(reading.value, reading.lines)
        if isinstance(one, list):
            errors.extend(one)
        else:
            found.append(one)
    if not readings:
        errors.append({"path": "", "message": "it holds no document"})
    errors.extend(_namesakes(found))
    if errors:
        raise invalid(source, errors)
    return found if base is None else [rooted_at(doc, base) for doc in found]


def rooted_at(doc: Document, base: str) -> Document:
    """The document with its relative paths (model source, working directory, mounts, synthetic file) made absolute.

    Args:
        base: absolute directory that they are meant from.
    """
    if isinstance(doc, Deployment):
        source = doc.model.source
        model = doc.model.model_copy(update={"source": _absolute(source, base)}) if source else doc.model
        rollout = _rollout_at(doc.rollout, base)
        return doc.model_copy(update={"model": model, "runtime": _runtime_at(doc.runtime, base), "rollout": rollout})
    if isinstance(doc, Run):
        groups = [g.model_copy(update={"runtime": _runtime_at(g.runtime, base)}) for g in doc.groups]
        return doc.model_copy(update={"groups": groups})
    return doc


def document(value: Any, *, source: str = "the spec") -> Document:
    """One document from plain values (the body of a request, a dict in Python).

    Raises:
        InvalidSpec: as `parse_documents`.
    """
    one = _checked(value, {})
    if isinstance(one, list):
        raise invalid(source, one)
    return one


def normalise(doc: Document) -> dict[str, Any]:
    """The document as plain JSON with every default filled in.

    Names stay as in the file; durations are seconds (float), sizes bytes (int), CPU cores (float). Reading it again
    and normalising gives the same.
    """
    return doc.model_dump(mode="json")


def revision_part(normalised: Mapping[str, Any]) -> dict[str, Any]:
    """What of a normalised deployment makes a revision: its digest tells whether a new one is needed."""
    part = {name: normalised[name] for name in REVISION_FIELDS}
    return {**part, "replicas": {"workers": normalised["replicas"]["workers"]}}


def live_part(normalised: Mapping[str, Any]) -> dict[str, Any]:
    """What of a normalised deployment is applied at once, without a new revision."""
    part = {name: normalised[name] for name in LIVE_FIELDS}
    counts = {name: count for name, count in normalised["replicas"].items() if name != "workers"}
    return {**part, "replicas": counts}


def serve_document(
    *,
    name: str,
    command: list[str],
    namespace: str = "default",
    model: str | None = None,
    source: str | None = None,
    aliases: list[str] | None = None,
    env: Mapping[str, str] | None = None,
    workdir: str | None = None,
    health_path: str | None = None,
    minimum: int = 1,
    idle_timeout: str | float | None = None,
    gpus: int = 0,
    labels: Mapping[str, str] | None = None,
) -> Deployment:
    """The deployment that `moor serve` makes.

    Args:
        name, namespace, labels: of the deployment.
        command: argv; `{port}`, `{host}` and `{model}` are filled in on the machine.
        model: id that the server's `/v1/models` must list; None: readiness asks the health path only.
        source: path of the model, for `{model}` in the command.
        aliases: further ids that must be listed.
        env, workdir: of the process.
        health_path: path asked for readiness and liveness; None: `/health`.
        minimum: replicas kept at least; 0 sleeps after `idle_timeout`.
        idle_timeout: a duration; None: the default.
        gpus: whole GPUs for each replica.

    Raises:
        InvalidSpec: something in it is wrong.
    """
    runtime: dict[str, Any] = {"command": command, "env": dict(env or {}), "workdir": workdir}
    if health_path is not None:
        runtime |= {"ready": {"path": health_path}, "live": {"path": health_path}}
    return Deployment.model_validate(
        {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "model": {"id": model, "source": source, "aliases": aliases or []},
            "runtime": runtime,
            "resources": {"gpus": {"count": gpus}},
            "replicas": {"min": minimum},
            "scaling": {} if idle_timeout is None else {"idle_timeout": idle_timeout},
        }
    )


def _runtime_at(runtime: Runtime, base: str) -> Runtime:
    mounts = [m.model_copy(update={"source": _absolute(m.source, base)}) for m in runtime.mounts]
    workdir = runtime.workdir
    if workdir is not None and runtime.runner == "process":  # in a container it is a path of the image
        workdir = _absolute(workdir, base)
    return runtime.model_copy(update={"workdir": workdir, "mounts": mounts})


def _rollout_at(rollout: Rollout, base: str) -> Rollout:
    guard = rollout.guard
    if not isinstance(guard.synthetic, str):
        return rollout
    there = guard.model_copy(update={"synthetic": _absolute(guard.synthetic, base)})
    return rollout.model_copy(update={"guard": there})


def _absolute(path: str, base: str) -> str:
    """A path on this machine from `base`; an address (`hf://…`) stays as it is."""
    return path if "://" in path else posixpath.normpath(posixpath.join(base, path))


def _checked(value: Any, lines: Lines) -> Document | list[Problem]:
    """The document, or what is wrong with it."""
    if not isinstance(value, Mapping):
        return [_at_top(f"a document is a mapping with a kind, not {type(value).__name__}", lines)]
    kind = value.get("kind")
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        return [_unknown_kind(kind, lines)]
    try:
        return model.model_validate(dict(value))
    except InvalidSpec as error:  # raised by the document itself; told again here, with lines
        if isinstance(error.__cause__, ValidationError):
            return problems(error.__cause__, model, lines)
        raise


def _unknown_kind(kind: Any, lines: Lines) -> Problem:
    kinds = ", ".join(KINDS)
    said = "is required" if kind is None else f"is {kind!r}"
    problem = {**_at_top(f"{said}; the kinds are {kinds}", lines), "path": "kind"}
    near = nearest(str(kind).capitalize(), KINDS)
    if near:
        problem["nearest"] = near
    return {**problem, "line": lines[("kind",)]} if ("kind",) in lines else problem


def _at_top(message: str, lines: Lines) -> Problem:
    problem: Problem = {"path": "", "message": message}
    return {**problem, "line": lines[()]} if () in lines else problem


def _namesakes(found: list[Document]) -> list[Problem]:
    """Two documents of one name in one file would replace each other."""
    seen: set[tuple[str, str, str]] = set()
    out: list[Problem] = []
    for doc in found:
        group = "Deployment or Run" if doc.kind in ("Deployment", "Run") else doc.kind
        key = (group, doc.namespace, doc.name)
        if key in seen:
            out.append({"path": "name", "message": f"two documents are a {group} named {doc.namespace}/{doc.name}"})
        seen.add(key)
    return out

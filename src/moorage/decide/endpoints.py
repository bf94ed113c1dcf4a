"""What a person's command makes of an endpoint: apply, bind, delete; and what an endpoint means for its deployments.

Pure. A route names a deployment by its name, so that one that is deleted and made again answers again; until then, and
while it failed or is stopped for good, its share goes to the others. Each command depends on the rows that it was
decided on (deployments by the note in their history, endpoints by their version), so that a delete and a bind at the
same time cannot leave an endpoint whose only deployment goes. Called by `control/endpoints` and `control/admit`.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from moorage.decide.decision import Draft, Ids, Outcome
from moorage.domain.changes import Remove, Update
from moorage.domain.errors import Conflict, InvalidSpec
from moorage.domain.nouns import Deployment, Endpoint, Run
from moorage.domain.reasons import reason
from moorage.domain.states import DeploymentStatus

LIVE_FIELDS = ("labels", "annotations")


@dataclass(frozen=True, slots=True)
class EndpointIntent:
    """A checked spec: `spec` is the normalised document."""

    namespace: str
    name: str
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KnownEndpoint:
    """What is there already.

    Args:
        endpoint: of that name, or None.
        deployments: every deployment of the namespace, by name.
        run: a live run of that name, or None.
    """

    endpoint: Endpoint | None = None
    deployments: Mapping[str, Deployment] = field(default_factory=dict)
    run: Run | None = None


def routes_of(spec: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Deployment and weight of each route."""
    return [(str(route["deployment"]), int(route.get("weight", 100))) for route in spec.get("routes") or ()]


def routes_text(routes: Iterable[tuple[str, int]]) -> str:
    """Routes as `moor endpoint bind` takes them: `gemma`, or `gemma=90, llama=10`."""
    found = list(routes)
    if len(found) == 1:
        return found[0][0]
    return ", ".join(f"{name}={weight}" for name, weight in found)


def limits_text(limits: Mapping[str, Any]) -> str:
    """What a key may do there: `600 requests_per_minute, 64 in_flight`, or `none`."""
    return ", ".join(f"{limit} {word}" for word, limit in limits.items() if limit is not None) or "none"


def passed_over(deployment: Deployment | None) -> str | None:
    """Why requests of an endpoint are not drawn for it while another one can answer; None: they are."""
    if deployment is None:
        return "there is no such deployment"
    if deployment.deleting:
        return "it is being deleted"
    if deployment.status in (DeploymentStatus.STOPPED, DeploymentStatus.FAILED):
        return f"it is {deployment.status}"
    if dict(deployment.upstream or {}).get("mode") == "observe":
        return "it is only observed"
    return None


def drawn(weights: Mapping[str, int], over: Collection[str]) -> list[str]:
    """The deployments that requests are drawn for: those of weight that are not over, or if all are, those of weight.

    Args:
        weights: by deployment, in the order of the routes.
        over: those that answer nothing for good.
    """
    named = [name for name, weight in weights.items() if weight]
    return [name for name in named if name not in over] or named


# Commands


def apply(
    intent: EndpointIntent, known: KnownEndpoint, ids: Ids, now: float, *, actor: str, create_only: bool = False
) -> Outcome:
    """Make the endpoint, or bind it anew; the same again changes nothing.

    Raises:
        InvalidSpec: a route names a deployment that is not there.
        Conflict: a deployment or a live run has the name; a route names a deployment that is being deleted; or it
            exists and `create_only`.
    """
    refuse_namesake(intent, known)
    row = known.endpoint
    if row is not None and create_only:
        raise Conflict(f"endpoint {_shown(row)} exists already", code="exists", target=_target(row))
    if row is not None and _same(row, intent):
        return Outcome(None, _answer(row, known, changed=False))
    _refuse_unknown(intent, known)
    named = {name: known.deployments[name] for name, _ in routes_of(intent.spec)}
    before = [] if row is None else routes_of(row.spec)
    gone = {n: d for n, _ in before if n not in named and (d := known.deployments.get(n)) is not None}
    draft = Draft((*(() if row is None else (row,)), *named.values(), *gone.values()), now, actor)
    made = _create(draft, intent, ids) if row is None else _change(draft, row, intent)
    was = {name for name, _ in before}
    for name, deployment in named.items():
        if name in was:
            draft.depends_on(deployment)
        else:
            draft.note(deployment, reason("deploy.bound", endpoint=intent.name, by=actor))
    for deployment in gone.values():
        draft.note(deployment, reason("deploy.unbound", endpoint=intent.name, by=actor))
    return Outcome(draft.decision().change, _answer(made, known, changed=True))


def bound_anew(known: KnownEndpoint, routes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The document of an endpoint that is there, with other routes; None: there is none to change."""
    return None if known.endpoint is None else {**known.endpoint.spec, "routes": [dict(r) for r in routes]}


def delete(row: Endpoint, deployments: Mapping[str, Deployment], now: float, *, actor: str) -> Outcome:
    """Take it away at once; requests in flight end where they are."""
    there = [d for name, _ in routes_of(row.spec) if (d := deployments.get(name)) is not None]
    draft = Draft((row, *there), now, actor)
    for deployment in there:
        draft.note(deployment, reason("deploy.unbound", endpoint=row.name, by=actor))
    draft.write(Remove("Endpoint", row.uid, row.version, reason("endpoint.deleted", by=actor)))
    return Outcome(draft.decision().change, {"endpoint": _named(row), "deleted": True})


# What an endpoint means for a deployment


def naming(deployment: str, endpoints: Iterable[Endpoint]) -> list[tuple[Endpoint, int]]:
    """The endpoints with a route to it, and the weight that each gives it, by name."""
    found = [(row, weight) for row in endpoints for name, weight in routes_of(row.spec) if name == deployment]
    return sorted(found, key=lambda pair: pair[0].name)


@dataclass(frozen=True, slots=True)
class Naming:
    """An endpoint that names a deployment.

    Args:
        weight: that it gives it.
        alone: nothing else answers for it, so that nothing would once the deployment is gone.
    """

    endpoint: Endpoint
    weight: int
    alone: bool


def namings(
    deployment: Deployment, endpoints: Iterable[Endpoint], deployments: Mapping[str, Deployment]
) -> list[Naming]:
    """The endpoints that name a deployment, by name.

    Args:
        deployments: those that the same endpoints name, by name.
    """
    found = naming(deployment.name, endpoints)
    return [Naming(row, weight, weight > 0 and _alone(deployment, row, deployments)) for row, weight in found]


def _alone(deployment: Deployment, row: Endpoint, deployments: Mapping[str, Deployment]) -> bool:
    """One that answers nothing itself takes nothing away."""
    if passed_over(deployment) is not None:
        return False
    others = (name for name, weight in routes_of(row.spec) if weight and name != deployment.name)
    return all(passed_over(deployments.get(name)) is not None for name in others)


def refuse_to_strand(deployment: Deployment, held: Iterable[Naming]) -> None:
    """A deployment may not be deleted from under an endpoint that nothing else answers for.

    Raises:
        Conflict: there is one.
    """
    alone = [one.endpoint.name for one in held if one.alone]
    if not alone:
        return
    raise Conflict(
        f"nothing but deployment {deployment.namespace}/{deployment.name} answers for the endpoint"
        f"{'s' if len(alone) > 1 else ''} {', '.join(alone)}",
        code="endpoint_bound",
        remedy=f"bind {alone[0]} to another deployment first (moor endpoint bind {alone[0]} NAME), or delete it "
        f"(moor endpoint delete {alone[0]})",
        target=f"Deployment {deployment.namespace}/{deployment.name}",
    )


def with_endpoints(outcome: Outcome, held: Sequence[Naming]) -> Outcome:
    """The delete of a deployment, carried out only while the endpoints that name it are as they were read."""
    if outcome.change is None or not held:
        return outcome
    kept = tuple(Update("Endpoint", one.endpoint.uid, one.endpoint.version) for one in held)
    change = replace(outcome.change, writes=(*outcome.change.writes, *kept))
    said = [f"endpoint {one.endpoint.name} names it: {goes_on(one)}" for one in held]
    return Outcome(change, {**outcome.answer, "warnings": said})


def goes_on(one: Naming) -> str:
    """What becomes of an endpoint's requests once a deployment that it names is deleted."""
    if one.alone:
        return "nothing else answers for it, so the delete is refused"
    return "the others get its share of the requests" if one.weight else "it got no share of the requests"


def refuse_name_of_endpoint(row: Endpoint | None, name: str) -> None:
    """A deployment or run may not take the name of an endpoint.

    Raises:
        Conflict: there is one.
    """
    if row is not None:
        raise Conflict(
            f"endpoint {_shown(row)} has the name {name} already",
            code="name_taken",
            remedy="deployments, runs and endpoints share their names: choose another one, or delete the endpoint "
            f"first (moor endpoint delete {name})",
            target=_target(row),
        )


# Pieces


def refuse_namesake(intent: EndpointIntent, known: KnownEndpoint) -> None:
    """An endpoint may not take the name of a deployment or of a live run.

    Raises:
        Conflict: one has it.
    """
    namesake = known.deployments.get(intent.name) or known.run
    if known.endpoint is not None or namesake is None:
        return
    shown = f"{namesake.namespace}/{namesake.name}"
    said = "has an endpoint of its own by that name" if isinstance(namesake, Deployment) else "has that name already"
    raise Conflict(
        f"{namesake.kind.lower()} {shown} {said}",
        code="name_taken",
        remedy="deployments, runs and endpoints share their names: choose another one for the endpoint",
        target=f"{namesake.kind} {shown}",
    )


def _refuse_unknown(intent: EndpointIntent, known: KnownEndpoint) -> None:
    errors = unknown(intent, known)
    if errors:
        where = f"endpoint {intent.namespace}/{intent.name}"
        raise InvalidSpec(
            f"cannot bind {where}: {'; '.join(str(e['message']) for e in errors)}",
            errors=errors,
            code="unknown_deployment",
            remedy="apply the deployment first, or name one that is there (moor ls)",
            target=f"Endpoint {intent.namespace}/{intent.name}",
        )
    for name, _ in routes_of(intent.spec):
        if known.deployments[name].deleting:
            raise Conflict(
                f"deployment {intent.namespace}/{name} is being deleted",
                code="deleting",
                remedy=f"leave it out, or wait until it is gone (moor wait {name} --for stopped) and apply it again",
                target=f"Deployment {intent.namespace}/{name}",
            )


def unknown(intent: EndpointIntent, known: KnownEndpoint) -> list[dict[str, Any]]:
    """Routes to deployments that are not there: {path, message, nearest?}."""
    errors: list[dict[str, Any]] = []
    for at, (name, _) in enumerate(routes_of(intent.spec)):
        if name in known.deployments:
            continue
        near = difflib.get_close_matches(name, known.deployments, n=1, cutoff=0.6)
        hint = f" (did you mean {near[0]}?)" if near else ""
        error = {"path": f"routes[{at}].deployment", "message": f"there is no deployment {name}{hint}"}
        errors.append({**error, "nearest": near[0]} if near else error)
    return errors


def _same(row: Endpoint, intent: EndpointIntent) -> bool:
    return bool(_plain(row.spec) == _plain(intent.spec))


def _create(draft: Draft, intent: EndpointIntent, ids: Ids) -> Endpoint:
    limits = limits_text(intent.spec.get("limits") or {})
    why = reason(
        "endpoint.made",
        routes=routes_text(routes_of(intent.spec)),
        limits=None if limits == "none" else limits,
        by=draft.actor,
    )
    row = Endpoint(
        uid=ids.new("Endpoint"),
        namespace=intent.namespace,
        name=intent.name,
        labels=dict(intent.spec.get("labels") or {}),
        annotations=dict(intent.spec.get("annotations") or {}),
        spec=intent.spec,
    )
    return draft.create(row, why)


def _change(draft: Draft, row: Endpoint, intent: EndpointIntent) -> Endpoint:
    """Its new document, with a line of history for each part that changed; the last one is its reason."""
    spec, by = intent.spec, draft.actor
    said = []
    changed = [word for word in LIVE_FIELDS if dict(getattr(row, word)) != dict(spec.get(word) or {})]
    if changed:
        said.append(reason("endpoint.changed", fields=", ".join(changed), by=by))
    if _plain(row.spec.get("limits")) != _plain(spec.get("limits")):
        said.append(reason("endpoint.limited", limits=limits_text(spec.get("limits") or {}), by=by))
    before, after = routes_of(row.spec), routes_of(spec)
    if before != after:
        said.append(reason("endpoint.bound", routes=routes_text(after), before=routes_text(before), by=by))
    for why in said[:-1]:
        draft.note(row, why)
    draft.set(row, spec=spec, **{word: dict(spec.get(word) or {}) for word in LIVE_FIELDS})
    return draft.because(row, said[-1]) if said else draft.row(row)


def _answer(row: Endpoint, known: KnownEndpoint, *, changed: bool) -> dict[str, Any]:
    warnings = [
        f"deployment {name} answers nothing: {why}; {_left_to(row, known)}"
        for name, weight in routes_of(row.spec)
        if weight and (why := passed_over(known.deployments.get(name))) is not None
    ]
    return {"endpoint": _named(row), "changed": changed, "warnings": warnings}


def _left_to(row: Endpoint, known: KnownEndpoint) -> str:
    over = [passed_over(known.deployments.get(name)) for name, weight in routes_of(row.spec) if weight]
    return "its share goes to the others" if None in over else "and so does every other one"


def _named(row: Endpoint) -> dict[str, Any]:
    return {"kind": row.kind, "id": row.uid, "name": row.name, "namespace": row.namespace}


def _plain(value: Any) -> Any:
    """Stored values and those of a document alike, to compare them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _shown(row: Endpoint) -> str:
    return f"{row.namespace}/{row.name}"


def _target(row: Endpoint) -> str:
    return f"Endpoint {_shown(row)}"

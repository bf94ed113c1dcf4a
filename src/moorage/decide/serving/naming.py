"""By which names endpoints are asked for: `namespace/name` always, a bare name where it is clear.

Here: the tables of names, made once a routing table. Not here: looking up (`routing`, the only caller).

A bare name means the endpoint in the namespace `default` if that has one, else the only one anywhere; a deployment's
own name goes before an alias, and a deployment's own endpoint before one that people made.
"""

from collections.abc import Iterable

from moorage.decide.serving.binding import BindingState
from moorage.decide.serving.routes import DEFAULT_NAMESPACE, EndpointState


def of_endpoints(endpoints: Iterable[EndpointState]) -> dict[str, EndpointState]:
    """Names to deployments' own endpoints."""
    listed = [state for state in endpoints if state.listed]
    names: dict[str, EndpointState] = {}
    bare: dict[str, list[EndpointState]] = {}
    for state in listed:
        for name in (state.route.name, *state.route.aliases):
            names.setdefault(f"{state.route.namespace}/{name}", state)
            bare.setdefault(name, []).append(state)
    for name, states in bare.items():
        own = [s for s in states if s.route.namespace == DEFAULT_NAMESPACE] or states
        exact = [s for s in own if s.route.name == name] or own
        if len(exact) == 1:
            names.setdefault(name, exact[0])
    for state in listed:
        names[f"{state.route.namespace}/{state.route.name}"] = state
    return names


def of_bindings(bindings: Iterable[BindingState], taken: dict[str, EndpointState]) -> dict[str, BindingState]:
    """Names to endpoints that people made, save those that are taken."""
    names: dict[str, BindingState] = {}
    bare: dict[str, list[BindingState]] = {}
    for state in bindings:
        names[f"{state.spec.namespace}/{state.spec.name}"] = state
        bare.setdefault(state.spec.name, []).append(state)
    for name, states in bare.items():
        own = [s for s in states if s.spec.namespace == DEFAULT_NAMESPACE] or states
        if len(own) == 1:
            names.setdefault(name, own[0])
    return {name: state for name, state in names.items() if name not in taken}

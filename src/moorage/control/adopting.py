"""Adopting a server that somebody else started: the wish is checked, its machine asked, then it becomes a deployment.

What comes of it is decided in `decide/serving/adopted`. Nothing is written before the machine has told exactly what is
to be ours to end. Called by the API.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from moorage.control.admit_runs import RunAdmission
from moorage.control.carrying import Answer, Carrier
from moorage.control.claims import ClaimAsking
from moorage.control.fleet import FleetAdmission
from moorage.decide.decision import Ids, Outcome
from moorage.decide.serving import adopted
from moorage.decide.serving.adopted import Found
from moorage.domain.errors import Conflict, InvalidSpec, NotFound, Unavailable
from moorage.domain.nouns import Deployment
from moorage.ports import Clock, Store
from moorage.wire.claim import ClaimAnswer, ClaimRequest

IDENTIFY_S = 15.0


class Adoption:
    """Adopts.

    Args:
        store, clock, ids: outside.
        claims: to machines.
        new_id: unguessable ids.
    """

    def __init__(self, store: Store, clock: Clock, ids: Ids, *, claims: ClaimAsking, new_id: Callable[[], str]) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._claims = claims
        self._new_id = new_id
        self._carry = Carrier(store)
        self._runs = RunAdmission(store, clock, ids, self._carry)
        self._fleet = FleetAdmission(store, clock, self._carry)

    async def __call__(
        self,
        ns: str,
        name: str,
        *,
        url: str,
        mode: str,
        resource: str | None,
        spec: Mapping[str, Any],
        actor: str,
        key: str | None,
    ) -> Answer:
        """Make the deployment: {deployment, operation, changed}.

        Args:
            url: `http://HOST:PORT` of the server.
            mode: observe, traffic or lifecycle.
            resource: `MACHINE/pid:N` or `MACHINE/container:ID`, with lifecycle and only then.
            spec: document of the deployment: name, model, gateway.
            key: idempotency key.

        Raises:
            InvalidSpec: the address or the resource is not one.
            NotFound: there is no such machine, or nothing there is what `resource` names.
            Conflict: the name is taken, or the resource is not what answers at the address.
            Unavailable: the machine does not answer.
        """
        host, port = address_of(url)
        upstream: dict[str, Any] = {"url": url.rstrip("/"), "host": host, "port": port, "mode": mode}
        if (mode == "lifecycle") != (resource is not None):
            raise _resource_wanted(mode)
        if resource is not None:
            upstream |= await self._claimed(resource, port)
        intent = {"adopt": name, "url": upstream["url"], "mode": mode, "resource": resource}
        found = Found(ns, name, spec, upstream)

        async def decide() -> Outcome:
            await self._runs.refuse_name(ns, name)
            known = next(iter(await self._store.find(Deployment, namespace=ns, name=name)), None)
            return adopted.adopt(found, known, self._ids, self._clock.now(), actor=actor)

        return await self._carry(ns, key, intent, decide)

    async def _claimed(self, resource: str, port: int) -> dict[str, Any]:
        """What the machine says that it is, with the proof by which it will be ended."""
        machine_name, slash, what = resource.partition("/")
        if not slash or not what.startswith(("pid:", "container:")) or what.endswith(":"):
            raise InvalidSpec(
                f"{resource} is not a resource",
                remedy="name it MACHINE/pid:N or MACHINE/container:ID, such as box-1/pid:4711",
            )
        machine = await self._fleet.row(machine_name)
        request = ClaimRequest(id=self._new_id(), resource=what, port=port)
        answer = await self._claims.ask(machine.uid, request, IDENTIFY_S)
        if answer is None:
            raise Unavailable(
                f"machine {machine_name} does not answer, so nothing was adopted",
                remedy="see what it does (`moor machines get`), or adopt with --mode traffic",
            )
        _check(answer, resource, port)
        return {
            "machine": machine.uid,
            "machine_name": machine_name,
            "resource": what,
            "proof": answer.proof,
            "command": answer.command,
        }


def address_of(url: str) -> tuple[str, int]:
    """Host and port of an upstream.

    Raises:
        InvalidSpec: it is no address that gateways can use.
    """
    parts = urlsplit(url)
    remedy = "give it as http://HOST:PORT, as machines with a gateway reach it"
    try:
        port = parts.port
    except ValueError as cause:
        raise InvalidSpec(f"{url} has no port number: {cause}", remedy=remedy) from None
    if parts.scheme != "http" or not parts.hostname:
        why = "gateways speak plain HTTP to servers" if parts.scheme == "https" else "it is no http address"
        raise InvalidSpec(f"{url} cannot be adopted: {why}", remedy=remedy)
    if parts.path not in ("", "/") or parts.query or parts.username:
        raise InvalidSpec(f"{url} cannot be adopted: a path, query or user in it would be lost", remedy=remedy)
    return parts.hostname, port or 80


def _resource_wanted(mode: str) -> InvalidSpec:
    if mode == "lifecycle":
        return InvalidSpec(
            "lifecycle needs to know exactly what it may end",
            remedy="name it with --resource MACHINE/pid:N or MACHINE/container:ID, or adopt with --mode traffic, "
            "which never ends it",
        )
    return InvalidSpec(
        f"--resource is for --mode lifecycle; {mode} never ends anything", remedy="leave it out, or change the mode"
    )


def _check(answer: ClaimAnswer, resource: str, port: int) -> None:
    """See that it is what was meant.

    Raises:
        NotFound, Conflict: it is not.
    """
    if answer.error:
        raise Conflict(
            f"{resource}: {answer.error}", code="not_adoptable", remedy="name another one, or use --mode traffic"
        )
    if not answer.found:
        raise NotFound(
            f"nothing that runs is {resource}", remedy="look for it on that machine (ps, podman ps, docker ps)"
        )
    if answer.ours:
        raise Conflict(
            f"{resource} was started by Moorage already: {answer.command}",
            code="not_adoptable",
            remedy="`moor ls` shows what it belongs to",
        )
    if answer.holds_port is False:
        raise Conflict(
            f"{resource} ({answer.command}) does not listen on port {port}",
            code="not_adoptable",
            remedy="name the process that does (ss -ltnp shows it)",
        )

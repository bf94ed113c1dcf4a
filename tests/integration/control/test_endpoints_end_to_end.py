"""Endpoints over a real database: bound, published, confirmed, kept through a change of leader, and never stranded."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage.app.server import RandomIds
from moorage.control.endpoints import Endpoints
from moorage.control.paging import Page
from moorage.control.reading import Reader
from moorage.decide.endpoints import routes_of
from moorage.domain.errors import Conflict, InvalidSpec, NotFound
from moorage.domain.nouns import Deployment, Endpoint
from moorage.wire.routing import Binding, RoutingTable
from tests.integration.control.control_plane import Agent, Gateway, HandClock, Plane, until


def endpoints_of(plane: Plane) -> Endpoints:
    reader = Reader(plane.store, plane.clock, "http://gateway")
    return Endpoints(plane.store, plane.clock, RandomIds(), reader=reader, spread=plane.publisher.spread)


def document(*routes: tuple[str, int], name: str = "chat", **more: Any) -> dict[str, Any]:
    named = [{"deployment": deployment, "weight": weight} for deployment, weight in routes]
    return {"kind": "Endpoint", "name": name, "routes": named, **more}


async def apply(plane: Plane, *routes: tuple[str, int], name: str = "chat", **more: Any) -> dict[str, Any]:
    create_only, key = more.pop("create_only", False), more.pop("key", None)
    given = document(*routes, name=name, **more)
    return await endpoints_of(plane).apply("default", name, given, actor="person:p", key=key, create_only=create_only)


async def shown(plane: Plane, name: str = "chat") -> dict[str, Any]:
    return await endpoints_of(plane).get("default", name)


async def bound(plane: Plane, *routes: tuple[str, int], name: str = "chat") -> tuple[RoutingTable, Binding]:
    """The first table in which the endpoint is bound so."""

    async def ask() -> tuple[RoutingTable, Binding] | None:
        table = await plane.publisher.table(None, -1, 1.0)
        found = [b for b in table.bindings if b.name == name] if table else []
        same = found and [(r.deployment, r.weight) for r in found[0].routes] == list(routes)
        return (table, found[0]) if table is not None and same else None

    return await until(ask, f"{name} is bound to {routes}")


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    plane = await Plane.open(tmp_path, HandClock())
    await plane.apply("gemma")
    await plane.apply("llama")
    yield plane
    await plane.die()


async def test_a_binding_is_published_at_once_and_says_when_every_gateway_has_it(plane: Plane) -> None:
    first, second = Gateway(plane, "gw-1"), Gateway(plane, "gw-2")
    before = await plane.publisher.table(None, -1, 0.0)
    await first.report(before)
    await second.report(before)
    waiting = asyncio.create_task(plane.publisher.table(before.incarnation, before.number, 60.0))  # type: ignore[union-attr]
    answer = await apply(plane, ("gemma", 100), limits={"in_flight": 4})
    assert answer["changed"] is True
    assert await waiting is not None, "a long-poll hears of it without being asked again"
    table, binding = await bound(plane, ("gemma", 100))
    assert (binding.limits.in_flight, binding.limits.requests_per_minute) == (4, None)

    seen = await shown(plane)
    assert seen["generation"] is not None
    assert [g["generation"] >= seen["generation"] for g in seen["gateways"]] == [False, False]
    await first.report(table)
    assert [g["generation"] >= seen["generation"] for g in (await shown(plane))["gateways"]] == [True, False]
    await second.report(table)
    assert all(g["generation"] >= seen["generation"] for g in (await shown(plane))["gateways"])

    again = await apply(plane, ("gemma", 100), limits={"in_flight": 4})
    assert (again["changed"], (await shown(plane))["generation"]) == (False, seen["generation"])


async def test_the_generation_is_not_told_before_the_newest_binding_is_published(plane: Plane, tmp_path: Path) -> None:
    await apply(plane, ("gemma", 100))
    await bound(plane, ("gemma", 100))
    standby = await Plane.open(tmp_path, plane.clock, "home:b", lead=False)
    assert (await shown(standby))["generation"] is None, "this one routes nothing"
    await standby.die()
    row = (await plane.rows(Endpoint))[0]
    assert plane.publisher.spread(row.uid).version == row.version
    await endpoints_of(plane).bind("default", "chat", [{"deployment": "llama"}], actor="person:p", key=None)
    await bound(plane, ("llama", 100))
    newest = (await plane.rows(Endpoint))[0]
    assert newest.version > row.version
    assert plane.publisher.spread(row.uid).version == newest.version


async def test_bindings_outlive_their_control_plane(plane: Plane, tmp_path: Path) -> None:
    await apply(plane, ("gemma", 90), ("llama", 10))
    before, _ = await bound(plane, ("gemma", 90), ("llama", 10))
    await plane.die()
    after = await Plane.open(tmp_path, plane.clock, "home:b", lead=False)
    after.clock.advance(60.0)
    after.lead()
    try:
        table, _ = await bound(after, ("gemma", 90), ("llama", 10))
        assert table.number > before.number
        await endpoints_of(after).delete("default", "chat", actor="person:p", key=None)

        async def gone() -> bool:
            found = await after.publisher.table(None, -1, 1.0)
            return found is not None and not found.bindings

        await until(gone, "the binding is taken back")
    finally:
        await after.die()


async def test_a_route_to_nothing_is_refused_with_the_nearest_name(plane: Plane) -> None:
    with pytest.raises(InvalidSpec) as refused:
        await apply(plane, ("gemma", 1), ("lama", 1))
    assert refused.value.errors == [
        {
            "path": "routes[1].deployment",
            "message": "there is no deployment lama (did you mean llama?)",
            "nearest": "llama",
        }
    ]
    assert refused.value.remedy
    assert await plane.rows(Endpoint) == []
    with pytest.raises(InvalidSpec, match="more than once"):
        await apply(plane, ("gemma", 1), ("gemma", 2))
    with pytest.raises(InvalidSpec, match="every weight is 0"):
        await apply(plane, ("gemma", 0))


async def test_a_name_means_one_thing(plane: Plane) -> None:
    with pytest.raises(Conflict, match="an endpoint of its own by that name") as own:
        await apply(plane, ("llama", 1), name="gemma")
    assert own.value.code == "name_taken"
    run = {"kind": "Run", "name": "job", "groups": [{"name": "w", "runtime": {"command": ["true"]}}]}
    submit: dict[str, Any] = {"actor": "person:p", "key": None, "create_only": False}
    await plane.commands.runs.apply("default", "job", run, **submit)
    with pytest.raises(Conflict, match="run default/job has that name"):
        await apply(plane, ("llama", 1), name="job")

    await apply(plane, ("llama", 1))
    with pytest.raises(Conflict, match="endpoint default/chat has the name chat already"):
        await plane.apply("chat")
    with pytest.raises(Conflict, match="endpoint default/chat has the name chat already"):
        await plane.commands.runs.apply("default", "chat", {**run, "name": "chat"}, **submit)
    with pytest.raises(Conflict, match="exists already"):
        await apply(plane, ("llama", 1), create_only=True)


async def test_of_two_that_take_a_name_at_once_one_gets_it(plane: Plane) -> None:
    got = await asyncio.gather(plane.apply("chat"), apply(plane, ("gemma", 1)), return_exceptions=True)
    refused = [one for one in got if isinstance(one, Conflict)]
    assert (len(refused), refused[0].code) == (1, "name_taken")
    named = [*await plane.rows(Endpoint, name="chat"), *await plane.rows(Deployment, name="chat")]
    assert len(named) == 1


async def test_a_deployment_is_not_deleted_from_under_an_endpoint(plane: Plane) -> None:
    await apply(plane, ("gemma", 100))
    told = await plane.commands.delete_dry_run("default", "gemma")
    assert {
        "kind": "Endpoint",
        "name": "chat",
        "what_happens": "nothing else answers for it, so the delete is refused",
    } in told["refers"]
    with pytest.raises(Conflict, match="answers for the endpoint chat") as refused:
        await plane.commands.delete_deployment("default", "gemma", actor="person:p", key=None)
    assert refused.value.code == "endpoint_bound"
    assert "moor endpoint bind chat NAME" in str(refused.value.remedy)

    await apply(plane, ("gemma", 50), ("llama", 50))
    await bound(plane, ("gemma", 50), ("llama", 50))
    answer = await plane.commands.delete_deployment("default", "gemma", actor="person:p", key=None)
    assert answer["warnings"] == ["endpoint chat names it: the others get its share of the requests"]
    await bound(plane, ("llama", 50))
    (gemma, llama) = (await shown(plane))["routes"]
    assert (gemma["share"], llama["share"]) == (0.0, 100.0)
    assert gemma["passed_over"]
    with pytest.raises(Conflict, match="answers for the endpoint chat"):
        await plane.commands.delete_deployment("default", "llama", actor="person:p", key=None)


async def test_a_delete_and_a_bind_at_once_never_leave_an_endpoint_with_nothing(plane: Plane) -> None:
    for round_ in range(8):
        name = f"model-{round_}"
        await plane.apply(name)
        got = await asyncio.gather(
            plane.commands.delete_deployment("default", name, actor="person:p", key=None),
            apply(plane, (name, 100), name=f"chat-{round_}"),
            return_exceptions=True,
        )
        assert sum(isinstance(one, Conflict | InvalidSpec) for one in got) == 1, got
        (row,) = await plane.rows(Deployment, name=name)
        assert row.deleting is not bool(await plane.rows(Endpoint, name=f"chat-{round_}"))


async def test_an_own_endpoint_is_shown_and_goes_only_with_its_deployment(plane: Plane) -> None:
    await apply(plane, ("gemma", 100), labels={"team": "search"})
    own = await shown(plane, "gemma")
    assert (own["kind"], own["own"], own["routes"][0]["deployment"]) == ("Endpoint", True, "gemma")
    with pytest.raises(Conflict, match="of its own"):
        await endpoints_of(plane).delete("default", "gemma", actor="person:p", key=None)
    made = await endpoints_of(plane).listed("default", Page())
    everything = await endpoints_of(plane).listed("default", Page(), own=True)
    assert [e["name"] for e in made["items"]] == ["chat"]
    assert [(e["name"], e["own"]) for e in everything["items"]] == [("chat", False), ("gemma", True), ("llama", True)]
    first = await endpoints_of(plane).listed("default", Page(limit=2), own=True)
    rest = await endpoints_of(plane).listed("default", Page(limit=2, after=first["next"]), own=True)
    assert {e["name"] for e in (*first["items"], *rest["items"])} == {"chat", "gemma", "llama"}
    (gemma,) = (await Reader(plane.store, plane.clock, "http://g").deployments("default", Page()))["items"][:1]
    assert [(e["name"], e["own"], e["weight"]) for e in gemma["endpoints"]] == [
        ("gemma", True, None),
        ("chat", False, 100),
    ]


async def test_history_tells_each_binding_and_a_deleted_endpoint_keeps_it(plane: Plane) -> None:
    await apply(plane, ("gemma", 100), key="k")
    assert (await apply(plane, ("gemma", 100), key="k"))["changed"] is True, "the same key has its first answer"
    await apply(plane, ("llama", 100), limits={"requests_per_minute": 9})
    await endpoints_of(plane).delete("default", "chat", actor="person:p", key=None)
    with pytest.raises(NotFound):
        await shown(plane)
    reader = Reader(plane.store, plane.clock, "http://g")
    told = (await reader.history(Endpoint, "default", "chat"))["items"]
    assert [t["reason"]["message"] for t in told] == [
        "Made: gemma",
        "Bound to llama, before: gemma",
        "Limits of each key: 9 requests_per_minute",
        "Deleted",
    ]
    (stone,) = await reader.tombstones(Endpoint, "default", "chat")
    assert stone["actor"] == "person:p"
    of_gemma = (await reader.history(Deployment, "default", "gemma"))["items"]
    codes = [t["reason"]["code"] for t in of_gemma]
    assert [c for c in codes if c.endswith("bound")] == ["deploy.bound", "deploy.unbound"]


async def test_a_plan_tells_what_an_apply_would_do_also_before_its_deployments_are_there(plane: Plane) -> None:
    endpoints = endpoints_of(plane)
    told = await endpoints.plan("default", "chat", document(("gemma", 3), ("later", 1)))
    assert [a["kind"] for a in told["actions"]] == ["create", "publish"]
    assert told["warnings"][0] == "there is no deployment later; an apply is refused until there is one"
    assert await plane.rows(Endpoint) == []
    await apply(plane, ("gemma", 100))
    same = await endpoints.plan("default", "chat", document(("gemma", 100)))
    assert (same["changes"], same["actions"]) == ([], [])
    other = await endpoints.plan("default", "chat", document(("llama", 100), limits={"in_flight": 1}))
    assert [a["kind"] for a in other["actions"]] == ["bind", "limit", "publish"]


async def test_why_says_which_deployments_answer(plane: Plane) -> None:
    await apply(plane, ("gemma", 75), ("llama", 25))
    assert (await endpoints_of(plane).why("default", "chat"))["state"] == "starting"
    agent = await Agent(plane).join()
    served = await agent.serve()
    name = (
        "gemma"
        if (await plane.rows(Deployment, uid=(await _deployment_of(plane, served.worker))))[0].name == "gemma"
        else "llama"
    )
    await plane.table("serve", name)
    why = await endpoints_of(plane).why("default", "chat")
    assert why["state"] == "partly"
    assert [r["deployment"] for r in why["routes"] if r["serving"]] == [name]


async def _deployment_of(plane: Plane, worker: str) -> str:
    from moorage.domain.nouns import Worker

    (row,) = await plane.rows(Worker, uid=worker)
    return str(row.deployment)


async def test_a_sleeping_deployment_behind_an_endpoint_is_woken_by_what_waits_for_it(plane: Plane) -> None:
    await plane.apply("asleep", replicas={"min": 0, "initial": 0})
    await apply(plane, ("asleep", 100))
    table, _ = await bound(plane, ("asleep", 100))
    assert next(e.mode for e in table.endpoints if e.name == "asleep") == "asleep"
    await Gateway(plane).report(table, endpoint="asleep", held=1)
    await plane.phase_is("created", "asleep")
    assert routes_of((await plane.rows(Endpoint))[0].spec) == [("asleep", 100)]

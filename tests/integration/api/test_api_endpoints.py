"""Endpoints that people made, over HTTP: made once, seen, bound anew, refused with a reason, taken away."""

from typing import Any

from api_world import World

from moorage.domain.nouns import Deployment

BASE = "/api/v1/namespaces/default/endpoints"


async def make(world: World, *names: str) -> None:
    for name in names:
        await world.rows.create(Deployment(uid=f"dep-{name}", name=name, spec={"replicas": {"min": 1}}))


def chat(*routes: tuple[str, int]) -> dict[str, Any]:
    named = [{"deployment": name, "weight": weight} for name, weight in routes]
    return {"kind": "Endpoint", "name": "chat", "routes": named}


async def test_it_is_made_seen_bound_anew_and_taken_away(world: World) -> None:
    await make(world, "gemma", "llama")
    first = await world.admin.ask("PUT", f"{BASE}/chat", body=chat(("gemma", 3), ("llama", 1)))
    assert (first.status, first.json["changed"], first.json["warnings"]) == (200, True, [])
    again = await world.admin.ask("PUT", f"{BASE}/chat", body=chat(("gemma", 3), ("llama", 1)))
    assert again.json["changed"] is False
    shown = (await world.admin.get(f"{BASE}/chat")).json
    assert [(r["deployment"], r["share"]) for r in shown["routes"]] == [("gemma", 75.0), ("llama", 25.0)]
    assert (shown["own"], shown["generation"], shown["gateways"]) == (False, None, []), "this API routes nothing"
    assert (shown["url"], shown["model"]) == ("http://127.0.0.1:7421/v1", "chat")
    bound = await world.admin.ask("POST", f"{BASE}/chat/bind", body={"routes": [{"deployment": "llama"}]})
    assert bound.json["changed"] is True
    assert (await world.admin.get(f"{BASE}/chat")).json["spec"]["limits"]["in_flight"] is None
    why = (await world.admin.get(f"{BASE}/chat/why")).json
    assert (why["kind"], [r["deployment"] for r in why["routes"]]) == ("Why", ["llama"])
    gone = await world.admin.ask("DELETE", f"{BASE}/chat")
    assert gone.json == {"endpoint": first.json["endpoint"], "deleted": True}
    assert (await world.admin.get(f"{BASE}/chat")).status == 404
    assert (await world.admin.get(f"{BASE}/chat?deleted=true")).json["reason"]["code"] == "endpoint.deleted"
    codes = [c["reason"]["code"] for c in (await world.admin.get(f"{BASE}/chat/history")).json["items"]]
    assert codes == ["endpoint.made", "endpoint.bound", "endpoint.deleted"]


async def test_what_is_wrong_is_refused_with_its_place_and_what_to_do(world: World) -> None:
    await make(world, "gemma")
    unknown = await world.admin.ask("PUT", f"{BASE}/chat", body=chat(("gema", 1)))
    assert (unknown.status, unknown.json["code"]) == (422, "unknown_deployment")
    assert unknown.json["errors"][0]["nearest"] == "gemma"
    taken = await world.admin.ask("PUT", f"{BASE}/gemma", body={**chat(("gemma", 1)), "name": "gemma"})
    assert (taken.status, taken.json["code"]) == (409, "name_taken")
    own = await world.admin.ask("DELETE", f"{BASE}/gemma")
    assert (own.status, own.json["code"]) == (409, "endpoint_own")
    none = await world.admin.ask("POST", f"{BASE}/chat/bind", body={"routes": []})
    assert none.status == 422
    listed = (await world.admin.get(f"{BASE}?own=true")).json["items"]
    assert [(e["name"], e["own"]) for e in listed] == [("gemma", True)]

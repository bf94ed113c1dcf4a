"""Clients' keys through real sockets: who is let in, what a model server sees of a key, which models are listed."""

import asyncio
import hashlib
import json
import stat
from pathlib import Path

import pytest
from gateway_rig import ModelServer, Rig, Seen, get, post, reply, running_gateway, until

from moorage.decide.serving.binding import BindingSpec
from moorage.decide.serving.routes import Generation
from moorage.gateway import table as tables
from moorage.wire.routing import Access, EndpointRoute, KeyRule, NamespaceRule, RoutingTable

TEXT = "moor-key.k1.0123456789abcdefghijklmnopqrstuvwxyz"
BEARER = f"Authorization: Bearer {TEXT}\r\n"


def access(*endpoints: str, keys: str = "required", text: str = TEXT) -> Access:
    rule = KeyRule(
        uid="k1", name="ci", namespace="default", digest=hashlib.sha256(text.encode()).hexdigest(), endpoints=endpoints
    )
    return Access(number=1, keys=(rule,), namespaces=(NamespaceRule(namespace="default", keys=keys),))


def listed(body: bytes) -> list[str]:
    return [model["id"] for model in json.loads(body)["data"]]


async def test_a_key_opens_what_it_names_and_ends_at_the_gateway(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    rig.gateway.hub.keys.configure(access("m"))
    refused = await rig.ask(post())
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert not server.seen
    assert (await rig.ask(post(extra=BEARER))).status == 200
    assert TEXT.encode() not in server.seen[0].raw_head
    assert b"authorization" not in server.seen[0].raw_head.lower()
    rig.gateway.hub.keys.configure(access("other"))
    refused = await rig.ask(post(extra=BEARER))
    assert (refused.status, refused.error["code"]) == (403, "key_not_allowed")
    rig.gateway.hub.keys.configure(access("m", text="moor-key.k2.another"))  # the first is revoked
    refused = await rig.ask(post(extra=BEARER))
    assert (refused.status, refused.error["code"]) == (401, "invalid_api_key")
    assert TEXT not in json.dumps(refused.error)
    assert len(server.seen) == 1


async def test_a_foreign_credential_goes_on_where_no_key_is_asked_for(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    rig.gateway.hub.keys.configure(access("m", keys="optional"))
    assert (await rig.ask(post(extra="Authorization: Bearer sk-own\r\n"))).status == 200
    assert b"Bearer sk-own" in server.seen[0].raw_head


async def test_models_are_listed_to_those_who_may_use_them(rig: Rig, server: ModelServer) -> None:
    rig.serve(server)
    rig.gateway.hub.keys.configure(access("m"))
    assert listed((await rig.ask(get("/v1/models"))).body) == []
    assert (await rig.ask(get("/v1/models/m"))).status == 404
    assert listed((await rig.ask(get("/v1/models", BEARER))).body) == ["m"]
    assert (await rig.ask(get("/v1/models/m", BEARER))).status == 200
    rig.gateway.hub.keys.configure(access("other"))
    assert listed((await rig.ask(get("/v1/models", BEARER))).body) == []
    rig.gateway.hub.keys.configure(access("m", text="moor-key.k2.another"))
    assert (await rig.ask(get("/v1/models", BEARER))).status == 401


async def test_a_gateway_that_starts_alone_knows_the_keys_and_keeps_them_to_itself(
    tmp_path: Path, server: ModelServer
) -> None:
    spec = server.target()
    target = {"replica": "r-1", "revision": "rev-1", "host": spec.host, "port": spec.port}
    route = EndpointRoute(name="m", deployment="d", mode="serve", targets=(target,))  # type: ignore[arg-type]
    tables.save(tmp_path, RoutingTable(incarnation="s", number=1, endpoints=(route,), access=access("m")))
    for file in tmp_path.iterdir():
        if file.stat().st_size:
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    async with running_gateway(tmp_path) as rig:
        assert (await rig.ask(post())).status == 401
        assert (await rig.ask(post(extra=BEARER))).status == 200


@pytest.mark.parametrize("name", ["x-api-key", "X-Api-Key"])
async def test_a_key_may_come_in_the_other_usual_header(rig: Rig, server: ModelServer, name: str) -> None:
    rig.serve(server)
    rig.gateway.hub.keys.configure(access("m"))
    assert (await rig.ask(post(extra=f"{name}: {TEXT}\r\n"))).status == 200
    assert TEXT.encode() not in server.seen[0].raw_head


async def with_usage(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    status = 500 if b'"fail"' in seen.body else 200
    writer.write(reply(b'{"usage":{"prompt_tokens":9,"completion_tokens":4}}', status))


async def test_what_is_used_with_a_key_is_summed_and_nothing_of_requests_without_one(rig: Rig) -> None:
    server = await ModelServer(with_usage).start()
    rig.serve(server)
    hub = rig.gateway.hub
    hub.keys.configure(access("m", keys="optional"))
    assert (await rig.ask(post())).status == 200
    assert (await rig.ask(post(extra=BEARER.replace(TEXT, "moor-key.k9.unknown")))).status == 401
    assert not hub.usage.due()
    for more in ({}, {"user": "fail"}):
        await rig.ask(post(extra=BEARER, **more))
    await until(hub.usage.due)
    [used] = hub.usage.tell(1)
    assert (used.key, used.namespace, used.endpoint) == ("k1", "default", "m")
    assert (used.requests, used.failed, used.refused, used.client_gone) == (2, 1, 0, 0)
    assert (used.prompt_tokens, used.completion_tokens, used.counted_tokens) == (18, 8, 0)
    await server.stop()


async def test_a_request_with_a_key_that_names_nothing_is_in_the_sums_under_no_name(
    rig: Rig, server: ModelServer
) -> None:
    hub = rig.gateway.hub
    hub.keys.configure(access("m", keys="optional"))
    bound = BindingSpec(uid="e1", name="m")
    rig.number += 1
    hub.apply(Generation("store-1", rig.number), (), (bound,))
    unknown = BEARER.replace(TEXT, "moor-key.k9.unknown")
    for _ in range(2):
        client = await rig.connect()
        for model, extra in (("nothing", unknown), ("nothing", ""), ("nothing", BEARER), ("elsewhere", BEARER)):
            client.send(post(model, extra=extra))
            assert (await client.answer()).status == 404
        client.send(post(extra=BEARER))  # nobody answers for it
        assert (await client.answer()).status == 503
        client.send(get("/v1/x", BEARER))
        assert (await client.answer()).status == 400
        client.close()
    used = {one.endpoint: one for one in hub.usage.tell(1)}
    assert {(one.key, one.namespace) for one in used.values()} == {("k1", "default")}
    assert {name: (one.requests, one.refused) for name, one in used.items()} == {"": (6, 6), "m": (2, 2)}
    assert used[""].prompt_tokens == used[""].completion_tokens == 0

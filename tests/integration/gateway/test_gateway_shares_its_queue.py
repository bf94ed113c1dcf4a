"""A full queue is shared between keys: who fills it gives way to who asks for little, through sockets."""

import asyncio
import hashlib
from collections import Counter

from gateway_rig import Client, ModelServer, Rig, Seen, post, until

from moorage.wire.routing import Access, KeyRule

PLACES = 6


def key_line(name: str) -> str:
    return f"Authorization: Bearer moor-key.{name}.secret\r\n"


def keys(*names: str) -> Access:
    def rule(name: str) -> KeyRule:
        digest = hashlib.sha256(f"moor-key.{name}.secret".encode()).hexdigest()
        return KeyRule(uid=name, name=name, namespace="default", digest=digest, endpoints=())

    return Access(number=1, keys=tuple(rule(name) for name in names), namespaces=())


class Gate:
    """A model server that answers only once it is opened, and keeps whom it answered."""

    def __init__(self, server: ModelServer) -> None:
        self.open = asyncio.Event()
        server.handler = self

    async def __call__(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.open.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(seen.body), seen.body))


async def wait_in_line(rig: Rig, key: str, number: int) -> Client:
    client = await rig.connect()
    client.send(post(text=f"{key}-{number}", extra=key_line(key)))
    return client


def held(rig: Rig) -> int:
    return sum(len(endpoint.waiting) for endpoint in rig.router.endpoints())


async def test_the_greediest_keys_newest_request_gives_its_place_and_is_told_when_to_come_again(
    rig: Rig, server: ModelServer
) -> None:
    gate = Gate(server)
    rig.serve(server, max_in_flight=1, max_queue=PLACES)
    rig.gateway.hub.keys.configure(keys("greedy", "modest", "third"))
    clients = [await wait_in_line(rig, "greedy", 0)]
    await until(lambda: server.seen)
    for number in range(1, PLACES + 1):
        clients.append(await wait_in_line(rig, "greedy", number))
        await until(lambda number=number: held(rig) == number)
    refused = await rig.ask(post(extra=key_line("greedy")))  # it takes nothing from itself
    assert (refused.status, refused.error["code"]) == (429, "queue_full")

    modest = [await wait_in_line(rig, "modest", 0)]
    answer = await clients.pop().answer()  # the newest of those that wait
    assert (answer.status, answer.error["code"]) == (429, "queue_full")
    assert "gave its place to another client" in answer.error["message"]
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["x-request-id"]
    for number in (1, 2):  # up to half of the queue, and no further
        modest.append(await wait_in_line(rig, "modest", number))
        assert (await clients.pop().answer()).status == 429
    refused = await rig.ask(post(extra=key_line("modest")))
    assert (refused.status, refused.error["code"]) == (429, "queue_full")
    assert "gave its place" not in refused.error["message"]
    assert held(rig) == PLACES

    gate.open.set()
    answers = [await client.answer() for client in (*clients, *modest)]
    assert {answer.status for answer in answers} == {200}
    served = Counter("greedy" if b"greedy" in seen.body else "modest" for seen in server.seen)
    assert served == {"greedy": 1 + PLACES // 2, "modest": PLACES // 2}
    turns = ["greedy" if b"greedy" in seen.body else "modest" for seen in server.seen[1:]]
    assert all(turns[n] != turns[n + 1] for n in range(len(turns) - 1)), "they take turns"
    for client in (*clients, *modest):
        client.close()


async def test_the_connection_of_one_that_gave_way_stays_good(rig: Rig, server: ModelServer) -> None:
    gate = Gate(server)
    rig.serve(server, max_in_flight=1, max_queue=2)
    rig.gateway.hub.keys.configure(keys("greedy", "modest"))
    first = await wait_in_line(rig, "greedy", 0)
    await until(lambda: server.seen)
    waiting = []
    for number in (1, 2):
        waiting.append(await wait_in_line(rig, "greedy", number))
        await until(lambda number=number: held(rig) == number)
    other = await wait_in_line(rig, "modest", 0)
    assert (await waiting[1].answer()).status == 429
    gate.open.set()
    await until(lambda: held(rig) == 0)
    waiting[1].send(post(text="again", extra=key_line("greedy")))
    assert (await waiting[1].answer()).status == 200
    for client in (first, other, *waiting):
        client.close()

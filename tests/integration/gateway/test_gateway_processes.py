"""A gateway of several processes: replaced under load, killed, counted as one."""

import asyncio
import functools
import os
import shutil
import signal
import socket
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from gateway_process import GatewayProcess, gateway_process, is_alive, keep_table, kill
from gateway_rig import DEADLINE_S, Client, ModelServer, Seen, get, post, until

from moorage.gateway import accelerators, handover

EVENTS = 12


async def wait_for_the_next_event() -> None:
    """The pace of a stream."""
    await asyncio.sleep(0.05)


async def wait_for_others() -> None:
    """Clients that left no core idle would only make the new processes late, not the switch to them harder."""
    await asyncio.sleep(0.005)


async def model(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Streams where it is asked to, and names the end."""
    if b'"stream": true' not in seen.body:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        return
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for number in range(EVENTS):
        event = b"data: %d\n\n" % number
        writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        await writer.drain()
        await wait_for_the_next_event()
    writer.write(b"0\r\n\r\n")


@dataclass
class Load:
    """Clients that ask again at once, or nearly, and what came of their requests."""

    gateway: GatewayProcess
    counts: Counter[str] = field(default_factory=Counter)
    over: bool = False

    async def closing(self) -> None:
        """A connection for each request."""
        while not self.over:
            client = await self.gateway.connect()
            client.send(post(extra="Connection: close\r\n"))
            answer = await client.answer()
            self.counts["closing" if (answer.status, answer.body) == (200, b"ok") else f"bad {answer}"] += 1
            client.close()
            await wait_for_others()

    async def keeping(self) -> None:
        """One connection for as long as the gateway lets it be."""
        while not self.over:
            client = await self.gateway.connect()
            alive = True
            while alive and not self.over:
                client.send(post())
                answer = await client.answer()
                self.counts["keeping" if (answer.status, answer.body) == (200, b"ok") else f"bad {answer}"] += 1
                alive = answer.headers.get("connection") != "close"
                await wait_for_others()
            self.counts["told to close"] += not alive
            client.close()

    async def streaming(self) -> None:
        while not self.over:
            client = await self.gateway.connect()
            client.send(post(stream=True))
            answer = await client.answer()
            whole = answer.status == 200 and answer.body.count(b"data: ") == EVENTS
            self.counts["streams" if whole else f"bad {answer}"] += 1
            client.close()

    async def run(self, count: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                for kind in (self.closing, self.keeping, self.streaming):
                    group.create_task(kind())


@pytest.fixture
async def loaded(tmp_path: Path, server: ModelServer) -> ModelServer:
    server.handler = model
    keep_table(tmp_path, server)
    return server


async def test_three_reloads_under_load_fail_cut_and_refuse_nothing(tmp_path: Path, loaded: ModelServer) -> None:
    async with gateway_process(tmp_path, processes=2) as gateway:
        load = Load(gateway)
        running = asyncio.create_task(load.run(4))
        workers = [set(gateway.status()["workers"])]
        for _ in range(3):
            told = await gateway.reload()
            assert told["error"] is None
            workers.append(set(told["workers"]))
            before = load.counts.copy()
            await until(
                lambda before=before: all(load.counts[k] > before[k] for k in ("closing", "keeping", "streams"))
            )
        load.over = True
        await running
        assert not [what for what in load.counts if what.startswith("bad")], load.counts
        assert load.counts["told to close"] > 0
        assert not any(one & other for n, one in enumerate(workers) for other in workers[n + 1 :])
        # What had the last of them came to its end with the load, and tells its master so.
        await until(lambda: not any(is_alive(pid) for each in workers[:-1] for pid in each))


async def test_a_stream_outlives_a_reload_and_the_processes_are_told_apart_meanwhile(
    tmp_path: Path, server: ModelServer
) -> None:
    gate = asyncio.Event()

    async def slow(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await writer.drain()
        await gate.wait()
        writer.write(b"1\r\nb\r\n0\r\n\r\n")

    server.handler = slow
    keep_table(tmp_path, server)
    async with gateway_process(tmp_path) as gateway:
        client = await gateway.connect()
        client.send(post())
        async with asyncio.timeout(DEADLINE_S):
            await client.reader.readuntil(b"\r\n\r\n1\r\na\r\n")
        gateway.process.send_signal(signal.SIGHUP)
        await until(lambda: any(each["left"] == 1 for each in gateway.status()["retiring"]))
        assert gateway.status()["state"] == "serving"
        assert [event["gateway"] for event in gateway.named("gateway.listening")] == ["g", "g~2"]
        seen = await metrics(gateway)
        assert seen["moorage_gateway_processes"] == 2
        assert seen['moorage_gateway_in_flight{namespace="default",endpoint="m"}'] == 1
        gate.set()
        assert await client.rest() == b"1\r\nb\r\n0\r\n\r\n"
        await until(lambda: not gateway.status()["retiring"])


async def test_a_reload_that_cannot_start_leaves_all_as_it_was(tmp_path: Path, loaded: ModelServer) -> None:
    async with gateway_process(tmp_path) as gateway:
        workers = gateway.status()["workers"]
        kept = await gateway.connect()
        for bad, message in (
            ({"processes": 0}, "processes is 0"),
            ({"tls_certificate": "/no", "tls_key": "/no"}, "/no"),
        ):
            gateway.configure(**bad)
            told = await gateway.reload()
            assert message in told["error"]
            assert told["workers"] == workers
            gateway.settings = {k: v for k, v in gateway.settings.items() if k not in bad}
        kept.send(post())
        assert (await kept.answer()).body == b"ok"
        gateway.configure(processes=2)
        told = await gateway.reload()
        assert told["error"] is None
        assert len(told["workers"]) == 2


async def test_a_killed_worker_is_replaced_and_what_came_meanwhile_waits(tmp_path: Path, loaded: ModelServer) -> None:
    async with gateway_process(tmp_path) as gateway:
        for _ in range(2):  # the second one is started after a moment, in which nobody accepts
            (victim,) = gateway.status()["workers"]
            os.kill(victim, signal.SIGKILL)
            clients = [await gateway.connect() for _ in range(20)]
            for client in clients:
                client.send(post())
            await until(lambda victim=victim: gateway.status()["workers"] not in ([], [victim]))
            answers = [await answer_or_end(client) for client in clients]
            # those that the dying process had accepted already end with it; every other one is answered
            assert answers.count(200) == len(answers) - answers.count(None)
            await gateway.serving()
        client = await gateway.connect()
        client.send(post())
        assert (await client.answer()).status == 200
        assert len(gateway.named("worker.died")) == 2


async def answer_or_end(client: Client) -> int | None:
    try:
        return (await client.answer()).status
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def succeeded(gateway: GatewayProcess, pid: int, listening: int) -> bool:
    """Whether another one serves in its place."""
    told = gateway.status()
    return len(gateway.named("gateway.listening")) > listening and told["workers"] not in ([], [pid])


async def test_a_worker_that_dies_of_a_fault_is_followed_by_one_without_accelerators_until_the_next_reload(
    tmp_path: Path, loaded: ModelServer
) -> None:
    async with gateway_process(tmp_path) as gateway:
        for how in (signal.SIGKILL, signal.SIGSEGV):
            (pid,), listening = gateway.status()["workers"], len(gateway.named("gateway.listening"))
            os.kill(pid, how)
            await until(functools.partial(succeeded, gateway, pid, listening), "its successor serves")
        assert [each["accelerators"] for each in gateway.named("worker.died")] == ["auto", "off"]
        assert gateway.named("gateway.listening")[-1]["accelerators"] == []
        await gateway.reload()
        first, last = (gateway.named("gateway.listening")[place]["accelerators"] for place in (0, -1))
        assert first == last


async def test_required_accelerators_that_are_gone_cost_speed_and_no_service_until_a_reload_asks_for_them(
    tmp_path: Path, loaded: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path(accelerators.__file__).parents[1]
    if not accelerators.is_current(package / "accelerated", package):
        pytest.skip("no accelerators are built of these sources: make accelerators")
    copy = tmp_path / "copy" / "moorage"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(copy.parent))
    async with gateway_process(tmp_path, accelerators="require") as gateway:
        assert gateway.named("gateway.listening")[-1]["accelerators"] == list(accelerators.PARTS)
        shutil.rmtree(copy / "accelerated")
        (pid,) = gateway.status()["workers"]
        os.kill(pid, signal.SIGKILL)
        await until(functools.partial(succeeded, gateway, pid, 1), "its successor serves")
        assert gateway.named("gateway.listening")[-1]["accelerators"] == []
        assert [each["why"] for each in gateway.named("accelerators.unused")] == ["no accelerators were built"]
        client = await gateway.connect()
        client.send(post())
        assert (await client.answer()).status == 200
        told = await gateway.reload()
        assert "accelerators are required" in told["error"]
        assert told["workers"] == gateway.status()["workers"] != []


async def test_while_a_killed_worker_is_replaced_the_others_accept_what_comes_to_it(
    tmp_path: Path, loaded: ModelServer
) -> None:
    async with gateway_process(tmp_path, processes=2) as gateway:
        held = await hold_a_replacement(gateway)
        try:
            clients = [await gateway.connect() for _ in range(24)]  # the kernel gives each socket some
            for client in clients:
                client.send(post())
            async with asyncio.timeout(DEADLINE_S):
                assert {(await client.answer()).status for client in clients} == {200}
        finally:
            kill(held, signal.SIGCONT)
        await until(lambda: len(gateway.status()["workers"]) == 2)


async def hold_a_replacement(gateway: GatewayProcess) -> int:
    """Kill a worker, and stop the process that is to replace it before it serves. Its pid."""
    while True:
        before = gateway.status()["workers"]
        served = len(gateway.named("gateway.listening"))
        kill(before[0])
        await until(lambda before=before: len(set(gateway.status()["workers"]) - set(before)) == 1)
        (fresh,) = set(gateway.status()["workers"]) - set(before)
        kill(fresh, signal.SIGSTOP)
        if len(gateway.named("gateway.listening")) == served:
            return int(fresh)
        kill(fresh, signal.SIGCONT)  # it was quicker


async def test_a_killed_master_costs_nothing_and_the_next_one_takes_its_processes_over(
    tmp_path: Path, loaded: ModelServer
) -> None:
    async with gateway_process(tmp_path, processes=2) as gateway:
        port, workers = gateway.port, gateway.status()["workers"]
        load = Load(gateway)
        running = asyncio.create_task(load.run(2))
        await until(lambda: load.counts["closing"] > 0)
        gateway.process.kill()
        await gateway.process.wait()
        async with gateway_process(tmp_path, processes=2) as second:
            assert second.port == port, "it has their sockets"
            load.gateway = second
            await until(lambda: not any(is_alive(pid) for pid in workers))
            before = load.counts.copy()
            await until(lambda: all(load.counts[k] > before[k] for k in ("closing", "keeping", "streams")))
            load.over = True
            await running
            assert not [what for what in load.counts if what.startswith("bad")], load.counts
            assert len({event["gateway"] for event in (*gateway.events, *second.events) if "address" in event}) == 4


async def test_processes_without_a_master_go_on_until_somebody_ends_them(tmp_path: Path, loaded: ModelServer) -> None:
    async with gateway_process(tmp_path, processes=2) as gateway:
        workers, port = gateway.status()["workers"], gateway.port
        gateway.process.kill()
        await gateway.process.wait()
        found = await asyncio.to_thread(handover.take, tmp_path)
        assert sorted(each.pid for each in found) == sorted(workers)
        client = await gateway.connect()
        client.send(post(stream=True))
        await client.head()
        for each in found:
            each.end()
        async with asyncio.timeout(DEADLINE_S):
            assert (await client.reader.readuntil(b"0\r\n\r\n")).count(b"data: ") == EVENTS
        client.close()
        for each in found:
            assert await asyncio.to_thread(each.gone, DEADLINE_S)
            each.close()
        with socket.create_server(("127.0.0.1", port)):
            pass


@pytest.mark.slow
async def test_processes_for_whom_no_master_comes_end_by_themselves(tmp_path: Path, loaded: ModelServer) -> None:
    async with gateway_process(tmp_path) as gateway:
        workers, port = gateway.status()["workers"], gateway.port
        gateway.process.kill()
        await until(lambda: not any(is_alive(pid) for pid in workers))
        with socket.create_server(("127.0.0.1", port)):
            pass


async def test_a_master_that_cannot_start_leaves_the_processes_before_it_alone(
    tmp_path: Path, loaded: ModelServer
) -> None:
    async with gateway_process(tmp_path) as gateway:
        workers = gateway.status()["workers"]
        gateway.process.kill()
        await gateway.process.wait()
        async with gateway_process(tmp_path, tls_certificate="/no", tls_key="/no") as bad:
            assert await bad.process.wait() == 2
        client = await gateway.connect()
        client.send(post())
        assert (await client.answer()).status == 200
        async with gateway_process(tmp_path) as good:
            await until(lambda: not any(is_alive(pid) for pid in workers))
            assert (await metrics(good))["moorage_gateway_processes"] == 1


async def test_an_address_that_is_taken_ends_the_master_with_one_line(tmp_path: Path, loaded: ModelServer) -> None:
    async with gateway_process(tmp_path, processes=2) as gateway:
        other = tmp_path / "other"
        other.mkdir()
        async with gateway_process(other, port=gateway.port) as second:
            assert await second.process.wait() == 1
            await until(lambda: second.said)
            assert second.said == [f"gateway: cannot listen on 127.0.0.1:{gateway.port}: Address already in use\n"]


async def test_processes_are_counted_as_one_and_know_each_others_requests(tmp_path: Path, loaded: ModelServer) -> None:
    async with gateway_process(tmp_path, processes=3) as gateway:
        ids = []
        for _ in range(24):
            client = await gateway.connect()
            client.send(post())
            ids.append((await client.answer()).headers["x-request-id"])
            client.close()
        assert len({each.rpartition("-")[0] for each in ids}) == 3, "each of the processes had some"
        counted = 'moorage_gateway_requests_total{namespace="default",endpoint="m",deployment="m",code="2xx"}'
        assert (await metrics(gateway))[counted] == 24
        for each in ids:
            client = await gateway.connect()
            client.send(get(f"/moorage/requests/{each}", "Authorization: Bearer tok\r\n"))
            assert (await client.answer()).status == 200
            client.close()
        client = await gateway.connect()
        client.send(get("/moorage/requests/req-0", "Authorization: Bearer tok\r\n"))
        assert (await client.answer()).status == 404
        client.close()
        await gateway.reload()
        seen = await metrics(gateway)
        assert seen.get(counted) in (None, 24), "a sum that falls would look like new requests"
        client = await gateway.connect()
        client.send(post())
        assert (await client.answer()).status == 200
        client.close()
        assert (await metrics(gateway))[counted] == 25


async def test_a_process_that_does_not_tell_is_left_out_and_counted(tmp_path: Path, loaded: ModelServer) -> None:
    async with gateway_process(tmp_path, processes=2) as gateway:
        stopped = gateway.status()["workers"][0]
        os.kill(stopped, signal.SIGSTOP)
        try:
            seen: dict[str, float] = {}
            while not seen:  # a connection that the stopped one should accept waits
                client = await gateway.connect()
                client.send(get("/metrics", "Connection: close\r\n"))
                try:
                    async with asyncio.timeout(5):
                        seen = samples((await client.answer()).body)
                except TimeoutError:
                    client.close()
            assert seen["moorage_gateway_processes"] == 1
            assert seen["moorage_gateway_processes_silent"] == 1
        finally:
            os.kill(stopped, signal.SIGCONT)


async def metrics(gateway: GatewayProcess) -> dict[str, float]:
    client = await gateway.connect()
    client.send(get("/metrics", "Connection: close\r\n"))
    return samples((await client.answer()).body)


def samples(text: bytes) -> dict[str, float]:
    pairs = (line.rpartition(" ") for line in text.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}

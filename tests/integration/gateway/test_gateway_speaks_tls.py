"""TLS ends at the gateway: versions, files that cannot be used, clients that do not speak it, renewal."""

import asyncio
import contextlib
import signal
import socket
import ssl
from pathlib import Path

import httpx
import pytest
from certificates import Pair, make_pair
from gateway_process import gateway_process, keep_table
from gateway_rig import DEADLINE_S, Client, ModelServer, Seen, get, post, running_gateway, until
from test_gateway_and_its_control_plane import ControlPlane, table

from moorage.domain.errors import InvalidSpec
from moorage.gateway import tls


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return make_pair(tmp_path, "one")


async def connect(port: int, context: ssl.SSLContext) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port, ssl=context))


async def test_requests_streams_and_connections_go_through_tls(tmp_path: Path, pair: Pair, server: ModelServer) -> None:
    async def stream(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(200):
            event = b"data: " + b"%d" % number * 200 + b"\n\n"
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
        writer.write(b"0\r\n\r\n")

    async with running_gateway(tmp_path, forwarded=True, **pair.settings) as rig:
        rig.serve(server)
        url = f"https://127.0.0.1:{rig.port}/v1/chat/completions"
        async with httpx.AsyncClient(verify=pair.trusting(), timeout=DEADLINE_S) as client:
            for size in (1, 100_000, 2_000_000):
                answer = await client.post(url, json={"model": "m", "text": "x" * size})
                assert answer.text == "ok"
                assert f'"{"x" * size}"'.encode() in server.seen[-1].body
            server.handler = stream
            answer = await client.post(url, json={"model": "m", "stream": True})
            assert answer.text.count("data: ") == 200
        assert server.seen[-1].headers["x-forwarded-proto"] == "https"


async def test_versions_before_1_2_are_refused_and_http_1_1_is_agreed_on(
    tmp_path: Path, pair: Pair, server: ModelServer
) -> None:
    async with running_gateway(tmp_path, **pair.settings) as rig:
        rig.serve(server)
        context = pair.trusting()
        context.set_alpn_protocols(["h2", "http/1.1"])
        client = await connect(rig.port, context)
        spoken = client.writer.get_extra_info("ssl_object")
        assert (spoken.version(), spoken.selected_alpn_protocol()) == ("TLSv1.3", "http/1.1")
        client.close()
        old = pair.trusting()
        old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(rig.port, old)
        assert tls.server_context(pair.certificate, pair.key).minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\xff\xff" + b"\x00" * 300, b"\x00\xff" * 5000])
async def test_who_does_not_speak_tls_is_closed_and_disturbs_nobody(
    tmp_path: Path, pair: Pair, server: ModelServer, sent: bytes
) -> None:
    async with running_gateway(tmp_path, tls_handshake_timeout_s=1.0, **pair.settings) as rig:
        rig.serve(server)
        plain = await rig.connect()
        plain.send(sent)
        with contextlib.suppress(ConnectionError):
            assert b"HTTP/" not in await plain.rest()
        client = await connect(rig.port, pair.trusting())
        client.send(post())
        assert (await client.answer()).status == 200
        client.close()


async def test_who_speaks_plain_http_is_told_to_use_https_and_fills_no_log(tmp_path: Path, pair: Pair) -> None:
    async with running_gateway(tmp_path, tls_handshake_timeout_s=1.0, **pair.settings) as rig:
        for sent in (get("/livez"), post(text="x" * 1_000_000)):
            plain = await rig.connect()
            plain.send(sent)
            answer = await plain.answer()
            assert answer.status == 400
            assert b"https://" in answer.body
            with contextlib.suppress(ConnectionError):
                assert await plain.rest() == b""
        assert rig.gateway._log.events.count("gateway.plain_http_at_tls") == 1
        assert not rig.gateway.hub.clients


async def test_a_handshake_that_does_not_end_is_ended(tmp_path: Path, pair: Pair) -> None:
    async with running_gateway(tmp_path, tls_handshake_timeout_s=0.2, **pair.settings) as rig:
        silent = await rig.connect()
        with contextlib.suppress(ConnectionError):
            assert await silent.rest() == b""
        assert not rig.gateway.hub.clients


async def test_clients_that_leave_and_early_answers_are_as_without_tls(
    tmp_path: Path, pair: Pair, server: ModelServer
) -> None:
    gate = asyncio.Event()

    async def wait(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gate.wait()

    server.handler = wait
    async with running_gateway(tmp_path, body_bytes_max=1000, **pair.settings) as rig:
        rig.serve(server)
        early = await connect(rig.port, pair.trusting())
        early.send(b"POST /v1/x HTTP/1.1\r\nHost: g\r\nContent-Length: 100000\r\n\r\n" + b"x" * 50_000)
        assert (await early.answer()).status == 413
        assert await early.rest() == b""
        leaver = await connect(rig.port, pair.trusting())
        leaver.send(post())
        await until(lambda: server.seen)
        leaver.writer.close()
        await until(lambda: not any(endpoint.in_flight for endpoint in rig.router.endpoints()))
        await until(lambda: not rig.gateway.hub.clients)
        gate.set()


async def test_an_answer_that_breaks_is_no_whole_answer_through_tls(
    tmp_path: Path, pair: Pair, server: ModelServer
) -> None:
    async def broken(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        return False

    server.handler = broken
    async with running_gateway(tmp_path, **pair.settings) as rig:
        rig.serve(server)
        async with httpx.AsyncClient(verify=pair.trusting(), timeout=DEADLINE_S) as client:
            with pytest.raises(httpx.RemoteProtocolError):
                await client.post(f"https://127.0.0.1:{rig.port}/v1/x", json={"model": "m"})


async def test_the_control_plane_of_this_machine_is_told_of_a_port_without_tls(
    tmp_path: Path, pair: Pair, server: ModelServer
) -> None:
    plane = await ControlPlane().start()
    plane.publish(table(1, server))
    async with running_gateway(tmp_path, server_url=plane.url, **pair.settings):
        await until(lambda: plane.reports)
        address = plane.reports[-1].address
        assert address is not None
        assert address.startswith("http://127.0.0.1:")
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"{address}/moorage/requests/x", headers={"Authorization": "Bearer tok"})
        assert answer.status_code == 404
    await plane.server.stop()


async def test_a_renewed_certificate_is_in_use_after_a_reload_and_a_bad_one_changes_nothing(
    tmp_path: Path, server: ModelServer
) -> None:
    keep_table(tmp_path, server)
    one, two = make_pair(tmp_path, "one"), make_pair(tmp_path, "two")
    here = Pair(tmp_path / "live.pem", tmp_path / "live.key")
    here.certificate.write_bytes(one.certificate.read_bytes())
    here.key.write_bytes(one.key.read_bytes())
    async with gateway_process(tmp_path, tls_certificate=str(here.certificate), tls_key=str(here.key)) as gateway:
        kept = await connect(gateway.port, one.trusting())
        here.certificate.write_bytes(two.certificate.read_bytes())
        told = await gateway.reload()
        assert "does not belong to the certificate" in told["error"]
        kept.send(post())
        assert (await kept.answer()).status == 200
        here.key.write_bytes(two.key.read_bytes())
        assert (await gateway.reload())["error"] is None
        renewed = await connect(gateway.port, two.trusting())
        renewed.send(post())
        assert (await renewed.answer()).status == 200
        renewed.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(gateway.port, one.trusting())


async def test_a_client_that_agrees_on_tls_while_its_process_retires_is_served(
    tmp_path: Path, pair: Pair, server: ModelServer
) -> None:
    keep_table(tmp_path, server)
    patient = {"tls_handshake_timeout_s": DEADLINE_S}  # a busy machine starts a process in no less than the usual ten
    settings = {"tls_certificate": str(pair.certificate), "tls_key": str(pair.key), **patient}

    async def ask() -> None:
        client = await connect(gateway.port, pair.trusting())
        client.send(post(extra="Connection: close\r\n"))
        assert (await client.answer()).status == 200
        client.close()

    async with gateway_process(tmp_path, **settings) as gateway:
        slow = await gateway.connect()  # accepted, and says nothing yet
        await ask()  # which came later, so that the slow one is accepted too
        gateway.process.send_signal(signal.SIGHUP)
        await until(lambda: gateway.status()["retiring"] or gateway.named("gateway.stopped"))
        for _ in range(20):  # time enough to end, for a process that waits for nobody
            await ask()
        await slow.writer.start_tls(pair.trusting(), server_hostname="127.0.0.1")
        slow.send(post())
        answer = await slow.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        slow.close()
        await until(lambda: not gateway.status()["retiring"])


def switched(seen: Seen) -> bytes:
    return b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\n"


def talk(port: int, context: ssl.SSLContext, said: bytes, *, ends: bool) -> bytes:
    """All that a tunnel tells a client that speaks first; whoever cuts it without TLS' own goodbye is found out."""
    with (
        socket.create_connection(("127.0.0.1", port), DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client,
    ):
        client.sendall(get("/endpoints/m/x", UPGRADE))
        told = b""
        while b"\r\n\r\n" not in told:
            told += client.recv(65536)
        client.sendall(said)
        if ends:
            client.unwrap().close()
            return told
        while part := client.recv(65536):
            told += part
        return told


async def test_a_tunnel_through_tls_carries_everything_and_ends_with_a_goodbye(
    tmp_path: Path, pair: Pair, server: ModelServer
) -> None:
    whole = bytes(range(256)) * 4096

    async def echo(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(switched(seen))
        writer.write(await reader.readexactly(len(whole)))
        await writer.drain()
        writer.write_eof()  # it says no more, and listens on
        await reader.read()
        return False

    server.handler = echo
    async with running_gateway(tmp_path, **pair.settings) as rig:
        rig.serve(server)
        told = await asyncio.to_thread(talk, rig.port, pair.trusting(), whole, ends=False)
        assert told.endswith(b"\r\n\r\n" + whole)
        await until(lambda: not rig.gateway.hub.clients and server.closed == 1)


async def test_the_goodbye_of_a_client_in_a_tunnel_reaches_the_replica_behind_all_that_it_said(
    tmp_path: Path, pair: Pair, server: ModelServer
) -> None:
    heard: list[bytes] = []

    async def listen(seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(switched(seen))
        heard.append(await reader.read())
        return False

    server.handler = listen
    async with running_gateway(tmp_path, **pair.settings) as rig:
        rig.serve(server)
        await asyncio.to_thread(talk, rig.port, pair.trusting(), b"all of it", ends=True)
        await until(lambda: heard)
        assert heard == [b"all of it"]
        await until(lambda: not rig.gateway.hub.clients)
        assert all(endpoint.in_flight == 0 for endpoint in rig.router.endpoints())


async def test_handshakes_that_drip_end_at_their_time_and_keep_nobody_out(
    tmp_path: Path, pair: Pair, server: ModelServer
) -> None:
    hello = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        pair.trusting().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="127.0.0.1").do_handshake()
    first = hello.read()
    async with running_gateway(tmp_path, tls_handshake_timeout_s=2.0, **pair.settings) as rig:
        rig.serve(server)
        dripping = [await rig.connect() for _ in range(200)]
        for number, client in enumerate(dripping):
            client.send(first[: 1 + number % (len(first) - 1)])
        asked = await connect(rig.port, pair.trusting())
        asked.send(post())
        assert (await asked.answer()).status == 200
        asked.close()
        for client in dripping:
            with contextlib.suppress(ConnectionError):
                assert await client.rest() == b""
        assert not rig.gateway.hub.clients


@pytest.mark.slow
async def test_certificates_are_renewed_under_load_without_a_failed_request(
    tmp_path: Path, server: ModelServer
) -> None:
    keep_table(tmp_path, server)
    pairs = [make_pair(tmp_path, name) for name in ("one", "two")]
    trusting = pairs[0].trusting()
    trusting.load_verify_locations(str(pairs[1].certificate))
    live = Pair(tmp_path / "live.pem", tmp_path / "live.key")
    answers: list[int] = []
    over = False

    def renew(pair: Pair) -> None:
        live.certificate.write_bytes(pair.certificate.read_bytes())
        live.key.write_bytes(pair.key.read_bytes())

    renew(pairs[0])
    settings = {"tls_certificate": str(live.certificate), "tls_key": str(live.key)}
    async with gateway_process(tmp_path, processes=2, **settings) as gateway:

        async def ask() -> None:
            while not over:
                client = await connect(gateway.port, trusting)
                client.send(post(extra="Connection: close\r\n"))
                answers.append((await client.answer()).status)
                client.close()

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(ask())
            for turn in (1, 0, 1):
                renew(pairs[turn])
                assert (await gateway.reload())["error"] is None
                before = len(answers)
                await until(lambda before=before: len(answers) > before + 20)
            over = True
    assert set(answers) == {200}


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("missing", "No such file"),
        ("mismatched", "does not belong to the certificate"),
        ("swapped", "holds no private key"),
        ("garbage", "holds no certificate"),
        ("locked", "asks for a passphrase"),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_what_is_wrong(tmp_path: Path, what: str, message: str) -> None:
    good, other = make_pair(tmp_path, "good"), make_pair(tmp_path, "other")
    garbage = tmp_path / "garbage"
    garbage.write_text("nothing of the kind\n")
    certificate, key = {
        "missing": (tmp_path / "none", good.key),
        "mismatched": (good.certificate, other.key),
        "swapped": (good.key, good.certificate),
        "garbage": (garbage, good.key),
        "locked": (good.certificate, make_pair(tmp_path, "locked", b"secret").key),
    }[what]
    with pytest.raises(InvalidSpec, match=message):
        tls.server_context(certificate, key)


async def test_a_gateway_with_bad_files_ends_before_it_serves(tmp_path: Path, pair: Pair) -> None:
    other = make_pair(tmp_path, "other")
    settings = {"tls_certificate": str(pair.certificate), "tls_key": str(other.key)}
    async with gateway_process(tmp_path, **settings) as gateway:
        assert await gateway.process.wait() == 2
        await until(lambda: gateway.said)
        assert "does not belong to the certificate" in gateway.said[0]

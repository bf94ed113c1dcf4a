"""A control plane behind https is believed by its certificate, and nothing else: over real TLS."""

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from certificates import Pair, make_pair

from moorage.client import AsyncClient, Client
from moorage.domain.errors import InvalidSpec, Unavailable


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"items": [], "next": None}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return make_pair(tmp_path, "control")


@pytest.fixture
def url(pair: Pair) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ready)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_both_clients_believe_the_file_that_they_are_given(url: str, pair: Pair) -> None:
    with Client(url, "t", ca=pair.certificate) as client:
        assert list(client.deployments.list()) == []

    async def ask() -> list[object]:
        async with AsyncClient(url, "t", ca=str(pair.certificate)) as client:
            return list(await client.deployments.list())

    assert asyncio.run(ask()) == []


def test_the_file_of_the_environment_is_believed_where_none_is_given(
    url: str, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(url, "t") as client, pytest.raises(Unavailable, match="is not to be believed") as refused:
        list(client.deployments.list())
    assert "SSL_CERT_FILE" in str(refused.value.remedy)
    monkeypatch.setenv("SSL_CERT_FILE", str(pair.certificate))
    with Client(url, "t") as client:
        assert list(client.deployments.list()) == []


@pytest.mark.parametrize("what", ["missing", "key"])
def test_a_file_without_certificates_is_refused_by_its_name(tmp_path: Path, pair: Pair, what: str) -> None:
    path = pair.key if what == "key" else tmp_path / "missing.pem"
    with pytest.raises(InvalidSpec, match=path.name):
        Client("https://127.0.0.1:1", "t", ca=path)

"""A whole installation gives its workers secrets, files, ports and certificates; values are on no disk of it."""

import hashlib
import json
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from moorage.runners.mounting import why_no_mounts
from tests.acceptance.installation import Installation, until
from tests.ports import free_ports

VALUE = "sesame-sesame-sesame-77"
WHY_NO_MOUNTS = why_no_mounts(sys.executable)

SERVER = """
import hashlib, os, socket, ssl, sys
folder = os.environ["MOORAGE_IDENTITY_DIR"]
context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
context.load_cert_chain(folder + "/cert.pem", folder + "/key.pem")
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", flush=True)
peer, _ = listening.accept()
with context.wrap_socket(peer, server_side=True) as secure:
    digest = hashlib.sha256(os.environ["TOKEN"].encode()).hexdigest()
    config = open(sys.argv[2]).read() if len(sys.argv) > 2 else ""
    secure.sendall((digest + " " + config).encode())
"""
"""Proves that it has its secret without showing it, over TLS with its own certificate."""


@pytest.fixture(scope="module")
def told(shared: Installation, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one run that asks for everything was given, from the wait for its secret to its end."""
    folder = tmp_path_factory.mktemp("told")
    port, config = free_ports(1)[0], f"{folder}/etc/app.toml"
    with_files = WHY_NO_MOUNTS is None
    runtime: dict[str, Any] = {
        "command": [sys.executable, "-c", SERVER, str(port), *([config] if with_files else [])],
        "secrets": {"TOKEN": "hf-token/token"},
    }
    if with_files:
        runtime["configs"] = [{"path": config, "content": "answer = 42"}]
    group = {"name": "worker", "runtime": runtime, "expose": [{"port": port, "protocol": "tcp", "external": True}]}
    (folder / "run.json").write_text(json.dumps({"kind": "Run", "name": "job", "groups": [group], "identity": True}))
    shared.moor("run", "-f", str(folder / "run.json"), "--detach")
    waits = until(lambda: waiting_for(shared), "the run to wait for its secret")
    (folder / "value").write_text(VALUE)
    shared.moor("secrets", "set", "hf-token", "--from-file", f"token={folder}/value")
    (folder / "value").unlink()
    address = until(lambda: worker(shared)["ports"].get(str(port)), "the worker's address from outside")
    answer = until(lambda: asked(shared, address), "an answer over TLS")
    until(lambda: shared.json("get", "run", "job")["state"] == "Completed", "the run to complete")
    return {"waits": waits, "answer": answer, "with_files": with_files}


def waiting_for(installation: Installation) -> dict[str, Any] | None:
    why = installation.json("get", "run", "job")["reason"]
    return dict(why) if why["code"] == "prepare.secret" else None


def worker(installation: Installation) -> dict[str, Any]:
    return dict(installation.json("workers", "job")[0])


def asked(installation: Installation, address: str) -> str | None:
    """What the worker says to a client that trusts the installation's authority; None: it is not up yet."""
    authority = httpx.get(f"http://127.0.0.1:{installation.api}/api/v1/identity/ca", timeout=60).text
    context = ssl.create_default_context(cadata=authority)
    host, _, port = address.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            said = b""
            while part := secure.recv(65536):
                said += part
            return said.decode()
    except (ConnectionError, ssl.SSLEOFError):
        return None


def test_a_run_waits_for_a_secret_by_name_and_key(told: dict[str, Any]) -> None:
    assert told["waits"]["params"] == {"name": "hf-token", "key": "token"}


def test_a_client_that_trusts_the_authority_reaches_the_worker_through_its_external_port(told: dict[str, Any]) -> None:
    digest, _, config = told["answer"].partition(" ")
    assert digest == hashlib.sha256(VALUE.encode()).hexdigest()
    assert config == ("answer = 42" if told["with_files"] else "")


def test_the_value_of_a_secret_is_on_no_disk_and_in_no_answer(shared: Installation, told: dict[str, Any]) -> None:
    kept = [path for path in Path(shared.home).rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in kept if VALUE.encode() in path.read_bytes()] == []
    shown = [
        shared.moor(*words, "-o", "json") for words in (("secrets", "ls"), ("get", "run", "job"), ("history", "job"))
    ]
    assert [text for text in shown if VALUE in text] == []


def test_what_no_machine_can_enforce_is_refused(shared: Installation, tmp_path: Path) -> None:
    body = {"kind": "Run", "name": "shut", "groups": [{"runtime": {"command": ["true"]}}], "outbound": {"allow": []}}
    (tmp_path / "run.json").write_text(json.dumps(body))
    refused = shared.run("run", "-f", str(tmp_path / "run.json"), "--detach")
    assert refused.returncode != 0
    assert "no machine can enforce an outbound policy" in refused.stderr

"""What a command says when it cannot do what it was told: to people, to programs, and to a terminal."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stub_api import StubApi

from moorage.cli.main import main
from tests.ports import free_ports

SPEC = 'kind: Deployment\nname: gemma\nmodel: {id: m}\nruntime: {command: [serve, --port, "{port}"]}\n'
PATIENCE_S = 90.0
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def api() -> Iterator[StubApi]:
    made = StubApi()
    yield made
    made.close()


@pytest.fixture
def silent() -> Iterator[dict[str, str]]:
    """A control plane that takes connections and says nothing."""
    listening = socket.create_server(("127.0.0.1", 0))
    yield {"MOORAGE_URL": f"http://127.0.0.1:{listening.getsockname()[1]}", "MOORAGE_HOME": "/nonexistent"}
    listening.close()


@pytest.mark.parametrize("command", ["status", "why", "history", "logs", "stop", "pause", "wait", "workers"])
@pytest.mark.parametrize("name", ["../x", "", "a\x1b[31mred", "a b", "A"])
def test_a_name_that_nothing_can_have_is_refused_before_any_request(
    api: StubApi, capsys: Capture, command: str, name: str
):
    assert main([command, name], api.env) == 2
    shown = capsys.readouterr()
    assert "small letters" in shown.err
    assert "\x1b" not in shown.out + shown.err
    assert api.requests == []


def test_words_of_the_api_do_not_steer_the_terminal(api: StubApi, capsys: Capture):
    reason = {"code": "x", "message": "it \x1b]0;title\x07 failed\r", "params": {}}
    api.deployment("gemma", reason=reason)
    items = [api.deployment("llama", reason=reason)]
    api.answers["GET /namespaces/default/deployments"] = (200, {"items": items, "next": None})
    assert main(["status", "gemma"], api.env) == 0
    assert main(["ls"], api.env) == 0
    shown = capsys.readouterr().out
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert shown.count("it \\x1b]0;title\\x07 failed\\x0d") == 2


@pytest.mark.parametrize("count", ["99999999999999999999999", "10001", "-1"])
def test_a_number_of_replicas_that_cannot_be_is_refused_with_the_range(api: StubApi, capsys: Capture, count: str):
    assert main(["scale", "gemma", "--min", count], api.env) == 2
    assert "0<=x<=10000" in capsys.readouterr().err
    assert api.requests == []


@pytest.mark.parametrize(
    ("args", "code", "word"),
    [
        (["get", "deployment", "gone", "-o", "json"], 4, "not_found"),
        (["status", "..", "--output=json"], 2, "invalid_spec"),
        (["ls", "--nope", "-o", "json"], 2, "usage"),
        (["validate", "/nonexistent.yaml", "-ojson"], 2, "invalid_spec"),
    ],
)
def test_a_program_gets_the_error_object_on_stdout_and_people_still_theirs(
    api: StubApi, capsys: Capture, args: list[str], code: int, word: str
):
    assert main(args, api.env) == code
    shown = capsys.readouterr()
    error = json.loads(shown.out)["error"]
    assert (error["code"], error["retryable"]) == (word, False)
    assert error["message"]
    assert shown.err.startswith("error: ")


def test_without_json_stdout_stays_empty_also_where_the_servers_command_has_such_words(api: StubApi, capsys: Capture):
    assert main(["get", "deployment", "gone"], api.env) == 4
    assert main(["serve", "--name", "x", "--", "server", "-o", "json"], api.env) == 2
    assert capsys.readouterr().out == ""


def test_help_says_where_errors_go(capsys: Capture):
    assert main(["--help"], {}) == 0
    assert '{"error":' in capsys.readouterr().out


def test_every_mistake_of_a_file_has_its_line(tmp_path: Path, capsys: Capture):
    path = tmp_path / "bad.yaml"
    path.write_text("kind: Deployment\nname: X_\nmodle: {id: m}\nruntime:\n  command: [serve]\n  foo: 1\n")
    assert main(["validate", str(path)], {}) == 2
    shown = capsys.readouterr().err
    assert "line 2: name" in shown
    assert "line 3: modle" in shown
    assert "line 6: runtime.foo" in shown
    assert "every field" not in shown


@pytest.mark.parametrize("command", ["apply", "serve"])
def test_the_time_out_counts_from_the_apply(silent: dict[str, str], tmp_path: Path, capsys: Capture, command: str):
    path = tmp_path / "gemma.yaml"
    path.write_text(SPEC)
    args = {"apply": ["apply", "-f", str(path), "--wait"], "serve": ["serve", "--name", "x"]}[command]
    tail = ["--", "server", "--port", "{port}"] if command == "serve" else []
    assert main([*args, "--timeout", "0.3s", *tail], silent) == 3
    assert "was not accepted within 0.3 s" in capsys.readouterr().err


def wait_for_words(capsys: Capture, words: str) -> str:
    """What was said on stderr until these words came, or PATIENCE_S passed."""
    said = ""
    deadline = time.monotonic() + PATIENCE_S
    while words not in said and time.monotonic() < deadline:
        said += capsys.readouterr().err
        time.sleep(0.02)
    return said


def test_a_command_bears_the_restart_of_this_machines_control_plane(tmp_path: Path, capsys: Capture):
    (port,) = free_ports(1)
    (tmp_path / "client.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}", "token": "t"}))
    codes: list[int] = []
    work = threading.Thread(target=lambda: codes.append(main(["ls"], {"MOORAGE_HOME": str(tmp_path)})))
    work.start()
    said = wait_for_words(capsys, "waiting for the control plane")
    assert f"waiting for the control plane at http://127.0.0.1:{port}" in said
    back = StubApi(port)
    back.answers["GET /namespaces/default/deployments"] = (200, {"items": [], "next": None})
    work.join(PATIENCE_S)
    back.close()
    assert codes == [0]


def test_an_address_that_was_only_named_is_told_as_refused_at_once(tmp_path: Path, capsys: Capture):
    (port,) = free_ports(1)
    (tmp_path / "client.json").write_text('{"url": "http://127.0.0.1:1"}')
    env = {"MOORAGE_HOME": str(tmp_path), "MOORAGE_URL": f"http://127.0.0.1:{port}"}
    assert main(["ls"], env) == 5
    assert "waiting" not in capsys.readouterr().err

"""Ctrl-C of an apply that no control plane has answered to: what is said of whether it was sent."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SPEC = """\
kind: Deployment
name: {name}
model: {{id: m}}
runtime: {{command: [serve, --port, "{{port}}"]}}
"""
PATIENCE_S = 120


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A control plane that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(PATIENCE_S)
        yield made


def applying(url: str, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "moorage.cli.main", "apply", *words],
        env={**os.environ, "MOORAGE_URL": url, "MOORAGE_TOKEN": "t", "MOORAGE_HOME": "/nonexistent"},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupted(process: "subprocess.Popen[str]") -> str:
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("names", [("gemma",), ("gemma", "llama")])
def test_an_apply_that_was_sent_and_not_answered_says_how_to_see_and_to_send_it_again(
    names: tuple[str, ...], silent: socket.socket, tmp_path: Path
) -> None:
    path = tmp_path / "specs.yaml"
    path.write_text("---\n".join(SPEC.format(name=name) for name in names))
    process = applying(f"http://127.0.0.1:{silent.getsockname()[1]}", "-f", str(path), "--key", "build-1")
    connection, _ = silent.accept()
    with connection:
        connection.settimeout(PATIENCE_S)
        assert connection.recv(1) == b"P"
        err = interrupted(process)
    assert "gemma: sending; waiting for the control plane's answer" in err
    assert "it may have been sent: `moor operations list gemma` or `moor status gemma` shows whether" in err
    assert "sending it again with --key build-1 changes nothing twice" in err


def test_an_apply_that_is_still_being_read_says_that_nothing_was_sent(silent: socket.socket, tmp_path: Path) -> None:
    pipe = tmp_path / "spec.yaml"
    os.mkfifo(pipe)
    process = applying(f"http://127.0.0.1:{silent.getsockname()[1]}", "-f", str(pipe))
    with pipe.open("w"):  # opens once the command has opened it to read
        err = interrupted(process)
    assert "nothing was sent" in err

"""`moor up` ends, whatever does not answer, cannot be named or does not stop; and what it started ends with it."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.app import processes, readiness, up
from moorage.app.home import Home
from moorage.app.processes import Identity
from moorage.app.settings import load
from moorage.cli.progress import Progress
from moorage.domain.errors import Unavailable, WaitTimeout
from moorage.runners.shimming import procfs

PAUSE = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
DEAF = [
    sys.executable,
    "-S",
    "-c",
    "import signal\nfor n in (10, 15): signal.signal(n, signal.SIG_IGN)\nprint('deaf', flush=True)\n"
    "while True: signal.pause()",
]


@pytest.fixture
def trickling() -> Iterator[str]:
    """A server that answers each question with one byte after the other, for ever."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
            while not over.wait(0.02):
                try:
                    peer.sendall(b"x")
                except OSError:
                    return

    thread = threading.Thread(target=answer)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    over.set()
    thread.join()
    listener.close()


def test_a_probe_of_an_answer_that_never_ends_ends(trickling: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(readiness, "PROBE_TIMEOUT_S", 0.2)
    assert readiness.get(trickling, "/readyz") == (None, {})


def test_nothing_is_started_where_proc_does_not_show_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(procfs, "depth", lambda: None)
    with pytest.raises(Unavailable, match="nothing is started") as refused:
        processes.start(PAUSE, tmp_path / "logs" / "part.log", tmp_path)
    assert "mount -t proc" in (refused.value.remedy or "")
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_cannot_be_identified_is_ended_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    started: list[int] = []

    def unknown(pid: int) -> None:
        started.append(pid)

    monkeypatch.setattr(processes, "identify", unknown)
    with pytest.raises(Unavailable, match="ended again"):
        processes.start(PAUSE, tmp_path / "part.log", tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_up_that_runs_out_of_time_gives_up_a_supervisor_that_hears_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    deaf = subprocess.Popen(DEAF, stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    assert deaf.stdout.readline() == b"deaf\n"

    def launch(home: Home) -> Identity:
        identity = processes.identify(deaf.pid)
        assert identity is not None
        return identity

    monkeypatch.setattr(up, "_launch", launch)
    monkeypatch.setattr(up, "GIVE_BACK_LIMIT_S", 0.3)
    monkeypatch.setattr(readiness, "missing", lambda *_: iter([("server", "the API")]))
    home = Home(tmp_path / "home")
    settings = load({"HOME": str(tmp_path), "MOORAGE_HOME": str(home.root), **_free_addresses()})
    with deaf, pytest.raises(WaitTimeout, match="did not answer within"):
        up.up(home, settings, Progress(quiet=True), timeout_s=0.2)
    assert deaf.returncode == -signal.SIGKILL


def _free_addresses() -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as api, socket.create_server(("127.0.0.1", 0)) as gateway:
        ports = api.getsockname()[1], gateway.getsockname()[1]
    return {"MOORAGE_API": f"127.0.0.1:{ports[0]}", "MOORAGE_GATEWAY": f"127.0.0.1:{ports[1]}"}

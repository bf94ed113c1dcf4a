"""Logs over all workers of a run, and commands beside them, through the whole installation."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.installation import MOOR, PATIENCE_S, Installation, alive, until

pytestmark = pytest.mark.acceptance

SPEAKS = """
import os, sys, time
rank, attempt = os.environ["MOORAGE_RANK"], int(os.environ["MOORAGE_ATTEMPT"])
print(f"rank {rank} attempt {attempt} begins", flush=True)
if rank == "1" and attempt == 1:
    sys.exit(3)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
print(f"rank {rank} attempt {attempt} is done", flush=True)
"""


def submit(installation: Installation, name: str, command: list[str], count: int = 1) -> None:
    document = {
        "kind": "Run",
        "name": name,
        "groups": [
            {
                "name": "worker",
                "count": count,
                "runtime": {"command": command, "stop": {"grace": "5s"}},
                "resources": {"cpu": "10m"},
                "restart_policy": "OnFailure",
            }
        ],
        "restart": {"backoff": "100ms", "budget": 3},
    }
    path = installation.home.parent / f"{name}.json"
    path.write_text(json.dumps(document))
    installation.moor("run", "--detach", "-f", str(path))


def workers(installation: Installation, name: str) -> list[dict[str, Any]]:
    return list(installation.json("workers", name))


def running(installation: Installation, name: str) -> bool:
    found = workers(installation, name)
    return bool(found) and all(w["state"] == "Running" for w in found)


class Reading:
    """A `moor` command whose streams are gathered while it runs."""

    def __init__(self, installation: Installation, *args: str) -> None:
        self.process = subprocess.Popen(
            [MOOR, *args], env=installation.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.out: list[str] = []
        self.err: list[str] = []
        pairs = ((self.process.stdout, self.out), (self.process.stderr, self.err))
        self._threads = [threading.Thread(target=self._gather, args=pair, daemon=True) for pair in pairs]
        for thread in self._threads:
            thread.start()

    def _gather(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            lines.append(line.rstrip("\n"))

    def end(self) -> int:
        code = self.process.wait(PATIENCE_S)
        for thread in self._threads:
            thread.join(PATIENCE_S)
        return code


def test_a_run_is_followed_over_all_its_workers_and_their_attempts_to_its_end(
    shared: Installation, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    submit(shared, "choir", [sys.executable, "-c", SPEAKS, str(go)], count=2)
    follow = Reading(shared, "logs", "-f", "choir")
    until(lambda: any("rank 1 attempt 2 begins" in line for line in follow.out), "the second attempt's first line")
    go.touch()
    assert follow.end() == 0, follow.err
    said = [line.replace(" ", "") for line in follow.out]
    for rank, attempt in ((0, 1), (1, 2)):
        assert said.count(f"choir-{rank}|rank{rank}attempt{attempt}begins") == 1
        assert said.count(f"choir-{rank}|rank{rank}attempt{attempt}isdone") == 1
    assert said.count("choir-1|rank1attempt1begins") <= 1  # it may have ended before anybody read along
    assert any("-- attempt 2 --" in line for line in follow.err) or "choir-1|rank1attempt1begins" not in said
    assert "choir is over: Completed" in follow.err[-1]

    assert "rank 1 attempt 1 begins" in shared.moor("logs", "choir", "--rank", "1", "--previous")
    assert shared.moor("logs", "choir", "--rank", "1", "--attempt", "2", "--grep", "is d.ne$") == (
        "choir-1 | rank 1 attempt 2 is done\n"
    )
    assert shared.moor("logs", "choir", "--since", "1h", "--rank", "0", "--no-prefix").splitlines() == [
        "rank 0 attempt 1 begins",
        "rank 0 attempt 1 is done",
    ]
    lines = [json.loads(line) for line in shared.moor("logs", "choir", "--output", "json").splitlines()]
    times = [line["at"] for line in lines if line["kind"] == "line"]
    assert times == sorted(times)
    assert min(times) > 1_000_000_000
    for wrong, code in ((("--grep", "["), 2), (("--attempt", "9"), 4), (("--worker", "nobody"), 4)):
        refused = shared.run("logs", "choir", *wrong)
        assert refused.returncode == code, refused.stderr


def test_a_command_beside_a_worker_has_its_streams_its_code_and_its_place_in_history(shared: Installation) -> None:
    submit(shared, "host", ["sleep", "1000"])
    until(lambda: running(shared, "host"), "the run")
    code = "cat; echo $MOORAGE_RUN; echo problem >&2; exit 9"
    done = subprocess.run(
        [MOOR, "exec", "-i", "host", "--", "sh", "-c", code],
        env=shared.env,
        input="given ",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    worker = workers(shared, "host")[0]
    assert (done.returncode, done.stdout, done.stderr) == (9, f"given {worker['run']}\n", "problem\n")
    missing = shared.run("exec", "host/host-0", "--", "no-such-command")
    assert missing.returncode == 127
    assert "no-such-command" in missing.stderr
    noted = [e for e in shared.json("history", "host", "--all") if e["reason"]["code"] == "exec.started"]
    assert noted[0]["reason"]["params"]["command"] == f"sh -c {code}"
    assert noted[0]["actor"].startswith("person:")
    shared.moor("cancel", "host")
    until(lambda: workers(shared, "host")[0]["state"] == "Cancelled", "its end")
    refused = shared.run("exec", "host", "--", "true")
    assert refused.returncode not in (0, 127)
    assert "Cancelled" in refused.stderr


def test_a_terminal_is_given_over_to_the_command_with_its_keys_and_its_size(shared: Installation) -> None:
    submit(shared, "screen", ["sleep", "1000"])
    until(lambda: running(shared, "screen"), "the run")
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 91, 0, 0))
        os.execve(
            MOOR,
            [
                MOOR,
                "exec",
                "screen",
                "--",
                "sh",
                "-c",
                "until stty size | grep '31 91'; do sleep 0.1; done; cat; echo after",
            ],
            shared.env,
        )
    seen = bytearray()

    def read_until(wanted: bytes) -> None:
        while wanted not in seen:
            try:
                seen.extend(os.read(terminal, 4096))
            except OSError:  # the command ended and closed its terminal
                raise AssertionError(f"{wanted!r} was not shown: {bytes(seen)!r}") from None

    killer = threading.Timer(PATIENCE_S, os.kill, (pid, signal.SIGKILL))
    killer.start()
    try:
        read_until(b"31 91")
        os.write(terminal, b"echoed\r")
        read_until(b"echoed\r\nechoed")
        os.write(terminal, b"\x03")  # the remote `sh` and `cat` are interrupted, not the command here
        _, status = os.waitpid(pid, 0)
    finally:
        killer.cancel()
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130, bytes(seen)
    assert b"Traceback" not in seen
    shared.moor("cancel", "screen")


def test_a_caller_that_is_killed_takes_its_command_along(shared: Installation, tmp_path: Path) -> None:
    submit(shared, "lonely", ["sleep", "1000"])
    until(lambda: running(shared, "lonely"), "the run")
    mark = tmp_path / "pid"
    caller = Reading(shared, "exec", "lonely", "--", "sh", "-c", f"echo $$ > {mark}; exec sleep 994")
    pid = int(until(lambda: mark.exists() and mark.read_text().strip(), "the command"))
    caller.process.kill()

    until(lambda: not alive(pid), "the command to be gone")
    shared.moor("cancel", "lonely")

"""A server that somebody else started is told by its very identity, and only exactly that is ever ended."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from moorage.agent.claims import ClaimDesk, identify
from moorage.runners.identity import boot_id
from moorage.wire.claim import ClaimRequest

LISTENER = (
    "import socket,sys,time\n"
    "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
    "print(s.getsockname()[1], flush=True); time.sleep(1000)\n"
)
DEAF = (
    "import signal,sys,time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(1000)\n"
)


class _Quiet:
    def warning(self, *_: object, **__: object) -> None: ...

    def info(self, *_: object, **__: object) -> None: ...


class _Engines:
    async def answering(self):
        return ("process",)

    def containers(self):
        return ()


class _Means:
    engines, log, clock = _Engines(), _Quiet(), None


@pytest.fixture
def desk():
    return ClaimDesk(_Means(), None)


@pytest.fixture
def started():
    running = []

    def start(program, **given):
        it = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, **given)
        running.append(it)
        return it, it.stdout.readline().strip()

    yield start
    for one in running:
        one.kill()
        one.wait()


def test_a_process_is_identified_with_its_start_and_boot_and_whether_it_listens_there(started):
    it, port = started(LISTENER)
    answer = identify(it.pid, int(port))
    assert (answer.found, answer.holds_port, answer.ours) == (True, True, False)
    assert (answer.proof["pid"], answer.proof["boot_id"]) == (it.pid, boot_id())
    assert "time.sleep(1000)" in answer.command
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert identify(it.pid, other.getsockname()[1]).holds_port is False


def test_what_does_not_run_is_not_found(started):
    it, _ = started(LISTENER)
    it.kill()
    it.wait()
    assert not identify(it.pid, None).found


def test_what_an_agent_started_is_known_as_ours(started):
    it, _ = started(LISTENER, env={**os.environ, "MOORAGE_COOKIE": "c" * 32})
    assert identify(it.pid, None).ours


async def test_it_is_asked_to_end_and_its_end_is_proven(desk, started):
    it, _ = started(LISTENER)
    proof = identify(it.pid, None).proof
    request = ClaimRequest(id="q", action="end", resource=f"pid:{it.pid}", proof=proof, grace_s=60.0)
    answer = await desk._answer(request)
    assert (answer.gone, it.wait()) == (True, -signal.SIGTERM)
    assert (await desk._answer(request)).gone


async def test_what_does_not_listen_to_the_signal_is_killed_after_its_grace(desk, started):
    it, _ = started(DEAF)
    proof = identify(it.pid, None).proof
    request = ClaimRequest(id="q", action="end", resource=f"pid:{it.pid}", proof=proof, grace_s=0.05)
    assert (await desk._answer(request)).gone
    assert it.wait() == -signal.SIGKILL


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"boot_id": "another"}, {"start_ticks": 0}])
async def test_another_process_under_the_same_pid_is_never_touched(desk, started, change):
    it, _ = started(LISTENER)
    proof = {**identify(it.pid, None).proof, **change}
    answer = await desk._answer(ClaimRequest(id="q", action="end", resource=f"pid:{it.pid}", proof=proof, grace_s=0.0))
    assert answer.gone  # the one that was meant is
    assert it.poll() is None


async def test_without_a_proof_nothing_is_ended(desk, started):
    it, _ = started(LISTENER)
    await desk._answer(ClaimRequest(id="q", action="end", resource=f"pid:{it.pid}", grace_s=0.0))
    assert it.poll() is None


@pytest.mark.parametrize("resource", ["pid:x", "7", "vm:1", "container:"])
async def test_any_other_resource_is_refused_in_words(desk, resource):
    assert "neither" in ((await desk._answer(ClaimRequest(id="q", resource=resource))).error or "")

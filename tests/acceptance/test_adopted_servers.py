"""A server that somebody else started: given traffic, and ended by a delete only where it is ours to end."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.acceptance.installation import FAKE, Installation, until
from tests.ports import free_ports

pytestmark = pytest.mark.acceptance


@pytest.fixture
def theirs() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A model server that we did not start, and its port."""
    (port,) = free_ports(1)
    it = subprocess.Popen([sys.executable, FAKE, "--model", "old", "--port", str(port)])
    yield it, port
    it.kill()
    it.wait()


def test_it_gets_requests_and_a_delete_leaves_it_running(
    shared: Installation, theirs: tuple[subprocess.Popen[bytes], int]
) -> None:
    it, port = theirs
    url = f"http://127.0.0.1:{port}"
    shared.moor("adopt", url, "--name", "old", "--mode", "traffic", "--model", "old", "--wait")
    until(lambda: shared.request("old").status_code == 200, "an answer through the gateway")
    shown = shared.deployment("old")
    assert (shown["phase"], shown["ownership"], shown["upstream"]["url"]) == ("ACTIVE", "traffic", url)
    refused = shared.run("scale", "old", "--max", "3")
    assert refused.returncode != 0
    assert "somebody else runs it" in refused.stderr
    shared.moor("delete", "old", "--yes", "--wait")
    assert it.poll() is None
    assert shared.request("old").status_code == 404


def test_a_lifecycle_managed_one_is_ended_by_its_delete(
    shared: Installation, theirs: tuple[subprocess.Popen[bytes], int]
) -> None:
    it, port = theirs
    machine = shared.asked("machines")["items"][0]["name"]
    adopt = ("adopt", f"http://127.0.0.1:{port}", "--name", "theirs", "--mode", "lifecycle")
    without = shared.run(*adopt)
    assert without.returncode != 0
    assert "--resource" in without.stderr
    wrong = shared.run(*adopt, "--resource", f"{machine}/pid:1")
    assert wrong.returncode != 0
    shared.moor(*adopt, "--resource", f"{machine}/pid:{it.pid}", "--wait")
    assert shared.moor(*adopt, "--resource", f"{machine}/pid:{it.pid}").startswith("theirs: was adopted already")
    shared.moor("delete", "theirs", "--yes", "--wait")
    assert it.wait() is not None
    assert "deploy.upstream_gone" in [e["reason"]["code"] for e in shared.events("theirs")]


def test_what_does_not_list_its_model_gets_no_request(
    shared: Installation, theirs: tuple[subprocess.Popen[bytes], int]
) -> None:
    _, port = theirs
    shared.moor("adopt", f"http://127.0.0.1:{port}", "--name", "wrong", "--mode", "traffic", "--model", "another")
    until(lambda: "does not list another" in str(shared.deployment("wrong")["reason"]), "the reason")
    assert shared.deployment("wrong")["phase"] == "DEPLOYING"
    shared.moor("delete", "wrong", "--yes", "--wait")

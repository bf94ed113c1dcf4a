"""A control plane that is there and does nothing is replaced; who uses a model does not notice, and why is told."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.installation import Installation, Traffic, alive, until

pytestmark = pytest.mark.acceptance

SERVER = "moorage.app.server"


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Installation]:
    """An installation that waits for nobody as long as it would by itself."""
    installation = Installation(tmp_path / "home", extra_env={"MOORAGE_HANG_AFTER_S": "8s"})
    installation.up()
    try:
        yield installation
    finally:
        installation.down()


def _answers(installation: Installation) -> bool:
    try:
        return installation.phase("steady") == "ACTIVE"
    except httpx.HTTPError:
        return False


def test_a_control_plane_that_hangs_is_replaced_and_neither_a_model_nor_a_request_is_lost(
    impatient: Installation,
) -> None:
    impatient.apply("steady")
    model, hung = impatient.server_pid("steady"), impatient.part_pid(SERVER)
    traffic = Traffic(impatient, "steady")
    traffic.start()
    traffic.more(20)
    os.kill(hung, signal.SIGSTOP)  # it holds its socket, its lock and its lease, and ends by itself never
    until(lambda: not alive(hung), "the end of the control plane that hangs")
    until(lambda: impatient.part_pid(SERVER) != hung, "another control plane")
    until(lambda: _answers(impatient), "an answer of it")
    traffic.more(50)
    traffic.end()
    assert traffic.failures == []
    assert impatient.server_pid("steady") == model
    assert impatient.codes("steady").count("container.started") == 1

    parts = {part["name"]: part for part in impatient.json("status")["parts"]}
    assert (parts["server"]["hangs"], parts["server"]["starts"]) == (1, 2)
    assert parts["server"]["reason"]["code"] == "part.hung"
    assert [parts[name]["starts"] for name in ("agent", "gateway")] == [1, 1], "who answers is left alone"
    assert "The server hung: it answered nothing for" in impatient.moor("why")
    log = impatient.home / "logs" / "supervisor.log"
    assert f"part.hung: pid {hung} has answered nothing for" in log.read_text()
    stacks = (impatient.home / "logs" / "server.log").read_text()
    assert "Fatal Python error: Aborted" in stacks
    assert "most recent call first" in stacks

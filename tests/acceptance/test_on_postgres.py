"""The same line with the control plane's state in PostgreSQL: served, crashed, killed, adopted, deleted; and keys."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.installation import PATIENCE_S, Installation, Traffic, alive, until
from tests.postgres import NoPostgres, PostgresServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "client_keys.py"
pytestmark = [pytest.mark.acceptance, pytest.mark.postgres]


@pytest.fixture(scope="module")
def on_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation whose database is a PostgreSQL server of its own, with fsync on."""
    try:
        with PostgresServer.started(durable=True) as server:
            url = server.url("postgres")
            home = tmp_path_factory.mktemp("postgres") / "home"
            installation = Installation(home, extra_env={"MOORAGE_DATABASE_URL": url})
            installation.up()
            try:
                yield installation
            finally:
                installation.down()
    except NoPostgres as error:
        if os.environ.get("MOORAGE_REQUIRE_POSTGRES") == "1":
            raise
        pytest.skip(f"no PostgreSQL here: {error}")


def test_a_model_on_postgres_survives_crashes_of_itself_and_of_the_control_plane(on_postgres: Installation) -> None:
    own = on_postgres
    own.apply("steady")
    os.kill(own.server_pid("steady"), signal.SIGKILL)
    until(lambda: own.request("steady").status_code == 200, "the replacement")
    pid = own.server_pid("steady")
    traffic = Traffic(own, "steady")
    traffic.start()
    traffic.more(10)
    old = own.kill_part("moorage.app.server")
    until(lambda: own.part_pid("moorage.app.server") != old, "a new control plane")
    until(lambda: own.run("get", "deployment", "steady").returncode == 0, "its answers")
    traffic.more(20)
    traffic.end()
    assert traffic.failures == []
    assert own.server_pid("steady") == pid
    assert own.codes("steady").count("replica.failed") == 1
    own.moor("delete", "steady", "--yes", "--wait")
    assert not alive(pid)
    assert "deploy.deleted" in own.codes("steady")


def test_on_postgres_a_key_with_a_limit_opens_an_endpoint_and_its_usage_is_told(on_postgres: Installation) -> None:
    own = on_postgres
    own.apply("behind")
    own.moor("endpoint", "bind", "front", "behind", "--wait")
    made = own.json("keys", "create", "app", "--endpoint", "front", "--requests-per-minute", "3")

    def ask(model: str) -> int:
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        shown = {"Authorization": f"Bearer {made['key']}"}
        url = f"http://127.0.0.1:{own.gateway}/v1/chat/completions"
        return httpx.post(url, json=body, headers=shown, timeout=PATIENCE_S, verify=False).status_code

    assert [ask("front") for _ in range(4)] == [200, 200, 200, 429]
    assert ask("behind") == 403
    used = "namespaces/default/keys/app/usage?bucket=total"
    until(lambda: own.asked(used)["total"]["requests"] == 4, "the usage of four requests")
    own.kill_part("moorage.app.server")
    until(lambda: own.run("keys", "usage", "app").returncode == 0, "the control plane's answers")
    found = own.asked(used)
    [item] = found["items"]
    assert (item["endpoint"], item["answered"], item["refused"]) == ("front", 3, 1)
    assert item["input_tokens"] + item["output_tokens"] > 0
    own.moor("endpoint", "delete", "front", "--yes")
    assert own.asked("namespaces/default/keys/app")["missing_endpoints"] == ["front"]
    own.moor("keys", "revoke", "app")
    assert ask("behind") == 401
    example = [sys.executable, str(EXAMPLE), "behind"]
    told = subprocess.run(example, env=own.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert told.returncode == 0, told.stderr
    assert "[200, 200, 200, 429]" in told.stdout
    assert "after the revoke: 401" in told.stdout
    own.moor("delete", "behind", "--yes", "--wait")

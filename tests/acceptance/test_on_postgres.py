"""The same line with the control plane's state in PostgreSQL: served, crashed, killed, adopted, deleted."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.installation import Installation, Traffic, alive, until
from tests.postgres import NoPostgres, PostgresServer

pytestmark = [pytest.mark.acceptance, pytest.mark.postgres]


@pytest.fixture
def on_postgres(tmp_path: Path) -> Iterator[Installation]:
    """An installation whose database is a PostgreSQL server of its own, with fsync on."""
    try:
        with PostgresServer.started(durable=True) as server:
            url = server.url("postgres")
            installation = Installation(tmp_path / "home", extra_env={"MOORAGE_DATABASE_URL": url})
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

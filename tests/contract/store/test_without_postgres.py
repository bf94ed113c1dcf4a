"""Where no PostgreSQL can be had, its half of the suite says so and is skipped; where it is required, it fails."""

from pathlib import Path

import pytest

from tests import postgres
from tests.contract.store.conftest import do_without
from tests.postgres import NoPostgres, PostgresServer


def test_a_machine_without_the_programs_says_that_they_are_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(postgres, "PROGRAMS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoPostgres, match="not installed"), PostgresServer.started(durable=False):
        pass


def test_a_missing_server_is_skipped_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOORAGE_REQUIRE_POSTGRES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no PostgreSQL here: it is away"):
        do_without(NoPostgres("it is away"))


def test_a_missing_server_fails_where_one_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_REQUIRE_POSTGRES", "1")
    with pytest.raises(NoPostgres, match="it is away"):
        do_without(NoPostgres("it is away"))

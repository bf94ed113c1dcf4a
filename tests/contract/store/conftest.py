"""Stores for the contract suite: each test runs on SQLite and on a real PostgreSQL.

Where no PostgreSQL can be had its half is skipped with one sentence, or fails if MOORAGE_REQUIRE_POSTGRES=1.
"""

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest

from moorage.store import open_store
from moorage.store.store import SqlStore
from tests.contract.store.acting import Clock
from tests.postgres import NoPostgres, PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    try:
        with PostgresServer.started(durable=False) as server:
            yield server
    except NoPostgres as error:
        do_without(error)


def do_without(error: NoPostgres) -> NoReturn:
    """Skip what asked for a server, or fail where one is required."""
    if os.environ.get("MOORAGE_REQUIRE_POSTGRES") == "1":
        raise error
    pytest.skip(f"no PostgreSQL here: {error}")


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    return postgres_schema(postgres_server)


def postgres_schema(server: PostgresServer) -> str:
    """An empty schema of its own: a database would cost a second and hundreds of files each."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server.url('postgres')}?options=-csearch_path%3D{name}"


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def other_url(url: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A second empty database of the same engine."""
    if url.startswith("sqlite"):
        return f"sqlite:///{tmp_path / 'other.db'}"
    return postgres_schema(request.getfixturevalue("postgres_server"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@dataclass
class Opener:
    """Opens stores on one database and closes them all."""

    url: str
    clock: Clock
    opened: list[SqlStore] = field(default_factory=list)

    async def __call__(self) -> SqlStore:
        self.opened.append(await open_store(self.url, self.clock))
        return self.opened[-1]


@pytest.fixture
async def another(url: str, clock: Clock) -> AsyncIterator[Opener]:
    """Further stores on the same database, as other processes would open them."""
    opener = Opener(url, clock)
    yield opener
    for store in opener.opened:
        await store.close()


@pytest.fixture
async def store(another: Opener) -> SqlStore:
    return await another()

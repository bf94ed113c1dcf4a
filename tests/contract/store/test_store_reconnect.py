"""A PostgreSQL that drops every connection (a restart, a failover) costs at most one answer, and no follower."""

import asyncio

import psycopg
import pytest

from moorage.clock import SystemClock
from moorage.domain.errors import Unavailable
from moorage.domain.nouns import Worker
from moorage.store import open_store
from tests.contract.store.acting import change, follow_until, new, noted, soon, worker

pytestmark = pytest.mark.postgres

TERMINATE = """
SELECT count(pg_terminate_backend(pid, 30000)) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


async def every_connection_is_lost(url: str) -> int:
    """How many there were; each is gone when this returns."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        row = await (await connection.execute(TERMINATE)).fetchone()
    assert row is not None
    return int(row[0])


async def test_after_lost_connections_commits_reads_and_followers_go_on(postgres_url: str) -> None:
    store = await open_store(postgres_url, SystemClock())
    await store.commit(change(new(worker("w1"))))
    feed = store.follow(await store.cursor())
    waiting = asyncio.ensure_future(follow_until(feed, 1))
    await store.get(Worker, "w1")
    # At least the writer's, a reader's; the follower's own comes when it comes.
    assert await soon(every_connection_is_lost(postgres_url)) >= 2
    version = 1
    try:
        version = (await soon(store.commit(change(noted("w1", 1, "after"))))).versions["w1"]
    except Unavailable:
        # Clear enough, and allowed when COMMIT itself was cut off: whoever asked looks again.
        row = await soon(store.get(Worker, "w1"))
        assert row is not None
        version = row.version
    await soon(store.commit(change(noted("w1", version, "later"))))
    rows = await soon(waiting)
    assert rows[0].reason.code in {"after", "later"}
    row = await soon(store.get(Worker, "w1"))
    assert row is not None
    assert row.version == version + 1
    await store.close()


async def test_a_follower_hears_of_other_processes_again_after_its_connection_was_lost(postgres_url: str) -> None:
    store = await open_store(postgres_url, SystemClock())
    await store.commit(change(new(worker("w1"))))
    feed = store.follow(await store.cursor())
    waiting = asyncio.ensure_future(follow_until(feed, 2))
    await store.commit(change(noted("w1", 1, "before")))
    await soon(every_connection_is_lost(postgres_url))
    other = await open_store(postgres_url, SystemClock())
    await soon(other.commit(change(noted("w1", 2, "from elsewhere"))))
    assert [h.reason.code for h in await soon(waiting)] == ["before", "from elsewhere"]
    await other.close()
    await store.close()

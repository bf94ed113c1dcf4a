"""History and its feed: one row a step and note, in an order in which nothing is ever skipped."""

import asyncio

import psycopg
import pytest

from moorage.clock import SystemClock
from moorage.domain.changes import Hold, Release, Step, Update
from moorage.domain.errors import Gone, InvalidSpec
from moorage.domain.nouns import Deployment, Operation, Replica, Worker
from moorage.store import open_store
from moorage.store.store import SqlStore
from tests.contract.store.acting import (
    Clock,
    change,
    deployment,
    follow_until,
    new,
    noted,
    run,
    soon,
    why,
    worker,
)
from tests.contract.store.conftest import Opener


async def test_each_step_is_one_history_row_with_its_observed_time(store: SqlStore, clock: Clock) -> None:
    await store.commit(change(new(worker("w1"))))
    steps = (
        Step("Preparing", "picked_up", why("a"), at=clock.now() - 9),
        Step("Starting", "started", why("b"), at=clock.now() - 5),
        Step("Running", "running", why("c", pid=7)),
    )
    await store.commit(change(Update("Worker", "w1", 1, steps, notes=(why("also"),))))
    rows = await store.history(uid="w1")
    assert [(h.kind, h.source, h.to, h.reason.code, h.version) for h in rows] == [
        ("change", None, "Pending", "created", 1),
        ("change", "Pending", "Preparing", "a", 2),
        ("change", "Preparing", "Starting", "b", 2),
        ("change", "Starting", "Running", "c", 2),
        ("note", "Running", "Running", "also", 2),
    ]
    assert [h.at for h in rows] == [clock.now(), clock.now() - 9, clock.now() - 5, clock.now(), clock.now()]
    row = await store.get(Worker, "w1")
    assert row is not None
    assert row.reason == why("c", pid=7)
    assert rows[3].reason == why("c", pid=7)


async def test_a_reason_that_says_nothing_new_is_not_recorded(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1"), why("queue.waiting", at=5, where=("a", "b")))))
    same = Update("Worker", "w1", 1, reason=why("queue.waiting", at=5, where=("a", "b")))
    done = await store.commit(change(same))
    assert dict(done.versions) == {"w1": 1}
    done = await store.commit(change(Update("Worker", "w1", 1, reason=why("queue.waiting", at=6, where=("a", "b")))))
    assert dict(done.versions) == {"w1": 2}
    await store.commit(change(Update("Worker", "w1", 2, fields={"rank": 3}, reason=why("queue.other"))))
    rows = await store.history(uid="w1")
    assert [(h.kind, h.reason.code, h.version) for h in rows] == [
        ("change", "queue.waiting", 1),
        ("note", "queue.waiting", 2),
        ("note", "queue.other", 3),
    ]
    row = await store.get(Worker, "w1")
    assert row is not None
    assert (row.reason, row.rank, row.version) == (why("queue.other"), 3, 3)


async def test_what_belongs_together_is_read_under_one_root(store: SqlStore) -> None:
    await store.commit(
        change(
            new(deployment("d1", "gemma")),
            new(Replica(uid="p1", deployment="d1", run="r1")),
            new(run("r1", "x", deployment="d1")),
            new(worker("w1", run="r1", deployment="d1")),
            new(Operation(uid="o1", target="d1")),
            new(run("r2", "job")),
            new(worker("w2", run="r2")),
        )
    )
    assert [h.object_uid for h in await store.history(root="d1")] == ["d1", "p1", "r1", "w1", "o1"]
    assert [h.object_uid for h in await store.history(root="r2")] == ["r2", "w2"]


async def test_history_is_paged_in_both_directions_and_by_namespace(store: SqlStore) -> None:
    for n in range(5):
        await store.commit(change(new(Deployment(uid=f"d{n}", name=f"n{n}", namespace="a" if n % 2 else "b"))))
    first = await store.history(limit=2)
    rest = await store.history(after=first[-1].cursor)
    assert [h.object_uid for h in (*first, *rest)] == ["d0", "d1", "d2", "d3", "d4"]
    last = await store.history(limit=2, newest_first=True)
    before = await store.history(limit=9, newest_first=True, after=last[-1].cursor)
    assert [h.object_uid for h in (*last, *before)] == ["d4", "d3", "d2", "d1", "d0"]
    assert [h.object_uid for h in await store.history(namespace="a")] == ["d1", "d3"]


async def test_nothing_follows_the_newest_cursor_until_something_is_committed(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1"))))
    cursor = await store.cursor()
    assert await store.history(after=cursor) == []
    await store.commit(change(noted("w1", 1)))
    assert [h.kind for h in await store.history(after=cursor)] == ["note"]


async def test_what_follows_the_cursor_of_a_commit_is_everything_later(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1"))))
    done = await store.commit(change(noted("w1", 1, "mine")))
    await store.commit(change(noted("w1", 2, "later")))
    codes = [h.reason.code for h in await store.history(after=done.cursor)]
    assert codes[-1] == "later"
    assert "created" not in codes


async def test_a_follower_sees_each_row_once_in_order_while_writers_write(store: SqlStore) -> None:
    await store.commit(change(*(new(worker(f"w{n}")) for n in range(8))))
    feed = store.follow(await store.cursor())

    async def write(uid: str) -> None:
        for version in range(1, 21):
            await store.commit(change(noted(uid, version, f"n{version}")))

    rows, *_ = await asyncio.gather(follow_until(feed, 160), *(write(f"w{n}") for n in range(8)))
    assert len(rows) == 160
    for n in range(8):
        mine = [h.version for h in rows if h.object_uid == f"w{n}"]
        assert mine == list(range(2, 22))
    assert [h.cursor for h in rows] == [h.cursor for h in (await store.history())[8:]]


async def test_a_follower_is_woken_by_another_process(store: SqlStore, another: Opener) -> None:
    other = await another()
    await store.commit(change(new(worker("w1"))))
    feed = store.follow(await store.cursor())
    waiting = asyncio.ensure_future(follow_until(feed, 1))
    await asyncio.sleep(0)
    await other.commit(change(noted("w1", 1, "from elsewhere")))
    assert [h.reason.code for h in await soon(waiting)] == ["from elsewhere"]


async def test_a_follower_ends_when_its_store_closes(store: SqlStore) -> None:
    feed = store.follow()
    waiting = asyncio.ensure_future(anext(feed, None))
    await store.cursor()
    await store.close()
    assert await soon(waiting) is None


async def test_a_cursor_of_another_store_is_gone_and_nonsense_is_refused(
    store: SqlStore, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = await open_store(f"sqlite:///{tmp_path_factory.mktemp('other')}/other.db", SystemClock())
    foreign = await other.cursor()
    await other.close()
    with pytest.raises(Gone):
        await store.history(after=foreign)
    with pytest.raises(Gone):
        store.follow(foreign)
    with pytest.raises(InvalidSpec):
        await store.history(after="yesterday")


async def test_a_pruned_cursor_is_gone_and_the_rest_of_history_stays(store: SqlStore, clock: Clock) -> None:
    await store.commit(change(new(worker("w1"))))
    early = (await store.history())[0].cursor
    for version in range(1, 6):
        clock.time += 10
        await store.commit(change(noted("w1", version)))
    kept_from = clock.now() - 25
    assert await store.prune_history(kept_from) == 3
    assert [h.version for h in await store.history()] == [4, 5, 6]
    with pytest.raises(Gone):
        await store.history(after=early)
    assert await store.prune_history(kept_from) == 0
    assert await store.prune_history(clock.now() + 99) == 2
    await store.commit(change(noted("w1", 6)))
    assert [h.version for h in await store.history()] == [6, 7]


async def test_holdings_say_who_holds_what(store: SqlStore) -> None:
    whose = {"namespace": "a", "models": ("H100", "A100")}
    await store.commit(change(Hold("m1", "w1", 1, (0, 2), 500, 2**33, **whose), Hold("m2", "w2", 4, (), 250, 2**20)))
    assert await store.holdings("m1") == [
        {"machine": "m1", "worker": "w1", "epoch": 1, "gpus": (0, 2), "cpu_milli": 500, "memory_bytes": 2**33, **whose}
    ]
    assert [h["worker"] for h in await store.holdings()] == ["w1", "w2"]
    await store.commit(change(Release("w1")))
    assert await store.holdings("m1") == []


INSERT = """
INSERT INTO history (xid, seq, object_kind, object_uid, root, namespace, name, kind, from_state, to_state, reason,
                     actor, at, version)
VALUES (pg_current_xact_id()::text::bigint, 1, 'Worker', %(uid)s, %(uid)s, 'default', 'x', 'note', NULL, NULL,
        '{"code": "x", "class": "progress", "message": "x"}', 'other', 1.0, 1)
"""


@pytest.mark.postgres
async def test_a_follower_misses_nothing_when_the_later_transaction_commits_first(postgres_url: str) -> None:
    """The earlier transaction has written and not committed while later ones commit; then it commits."""
    store = await open_store(postgres_url, SystemClock())
    await store.commit(change(new(worker("w1"))))
    start = await store.cursor()
    feed = store.follow(start)
    with psycopg.connect(postgres_url) as early, psycopg.connect(postgres_url) as late:
        early.execute(INSERT, {"uid": "early"})
        late.execute(INSERT, {"uid": "late"})
        late.commit()
        await store.commit(change(noted("w1", 1)))
        # Both later commits are on disk, and giving one out would skip the earlier transaction for ever.
        assert await store.history(after=start) == []
        assert await store.cursor() == start or await store.history(after=await store.cursor()) == []
        waiting = asyncio.ensure_future(follow_until(feed, 3))
        early.commit()
    rows = await soon(waiting)
    assert [h.object_uid for h in rows] == ["early", "late", "w1"]
    await store.close()


@pytest.mark.postgres
async def test_a_follower_goes_on_after_an_earlier_transaction_is_rolled_back(postgres_url: str) -> None:
    """A rollback sends no notification: the follower must look again by itself."""
    store = await open_store(postgres_url, SystemClock())
    feed = store.follow(await store.cursor())
    with psycopg.connect(postgres_url) as early:
        early.execute(INSERT, {"uid": "early"})
        await store.commit(change(new(worker("w1"))))
        waiting = asyncio.ensure_future(follow_until(feed, 1))
        await store.cursor()
        assert not waiting.done()
        early.rollback()
    assert [h.object_uid for h in await soon(waiting)] == ["w1"]
    await store.close()

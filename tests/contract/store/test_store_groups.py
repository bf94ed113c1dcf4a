"""Group commit: many writers share a transaction, and none suffers for another."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from moorage.domain.changes import Change, Fence, Hold, Key, Release, Step, Update, Write
from moorage.domain.errors import Conflict, Fenced, InvalidSpec, KeyReused, MoorageError, StaleVersion, Unavailable
from moorage.domain.nouns import Deployment, Worker
from moorage.domain.reasons import reason
from moorage.store.store import SqlStore
from tests.contract.store.acting import change, count_up, deployment, moved, new, noted, refused, soon, why, worker
from tests.contract.store.conftest import Opener


async def together(store: SqlStore, *changes: object) -> Sequence[object]:
    """Commit all at once (one group); each answer is what was committed or the error."""
    return await soon(asyncio.gather(*(store.commit(c) for c in changes), return_exceptions=True))  # type: ignore[arg-type]


async def test_a_stale_item_fails_alone_within_its_group(store: SqlStore) -> None:
    await store.commit(change(*(new(worker(f"w{n}")) for n in range(20))))
    answers = await together(store, *(change(moved(f"w{n}", 9 if n == 7 else 1)) for n in range(20)))
    assert [n for n, a in enumerate(answers) if isinstance(a, Exception)] == [7]
    assert isinstance(answers[7], StaleVersion)
    assert [w.version for w in await store.find(Worker, uid=[f"w{n}" for n in range(20)])].count(2) == 19


async def test_of_two_decisions_on_one_version_in_one_group_exactly_one_is_written(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1"))))
    answers = await together(store, *(change(noted("w1", 1, f"n{n}")) for n in range(30)))
    assert sum(isinstance(a, StaleVersion) for a in answers) == 29
    assert len(await store.history(uid="w1")) == 2


async def test_items_of_one_row_in_one_group_see_each_other_in_order(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1"))))
    changes = [change(moved("w1", n, n)) for n in range(1, 5)]
    answers = await together(store, change(new(worker("w2"))), *changes, change(noted("w2", 1)))
    assert not [a for a in answers if isinstance(a, Exception)]
    rows = await store.history(uid="w1")
    assert [(h.to, h.version) for h in rows[1:]] == [("Preparing", 2), ("Pulling", 3), ("Starting", 4), ("Running", 5)]
    row = await store.get(Worker, "w1")
    assert row is not None
    assert (str(row.state), row.version) == ("Running", 5)


async def test_a_failed_item_takes_nothing_with_it_into_later_items_of_its_group(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1"))))
    half = change(moved("w1", 1), new(deployment("d1", "x")), Hold("m1", "w1", 1, (0,)), noted("absent", 1))
    answers = await together(
        store, half, change(moved("w1", 1)), change(new(deployment("d2", "x"))), change(Hold("m1", "w1", 1, (0,)))
    )
    assert [isinstance(a, Exception) for a in answers] == [True, False, False, False]
    assert [d.uid for d in await store.find(Deployment)] == ["d2"]


@pytest.mark.parametrize("place", [0, 5, 10])
async def test_a_poisonous_item_is_split_off_and_the_others_are_written(store: SqlStore, place: int) -> None:
    """A lone surrogate passes every check and is refused by the driver itself, in the middle of the group's write."""
    await store.commit(change(*(new(worker(f"w{n}")) for n in range(11))))
    poison = Update("Worker", f"w{place}", 1, fields={"machine": "\ud800"})
    answers = await together(store, *(change(poison if n == place else noted(f"w{n}", 1)) for n in range(11)))
    assert [n for n, a in enumerate(answers) if isinstance(a, Exception)] == [place]
    assert isinstance(answers[place], InvalidSpec)
    versions = {w.uid: w.version for w in await store.find(Worker)}
    assert versions == {f"w{n}": 1 if n == place else 2 for n in range(11)}
    assert len(await store.history()) == 11 + 10


async def test_256_writers_on_contended_rows_lose_no_update(store: SqlStore) -> None:
    """Each writer notes one of 16 rows twice, trying again when stale; every note is there exactly once."""
    await store.commit(change(*(new(worker(f"w{n}")) for n in range(16))))
    stale = await soon(asyncio.gather(*(count_up(store, f"w{n % 16}", 2) for n in range(256))))
    rows = await store.find(Worker)
    assert [row.version for row in rows] == [1 + 2 * 16] * 16
    history = await store.history(limit=10_000)
    assert len(history) == 16 + 512
    assert sum(stale) > 0
    for row in rows:
        assert [h.version for h in history if h.object_uid == row.uid] == list(range(1, row.version + 1))


async def test_writers_of_two_processes_lose_no_update(store: SqlStore, another: Opener) -> None:
    other = await another()
    await store.commit(change(new(worker("w1")), new(worker("w2"))))
    writers = (count_up(s, uid, 3) for s in (store, other) for uid in ("w1", "w2") for _ in range(5))
    await soon(asyncio.gather(*writers))
    for uid in ("w1", "w2"):
        row = await store.get(Worker, uid)
        assert row is not None
        assert row.version == 31
        assert [h.version for h in await store.history(uid=uid)] == list(range(1, 32))


async def test_changes_of_many_rows_from_two_processes_never_deadlock(store: SqlStore, another: Opener) -> None:
    """Each process names the rows in the opposite order."""
    other = await another()
    uids = [f"w{n}" for n in range(6)]
    await store.commit(change(*(new(worker(uid)) for uid in uids)))

    async def write(through: SqlStore, order: list[str], times: int) -> None:
        while times:
            rows = {w.uid: w.version for w in await through.find(Worker)}
            try:
                await through.commit(change(*(noted(uid, rows[uid]) for uid in order)))
                times -= 1
            except StaleVersion:
                continue

    await soon(asyncio.gather(*(write(s, uids[:: 1 if s is store else -1], 5) for s in (store, other) for _ in "ab")))
    assert {w.version for w in await store.find(Worker)} == {21}


async def test_a_caller_that_goes_away_harms_nobody(store: SqlStore) -> None:
    await store.commit(change(*(new(worker(f"w{n}")) for n in range(10))))
    tasks = [asyncio.ensure_future(store.commit(change(noted(f"w{n}", 1)))) for n in range(10)]
    await asyncio.sleep(0)
    tasks[4].cancel()
    answers = await soon(asyncio.gather(*tasks, return_exceptions=True))
    assert isinstance(answers[4], asyncio.CancelledError)
    assert not [a for n, a in enumerate(answers) if n != 4 and isinstance(a, BaseException)]
    row = await store.get(Worker, "w4")
    assert row is not None
    await store.commit(change(noted("w4", row.version)))


async def test_what_was_queued_before_closing_is_written_and_later_work_is_refused(
    store: SqlStore, another: Opener
) -> None:
    await store.commit(change(new(worker("w1"))))
    queued = asyncio.ensure_future(store.commit(change(noted("w1", 1))))
    await asyncio.sleep(0)
    await store.close()
    assert (await soon(queued)).versions == {"w1": 2}
    await refused(store.commit(change(noted("w1", 2))), Unavailable)
    row = await (await another()).get(Worker, "w1")
    assert row is not None
    assert row.version == 2


# --- leases and fences ---


async def test_a_lease_has_one_holder_and_each_new_one_a_higher_generation(store: SqlStore, clock: object) -> None:
    first = await store.acquire("leader", "a", 30)
    assert first is not None
    assert (first.generation, await store.acquire("leader", "b", 30)) == (1, None)
    seen = await store.lease("leader")
    assert (seen.owner, seen.generation, seen.expires_at) == ("a", 1, first.expires_at)
    assert await store.lease("nobody's") is None
    renewed = await store.acquire("leader", "a", 60)
    assert renewed is not None
    assert (renewed.generation, renewed.expires_at) == (1, first.expires_at + 30)
    clock.time += 61  # type: ignore[attr-defined]
    second = await store.acquire("leader", "b", 30)
    assert second is not None
    assert second.generation == 2
    await store.release(first)
    assert await store.acquire("leader", "c", 30) is None
    await store.release(second)
    third = await store.acquire("leader", "b", 30)
    assert third is not None
    assert third.generation == 3


async def test_an_old_generation_writes_nothing(store: SqlStore, another: Opener, clock: object) -> None:
    await store.commit(change(new(worker("w1"))))
    old = await store.acquire("leader", "a", 30)
    assert old is not None
    await store.commit(change(noted("w1", 1), fence=Fence("leader", old.generation)))
    clock.time += 31  # type: ignore[attr-defined]
    other = await another()
    taken = await other.acquire("leader", "b", 30)
    assert taken is not None
    before = await store.history()
    await refused(store.commit(change(noted("w1", 2), fence=Fence("leader", old.generation))), Fenced)
    await refused(store.commit(change(noted("w1", 2), fence=Fence("no such lease", 1))), Fenced)
    assert await store.history() == before
    await other.commit(change(noted("w1", 2), fence=Fence("leader", taken.generation)))
    await other.release(taken)
    await refused(other.commit(change(noted("w1", 3), fence=Fence("leader", taken.generation))), Fenced)


async def test_one_of_many_that_ask_at_once_gets_the_lease(store: SqlStore, another: Opener) -> None:
    other = await another()
    asked = (s.acquire("leader", f"{n}", 30) for n, s in enumerate([store, other] * 10))
    held = [lease for lease in await soon(asyncio.gather(*asked)) if lease is not None]
    assert [lease.generation for lease in held] == [1]


# --- idempotency ---


def keyed(uid: str, intent: str = "i", key: str = "k") -> object:
    return change(new(worker(uid)), key=Key("default", key, intent, {"uid": uid}))


async def test_a_repeated_key_answers_the_first_result_and_writes_nothing(store: SqlStore) -> None:
    first = await store.commit(keyed("w1"))  # type: ignore[arg-type]
    again = await store.commit(keyed("w2"))  # type: ignore[arg-type]
    assert (first.replayed, first.result) == (False, {"uid": "w1"})
    assert (again.replayed, again.result, dict(again.versions)) == (True, {"uid": "w1"}, {})
    assert [w.uid for w in await store.find(Worker)] == ["w1"]
    await refused(store.commit(keyed("w3", "another")), KeyReused)  # type: ignore[arg-type]
    await store.commit(keyed("w3", key="k2"))  # type: ignore[arg-type]


async def test_a_key_used_by_many_at_once_is_written_once(store: SqlStore, another: Opener) -> None:
    other = await another()
    answers = await soon(
        asyncio.gather(*(s.commit(keyed(f"{name}{n}")) for n in range(20) for name, s in (("a", store), ("b", other))))  # type: ignore[arg-type]
    )
    written = [a for a in answers if not a.replayed]
    assert len(written) == 1
    assert {a.result["uid"] for a in answers} == {written[0].result["uid"]}
    assert len(await store.find(Worker)) == 1


async def test_a_failed_change_leaves_its_key_free(store: SqlStore) -> None:
    failing = change(noted("absent", 1), key=Key("default", "k", "i", {"uid": "w1"}))
    await refused(store.commit(failing), StaleVersion)
    assert not (await store.commit(keyed("w1"))).replayed  # type: ignore[arg-type]


# --- holdings ---


async def test_a_gpu_is_held_by_one_worker_at_a_time(store: SqlStore) -> None:
    await store.commit(change(Hold("m1", "w1", 1, (0, 1))))
    await refused(store.commit(change(Hold("m1", "w2", 1, (1, 2)))), StaleVersion)
    await store.commit(change(Hold("m2", "w2", 1, (1, 2))))
    await store.commit(change(Release("w1"), Hold("m1", "w3", 1, (1, 2))))
    assert [(h["machine"], h["worker"], h["gpus"]) for h in await store.holdings()] == [
        ("m1", "w3", (1, 2)),
        ("m2", "w2", (1, 2)),
    ]


async def test_of_many_that_want_the_last_gpu_one_gets_it(store: SqlStore, another: Opener) -> None:
    other = await another()
    answers = await soon(
        asyncio.gather(
            *(
                s.commit(change(Hold("m1", f"{n}-{i}", 1, (0,))))
                for n in range(10)
                for i, s in enumerate([store, other])
            ),
            return_exceptions=True,
        )
    )
    assert sum(not isinstance(a, Exception) for a in answers) == 1
    assert all(isinstance(a, StaleVersion | Conflict) for a in answers if isinstance(a, Exception))


async def test_memory_and_cpu_of_a_machine_are_never_given_away_twice(store: SqlStore, another: Opener) -> None:
    """Two processes place at once, each on a view in which one more worker fits: versions would let both win."""
    other = await another()

    def hold(name: str) -> object:
        return change(Hold("m1", name, 1, (), 1000, 10, limit_cpu_milli=4500, limit_memory_bytes=1000))

    answers = await soon(
        asyncio.gather(
            *(s.commit(hold(f"{n}-{i}")) for n in range(15) for i, s in enumerate([store, other])),  # type: ignore[arg-type]
            return_exceptions=True,
        )
    )
    assert sum(not isinstance(a, Exception) for a in answers) == 4
    assert all(isinstance(a, StaleVersion) for a in answers if isinstance(a, MoorageError))
    assert sum(h["cpu_milli"] for h in await store.holdings("m1")) == 4000


async def test_a_name_taken_by_two_processes_at_once_goes_to_one(store: SqlStore, another: Opener) -> None:
    other = await another()
    answers = await soon(
        asyncio.gather(
            *(
                s.commit(change(new(deployment(f"d{n}{i}", "x"))))
                for n in range(10)
                for i, s in enumerate([store, other])
            ),
            return_exceptions=True,
        )
    )
    assert sum(not isinstance(a, Exception) for a in answers) == 1
    assert all(isinstance(a, Conflict) for a in answers if isinstance(a, Exception))
    assert len(await store.find(Deployment)) == 1


async def test_a_step_and_a_hold_of_one_change_stand_or_fall_together(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1")), Hold("m1", "w9", 1, (0,))))
    placed = Update("Worker", "w1", 1, (Step("Preparing", "picked_up", why()),), {"machine": "m1"})
    await refused(store.commit(change(placed, Hold("m1", "w1", 1, (0,)))), StaleVersion)
    row = await store.get(Worker, "w1")
    assert row is not None
    assert (str(row.state), row.machine, row.version) == ("Pending", None, 1)


async def test_of_many_changes_committed_together_only_those_refused_are_not_written(store: SqlStore) -> None:
    changes = [change(new(worker(f"a{n}")), new(worker(f"b{n}"))) for n in range(40)]
    changes[7] = change(new(worker("a7")), noted("absent", 3))
    answers = await soon(store.commit_each(changes))
    assert [n for n, answer in enumerate(answers) if isinstance(answer, MoorageError)] == [7]
    assert isinstance(answers[7], StaleVersion)
    assert len(await store.find(Worker)) == 78  # nothing of the seventh: each change is all or nothing
    assert await store.commit_each([]) == []


async def test_many_changes_committed_together_come_in_their_order_and_see_each_other(store: SqlStore) -> None:
    answers = await soon(
        store.commit_each(
            [
                change(new(worker("w1")), Hold("m1", "w1", 1, (0,))),
                change(new(worker("w2")), Hold("m1", "w2", 1, (0,))),
                change(moved("w1", 1)),
            ]
        )
    )
    assert [type(answer).__name__ for answer in answers] == ["Committed", "StaleVersion", "Committed"]
    assert [(w.uid, str(w.state)) for w in await store.find(Worker)] == [("w1", "Preparing")]
    assert [h["worker"] for h in await store.holdings()] == ["w1"]


def placing(name: str, gpu: int, *more: Write) -> Change:
    """A placement as the scheduler writes it."""
    fields = {"machine": "m1", "epoch": 1, "gpus": (gpu,), "handed_over": True, "placement": None}
    placed = Update("Worker", name, 1, (), fields, reason("worker.placed", machine="node-1"))
    return change(placed, Hold("m1", name, 1, (gpu,), 10, 20, 100, 200, within_quota=True), *more)


async def test_a_placement_that_loses_leaves_nothing_for_those_after_it_in_its_group(store: SqlStore) -> None:
    names = ("w1", "w2", "w3")
    await store.commit(change(*(new(worker(name)) for name in names)))
    at = await store.cursor()
    several = [placing("w1", 0), placing("w2", 0), placing("w2", 1), placing("w2", 2), placing("w3", 1)]
    answers = await soon(store.commit_each(several))
    assert [type(a).__name__ for a in answers] == [
        *("Committed", "StaleVersion", "Committed", "StaleVersion", "StaleVersion")
    ]
    rows = [await store.get(Worker, name) for name in names]
    assert [(r.machine, r.gpus, r.version) for r in rows if r is not None] == [
        *(("m1", (0,), 2), ("m1", (1,), 2), (None, (), 1))
    ]
    assert [(h["worker"], h["gpus"]) for h in await store.holdings()] == [("w1", (0,)), ("w2", (1,))]
    lines = await store.history(after=at)
    assert [(line.object_uid, line.kind, line.version, line.reason.code) for line in lines] == [
        ("w1", "note", 2, "worker.placed"),
        ("w2", "note", 2, "worker.placed"),
    ]


async def test_a_placement_is_written_alike_alone_and_beside_other_writes(store: SqlStore) -> None:
    await store.commit(change(*(new(worker(name)) for name in ("w1", "w2", "w3"))))
    at = await store.cursor()
    await store.commit(placing("w1", 0))
    await store.commit(placing("w2", 1, noted("w3", 1)))
    alone, beside = await store.get(Worker, "w1"), await store.get(Worker, "w2")
    assert alone is not None
    assert beside is not None
    differ: dict[str, Any] = {"uid": "", "name": "", "gpus": (), "updated_at": 0.0, "created_at": 0.0}
    assert replace(alone, **differ) == replace(beside, **differ)
    lines = {line.object_uid: line for line in await store.history(after=at)}
    own: dict[str, Any] = {"cursor": "", "object_uid": "", "name": "", "root": "", "at": 0.0}
    assert replace(lines["w1"], **own) == replace(lines["w2"], **own)

"""No placement and no submission exceeds a namespace's quota, whoever decides beside it; on both engines."""

import asyncio
from typing import Any

import sqlalchemy as sa

from moorage.domain.changes import Change, Hold, Release, Update
from moorage.domain.errors import MoorageError, QuotaExceeded, StaleVersion
from moorage.domain.ids import namespace_uid
from moorage.domain.nouns import Deployment, Namespace
from moorage.store import engines, migrate
from moorage.store.store import SqlStore
from tests.contract.store.acting import change, deployment, new, run, why
from tests.contract.store.conftest import Opener
from tests.contract.store.test_store_migrations import run_sql


def namespace(name: str, **limits: int) -> Namespace:
    shown = {resource.replace("__", "."): limit for resource, limit in limits.items()}
    return Namespace(uid=namespace_uid(name), namespace=name, name=name, limits=shown)


def placed(worker: str, gpus: tuple[int, ...] = (), ns: str = "a", **fields: Any) -> Hold:
    models = fields.pop("models", ("H100",) * len(gpus))
    machine = fields.pop("machine", f"m-{worker}")
    return Hold(machine, worker, 1, gpus, namespace=ns, models=models, within_quota=True, **fields)


async def tried(store: SqlStore, *changes: Change) -> list[MoorageError | None]:
    """Commit them at once; the error of each."""
    answers = await asyncio.gather(*(store.commit(c) for c in changes), return_exceptions=True)
    assert all(not isinstance(a, BaseException) or isinstance(a, MoorageError) for a in answers), answers
    return [a if isinstance(a, MoorageError) else None for a in answers]


async def test_two_placements_of_one_group_never_exceed_a_quota_together(store: SqlStore) -> None:
    await store.commit(change(new(namespace("a", gpus=3))))
    errors = await tried(store, *(change(placed(f"w{n}", (0, 1))) for n in range(3)), change(placed("w9", (0,))))
    assert [type(e) for e in errors] == [type(None), StaleVersion, StaleVersion, type(None)]
    assert sum(len(h["gpus"]) for h in await store.holdings()) == 3


async def test_two_control_planes_never_exceed_a_quota_together(store: SqlStore, another: Opener) -> None:
    other = await another()
    await store.commit(change(new(namespace("a", cpu=10_000))))
    planes = (store, other)
    errors = await asyncio.gather(
        *(tried(planes[n % 2], change(placed(f"w{n}", cpu_milli=1500, memory_bytes=1))) for n in range(12))
    )
    assert sum(e is None for (e,) in errors) == 6
    assert sum(h["cpu_milli"] for h in await store.holdings()) == 9000


async def test_a_gang_is_summed_whole_and_leaves_nothing_when_it_does_not_fit(store: SqlStore) -> None:
    await store.commit(change(new(namespace("a", gpus=8))))
    gang = change(*(placed(f"w{n}", tuple(range(4))) for n in range(3)))
    assert [type(e) for e in await tried(store, gang)] == [StaleVersion]
    assert await store.holdings() == []
    await store.commit(change(placed("w0", (0, 1, 2, 3)), placed("w1", (0, 1, 2, 3))))


async def test_what_is_given_up_in_a_change_or_before_it_in_the_group_counts_no_more(store: SqlStore) -> None:
    await store.commit(change(new(namespace("a", gpus=2))))
    await store.commit(change(placed("w0", (0, 1))))
    await store.commit(change(Release("w0"), placed("w1", (0, 1))))
    assert await tried(store, change(Release("w1")), change(placed("w2", (0, 1)))) == [None, None]
    assert [type(e) for e in await tried(store, change(placed("w3", (0,))))] == [StaleVersion]


async def test_gpus_count_by_their_model_and_other_namespaces_not_at_all(store: SqlStore) -> None:
    await store.commit(change(new(namespace("a", gpu_models__H100=1))))
    await store.commit(change(placed("w0", (0,)), placed("w1", (0, 1), models=("A100", "A100"))))
    await store.commit(change(placed("w2", tuple(range(8)), ns="b")))
    assert [type(e) for e in await tried(store, change(placed("w3", (0,))))] == [StaleVersion]
    await store.commit(change(placed("w4", (0,), models=("A100",))))


async def test_what_is_there_already_is_counted_though_it_is_above_the_quota(store: SqlStore) -> None:
    await store.commit(change(new(namespace("a", gpus=1))))
    await store.commit(change(Hold("m1", "w0", 1, (0, 1), namespace="a", models=("H100", "H100"))))
    assert [type(e) for e in await tried(store, change(placed("w1", (0,))))] == [StaleVersion]
    await store.commit(change(placed("w2", cpu_milli=1000)))


async def test_a_quota_that_is_lowered_or_made_in_the_group_binds_what_comes_after(store: SqlStore) -> None:
    made = change(new(namespace("a", gpus=1)))
    errors = await tried(store, change(placed("w0", (0,))), made, change(placed("w1", (0,))))
    assert [type(e) for e in errors] == [type(None), type(None), StaleVersion]
    raised = Update("Namespace", namespace_uid("a"), 1, fields={"limits": {"gpus": 2}}, reason=why("raised"))
    assert await tried(store, change(raised), change(placed("w1", (0,)))) == [None, None]
    lowered = Update("Namespace", namespace_uid("a"), 2, fields={"limits": {"gpus": 1}}, reason=why("lowered"))
    await store.commit(change(lowered))
    assert [type(e) for e in await tried(store, change(placed("w2", (0,))))] == [StaleVersion]


async def test_runs_are_counted_while_they_are_not_over(store: SqlStore, another: Opener) -> None:
    other = await another()
    await store.commit(change(new(namespace("default", runs=2))))
    stores = (store, other, store, other)
    errors = await asyncio.gather(*(tried(s, change(new(run(f"r{n}", f"n{n}")))) for n, s in enumerate(stores)))
    assert sorted(type(e).__name__ for (e,) in errors) == ["NoneType", "NoneType", "QuotaExceeded", "QuotaExceeded"]
    (refused,) = [e for (e,) in errors if e is not None][:1]
    assert "may have 2 runs" in refused.message
    assert "moor quota set default --runs 3" in str(refused.remedy)
    await store.commit(change(new(run("of-a-replica", "x", deployment="d1"))))


async def test_replicas_are_summed_over_the_max_of_deployments(store: SqlStore) -> None:
    await store.commit(change(new(namespace("default", replicas=5, deployments=2))))
    spec = {"replicas": {"max": 3}}
    await store.commit(change(new(Deployment(uid="d1", name="a", spec=spec))))
    errors = await tried(
        store, change(new(Deployment(uid="d2", name="b", spec=spec))), change(new(deployment("d3", "c")))
    )
    assert [type(e) for e in errors] == [QuotaExceeded, type(None)]
    for most, expected in ((5, QuotaExceeded), (4, type(None))):
        scaled = Update("Deployment", "d1", 1, fields={"spec": {"replicas": {"max": most}}})
        assert [type(e) for e in await tried(store, change(scaled))] == [expected], most
    assert [type(e) for e in await tried(store, change(new(deployment("d4", "d"))))] == [QuotaExceeded]


def test_holdings_of_an_older_schema_get_their_namespace_and_models(url: str) -> None:
    migrate(url, to="0002")
    at = "0, 0"
    run_sql(
        url,
        "INSERT INTO worker (uid, namespace, name, state, version, created_at, updated_at, live, doc) "
        f"VALUES ('w1', 'research', 'w', 'Running', 1, {at}, false, '{{}}')",
        "INSERT INTO machine (uid, namespace, name, state, version, created_at, updated_at, live, doc) "
        f"VALUES ('m1', 'default', 'm', 'Ready', 1, {at}, false, "
        """'{"capacity": {"gpus": [{"index": 0, "model": "H100"}, {"index": 1, "model": "A100"}]}}')""",
        "INSERT INTO holding (worker, epoch, machine, cpu_milli, memory_bytes) VALUES ('w1', 1, 'm1', 5, 6)",
        "INSERT INTO holding_gpu (machine, gpu, worker, epoch) VALUES ('m1', 1, 'w1', 1)",
        "INSERT INTO holding (worker, epoch, machine, cpu_milli, memory_bytes) VALUES ('gone', 1, 'm1', 1, 1)",
    )
    assert migrate(url) == "0002"
    rows = _rows(url, "SELECT worker, namespace FROM holding ORDER BY worker")
    assert rows == [("gone", ""), ("w1", "research")]
    assert _rows(url, "SELECT namespace, model FROM holding_gpu") == [("research", "A100")]


def _rows(url: str, text: str) -> list[tuple[Any, ...]]:
    with engines.reading(engines.parse(url)).connect() as connection:
        return [tuple(row) for row in connection.execute(sa.text(text))]

"""Rows: what is committed is read back, alike on both engines."""

import asyncio
import dataclasses

import pytest

from moorage.domain.changes import Create, Remove, Step, Update
from moorage.domain.errors import Conflict, IllegalTransition, InvalidSpec, StaleVersion
from moorage.domain.nouns import KINDS, Deployment, Machine, Operation, Replica, Revision, Run, Worker
from moorage.store.rows import dumps, image_of, loads, merged, shape_of
from moorage.store.store import SqlStore
from tests.contract.store.acting import Clock, change, deployment, moved, new, noted, refused, run, why, worker


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_every_noun_comes_back_as_it_was_created(store: SqlStore, clock: Clock, kind: str) -> None:
    row = KINDS[kind](uid="u1", name="n", labels={"team": "a"}, annotations={"é": ["\u0000", 1, None]})
    await store.commit(change(Create(row, why("created", n=1))))
    expected = dataclasses.replace(
        row, version=1, created_at=clock.now(), updated_at=clock.now(), reason=why("created", n=1)
    )
    assert await store.get(KINDS[kind], "u1") == expected


async def test_a_row_with_every_field_set_comes_back_with_its_types(store: SqlStore) -> None:
    row = worker("w1", machine="m1", gpus=(0, 3), request={"gpus": {"count": 2}}, handed_over=True, exit_code=-9)
    await store.commit(change(new(row)))
    back = await store.get(Worker, "w1")
    assert back is not None
    assert back.gpus == (0, 3)
    assert back.request == {"gpus": {"count": 2}}
    assert (back.handed_over, back.exit_code, back.state) == (True, -9, row.state)


async def test_an_update_sets_state_fields_reason_version_and_time(store: SqlStore, clock: Clock) -> None:
    await store.commit(change(new(worker("w1"))))
    clock.time += 5
    done = await store.commit(change(moved("w1", 1, machine="m1", exit_code=3)))
    row = await store.get(Worker, "w1")
    assert row is not None
    assert (str(row.state), row.machine, row.exit_code, row.version) == ("Preparing", "m1", 3, 2)
    assert (row.reason, row.updated_at, row.created_at) == (why("step_1"), clock.now(), clock.now() - 5)
    assert (dict(done.versions), done.at) == ({"w1": 2}, clock.now())


async def test_a_stale_update_writes_nothing(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1"))))
    await store.commit(change(moved("w1", 1)))
    await refused(store.commit(change(moved("w1", 1))), StaleVersion)
    await refused(store.commit(change(moved("absent", 1))), StaleVersion)
    assert len(await store.history(uid="w1")) == 2


async def test_a_change_is_written_whole_or_not_at_all(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1")), new(worker("w2"))))
    await refused(store.commit(change(moved("w1", 1), new(worker("w3")), moved("w2", 7))), StaleVersion)
    assert [(w.uid, w.version) for w in await store.find(Worker)] == [("w1", 1), ("w2", 1)]
    assert len(await store.history()) == 2


async def test_an_edge_that_the_table_lacks_is_never_written(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1"))))
    skipping = Update("Worker", "w1", 1, (Step("Running", "running", why()),))
    await refused(store.commit(change(skipping)), IllegalTransition)
    running = dataclasses.replace(worker("w2"), state="Running")
    await refused(store.commit(change(new(running))), IllegalTransition)
    row = await store.get(Worker, "w1")
    assert row is not None
    assert (str(row.state), row.version) == ("Pending", 1)
    assert await store.get(Worker, "w2") is None


async def test_states_versions_and_identities_cannot_be_set_as_fields(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1"))))
    for name in ("state", "version", "uid", "reason", "created_at", "updated_at", "no_such_field"):
        await refused(store.commit(change(Update("Worker", "w1", 1, fields={name: "x"}))), InvalidSpec)


async def test_one_change_cannot_write_a_row_twice(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1"))))
    await refused(store.commit(change(noted("w1", 1), noted("w1", 2))), InvalidSpec)


async def test_a_value_without_a_json_form_is_refused_alone(store: SqlStore) -> None:
    await refused(store.commit(change(new(worker("w1", request={"x": object()})))), InvalidSpec)
    await store.commit(change(new(worker("w1"))))


async def test_a_deployment_and_a_live_run_never_have_one_name(store: SqlStore) -> None:
    await store.commit(change(new(deployment("d1", "gemma")), new(run("r1", "train"))))
    error = await refused(store.commit(change(new(run("r2", "gemma")))), Conflict)
    assert "Deployment default/gemma exists already" in str(error)
    error = await refused(store.commit(change(new(deployment("d2", "train")))), Conflict)
    assert "Run default/train exists already" in str(error)
    await refused(store.commit(change(new(deployment("d3", "same")), new(run("r3", "same")))), Conflict)
    await store.commit(change(new(run("r4", "gemma", deployment="d1"))))
    ended = Update("Run", "r1", 1, (Step("Cancelled", await _trigger("Run", "Pending", "Cancelled"), why()),))
    await store.commit(change(ended))
    await store.commit(change(new(deployment("d2", "train"))))


async def test_of_a_deployment_and_a_run_made_at_once_under_one_name_one_comes_to_be(store: SqlStore) -> None:
    for n in range(10):
        made = await asyncio.gather(
            store.commit(change(new(deployment(f"d{n}", f"x{n}")))),
            store.commit(change(new(run(f"r{n}", f"x{n}")))),
            return_exceptions=True,
        )
        assert [type(m) for m in made if isinstance(m, Exception)] == [Conflict]


async def test_a_deployment_name_is_unique_while_it_exists(store: SqlStore) -> None:
    await store.commit(change(new(deployment("d1", "gemma")), new(deployment("d2", "gemma", "other"))))
    await refused(store.commit(change(new(deployment("d3", "gemma")))), Conflict)
    await store.commit(change(Remove("Deployment", "d1", 1, why("deleted"))))
    await store.commit(change(new(deployment("d3", "gemma"))))
    assert [d.uid for d in await store.find(Deployment, name="gemma")] == ["d2", "d3"]


async def test_two_creations_of_one_name_in_one_change_conflict(store: SqlStore) -> None:
    await refused(store.commit(change(new(deployment("d1", "x")), new(deployment("d2", "x")))), Conflict)
    assert await store.find(Deployment) == []


async def test_a_run_name_is_unique_only_among_live_runs_of_people(store: SqlStore) -> None:
    await store.commit(change(new(run("r1", "train")), new(run("r2", "train", deployment="d1"))))
    await refused(store.commit(change(new(run("r3", "train")))), Conflict)
    ended = Update("Run", "r1", 1, (Step("Cancelled", await _trigger("Run", "Pending", "Cancelled"), why()),))
    await store.commit(change(ended))
    await store.commit(change(new(run("r3", "train"))))


async def test_a_uid_is_never_used_again(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1"))))
    await refused(store.commit(change(new(worker("w1")))), Conflict)
    await store.commit(change(Remove("Worker", "w1", 1, why())))
    await refused(store.commit(change(new(worker("w1")))), Conflict)


async def test_a_removed_object_leaves_a_tombstone_and_its_history(store: SqlStore, clock: Clock) -> None:
    await store.commit(change(new(deployment("d1", "gemma"))))
    await store.commit(change(Remove("Deployment", "d1", 1, why("deploy.deleted"))))
    assert await store.get(Deployment, "d1") is None
    (stone,) = await store.tombstones(Deployment, "default", "gemma")
    assert stone["digest"].startswith("sha256:")
    kept = {k: stone[k] for k in ("uid", "kind", "namespace", "name", "state", "actor", "at")}
    assert kept == {
        "uid": "d1",
        "kind": "Deployment",
        "namespace": "default",
        "name": "gemma",
        "state": "created",
        "actor": "controller:test",
        "at": clock.now(),
    }
    assert stone["reason"]["code"] == "deploy.deleted"
    assert [(h.source, h.to) for h in await store.history(uid="d1")] == [(None, "created"), ("created", "deleted")]
    assert await store.tombstones(Deployment, "elsewhere") == []


async def test_rows_are_found_by_each_indexed_column(store: SqlStore) -> None:
    rows = [
        Revision(uid="v1", deployment="d1"),
        Replica(uid="p1", deployment="d1", revision="v1", run="r1", machine="m1"),
        Run(uid="r1", deployment="d1", replica="p1"),
        Worker(uid="w1", deployment="d1", run="r1", machine="m1"),
        Operation(uid="o1", target="d1", revision="v1"),
        Machine(uid="m1", name="box"),
    ]
    await store.commit(change(*(new(r) for r in rows)))
    assert [r.uid for r in await store.find(Revision, deployment="d1")] == ["v1"]
    assert [r.uid for r in await store.find(Replica, revision="v1", run="r1", status="pending")] == ["p1"]
    assert [r.uid for r in await store.find(Run, replica="p1", state=("Pending", "Running"))] == ["r1"]
    assert [r.uid for r in await store.find(Worker, machine=["m1"], deployment="d1")] == ["w1"]
    assert [r.uid for r in await store.find(Operation, target="d1", revision="v1")] == ["o1"]
    assert [r.uid for r in await store.find(Machine, name="box", namespace="default")] == ["m1"]
    assert await store.find(Worker, machine=None) == []
    assert await store.find(Worker, uid=()) == []
    with pytest.raises(InvalidSpec):
        await store.find(Worker, rank=0)


@pytest.mark.parametrize("order", ["uid", "-uid", "name", "-name", "created_at"])
async def test_pages_together_hold_every_row_once_in_order(store: SqlStore, order: str) -> None:
    for n in range(7):
        await store.commit(change(new(Worker(uid=f"w{n}", name=f"n{n % 3}"))))
    whole = [w.uid for w in await store.find(Worker, order=order)]
    assert len(set(whole)) == 7
    pages: list[str] = []
    while page := await store.find(Worker, order=order, limit=3, after=pages[-1] if pages else None):
        pages += [w.uid for w in page]
    assert pages == whole


async def test_secrets_are_kept_and_replaced(store: SqlStore) -> None:
    assert await store.secret("token") is None
    await store.put_secret("token", "a")
    await store.put_secret("token", "b")
    assert await store.secret("token") == "b"


async def test_a_secret_is_swapped_only_for_what_was_expected(store: SqlStore) -> None:
    assert not await store.swap_secret("a/x", "guess", "1")
    assert await store.swap_secret("a/x", None, "1")
    assert not await store.swap_secret("a/x", None, "2")
    assert await store.swap_secret("a/x", "1", "2")
    assert await store.secret("a/x") == "2"
    assert await store.swap_secret("a/x", "2", None)
    assert await store.secret("a/x") is None


async def test_secrets_are_listed_by_how_their_names_begin(store: SqlStore) -> None:
    for name in ("a/2", "a/1", "a%/3", "ab/4"):
        await store.put_secret(name, name)
    assert await store.secrets("a/") == {"a/1": "a/1", "a/2": "a/2"}
    assert await store.secrets("a%") == {"a%/3": "a%/3"}


async def _trigger(kind: str, source: str, target: str) -> str:
    from moorage.domain.lifecycles import TABLES

    return next(r.trigger for r in TABLES[kind].rows if (str(r.source), str(r.target)) == (source, target))


async def test_a_field_set_back_to_its_default_comes_back_so_and_takes_no_room(store: SqlStore) -> None:
    await store.commit(change(new(worker("w1", attempt=2, gpus=(1,)))))
    await store.commit(
        change(Update("Worker", "w1", 1, fields={"attempt": 1, "gpus": (), "exit_code": None, "rank": 4}))
    )
    row = await store.get(Worker, "w1")
    assert row is not None
    assert (row.attempt, row.gpus, row.exit_code, row.rank) == (1, (), None, 4)
    image = image_of(shape_of(Worker), row, reason="{}", now=1.0)
    assert loads(image.doc) == {"rank": 4}


async def test_a_row_that_says_its_defaults_is_read_and_changed_like_one_that_leaves_them_out(store: SqlStore) -> None:
    """Earlier releases wrote every field."""
    shape = shape_of(Worker)
    old = image_of(shape, worker("w1", rank=4), reason="{}", now=1.0)
    full = dataclasses.replace(old, doc=dumps({**shape.doc, **loads(old.doc)}))
    assert loads(merged(full, {"attempt": 1, "epoch": 2}))["epoch"] == 2
    assert "attempt" not in loads(merged(full, {"attempt": 1}))

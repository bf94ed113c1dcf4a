"""What the API shows of real rows: objects, pages, labels, tombstones, history, metrics."""

from dataclasses import replace
from typing import Any

import httpx
import pytest
from api_world import TOKENS, World

from moorage.control.accounts import GpuAccounts
from moorage.control.reading import Reader
from moorage.domain.changes import Change, Hold
from moorage.domain.nouns import Deployment, Machine, Operation, Replica, Revision, Run, Worker
from moorage.domain.reasons import reason
from moorage.wire.routing import EndpointRoute, RoutingTable

DEPLOYMENT_FIELDS = {
    "kind", "id", "name", "namespace", "labels", "created_at", "updated_at", "version", "reason",
    "status", "phase", "spec", "desired_replicas", "current_replicas", "ready_replicas", "starting_replicas",
    "serving", "initial_scale_reached", "promotion_in_progress", "active_revision", "candidate_revision",
    "operation", "url", "last_failure", "retry_at", "crash_looping", "paused_at", "ownership", "deleting",
    "endpoints",
}  # fmt: skip


async def make(world: World, name: str, namespace: str = "default", **fields: Any) -> Deployment:
    row = Deployment(
        uid=f"dep-{namespace}-{name}", namespace=namespace, name=name, spec={"replicas": {"min": 1}}, **fields
    )
    made = await world.rows.create(row)
    assert isinstance(made, Deployment)
    return made


async def serve(world: World, row: Deployment, machine: str) -> None:
    revision = Revision(
        uid=f"rev-{row.name}", deployment=row.uid, number=1, digest="sha256:1", spec={"model": {"id": "m"}}
    )
    await world.rows.create(revision, reason("revision.created"))
    worker = await world.rows.running_worker(f"wrk-{row.name}", row, machine)
    replica = Replica(uid=f"rep-{row.name}", deployment=row.uid, revision=revision.uid, run=worker.run)
    await world.rows.create(replica, reason("replica.created"))
    await world.rows.step(
        replica, ("initing_docker_container", "initing"), ("running", "ready"), routed=True, address="10.0.0.1:18000"
    )


async def test_a_deployment_shows_every_field_of_the_contract(world: World) -> None:
    await make(world, "gemma", labels={"team": "search"})
    shown = (await world.admin.get("/api/v1/namespaces/default/deployments/gemma")).json
    assert shown.keys() >= DEPLOYMENT_FIELDS
    assert (shown["status"], shown["phase"], shown["serving"]) == ("created", "DEPLOYING", False)
    assert shown["reason"]["code"] == "deploy.created"
    assert shown["reason"]["class"] == "progress"
    assert shown["url"] == "http://127.0.0.1:7421/v1"
    assert shown["model"] == "gemma"
    assert shown["created_at"].endswith("Z")
    assert len(shown["created_at"]) == len("2026-11-29T18:20:00.123Z")


async def test_a_serving_deployment_says_so_with_its_replica_worker_and_machine(world: World) -> None:
    machine = await world.rows.machine("lab-1")
    row = await make(world, "gemma", active_revision="rev-gemma")
    await serve(world, row, machine.uid)
    base = "/api/v1/namespaces/default"
    shown = (await world.admin.get(f"{base}/deployments/gemma")).json
    assert (shown["phase"], shown["serving"], shown["ready_replicas"], shown["current_replicas"]) == (
        "ACTIVE",
        True,
        1,
        1,
    )
    replicas = (await world.admin.get(f"{base}/deployments/gemma/replicas")).json["items"]
    assert [r["machines"] for r in replicas] == [["lab-1"]]
    assert replicas[0]["provider"]["identity"] == {
        "deployment": row.uid,
        "revision": "rev-gemma",
        "ordinal": 0,
        "attempt": 1,
    }
    assert replicas[0] == (await world.admin.get(f"{base}/replicas/rep-gemma")).json
    revisions = (await world.admin.get(f"{base}/deployments/gemma/revisions")).json["items"]
    assert [(r["number"], r["digest"]) for r in revisions] == [(1, "sha256:1")]
    run = (await world.admin.get(f"{base}/runs/{replicas[0]['run']}")).json
    assert (run["workers"]["total"], run["workers"]["running"], run["workers"]["ready"]) == (1, 1, 1)
    workers = (await world.admin.get(f"{base}/runs/{run['name']}/workers")).json["items"]
    assert [(w["id"], w["state"], w["machine"]) for w in workers] == [("wrk-gemma", "Running", "lab-1")]
    assert (await world.admin.get(f"{base}/workers/wrk-gemma")).json == workers[0]


async def test_the_operation_shown_is_the_open_one_else_the_last(world: World) -> None:
    row = await make(world, "gemma")
    done = Operation(uid="op-1", target=row.uid, operation="apply", created_at=1.0)
    await world.rows.create(done, reason("op.created"))
    await world.rows.step(done, ("leased", "leased"), ("running", "started"), ("succeeded", "succeeded"))
    path = "/api/v1/namespaces/default/deployments/gemma"
    assert (await world.admin.get(path)).json["operation"] == "op-1"
    await world.rows.create(Operation(uid="op-0", target=row.uid, operation="stop"), reason("op.created"))
    shown = (await world.admin.get(path)).json
    assert (shown["operation"], shown["phase"]) == ("op-0", "DEACTIVATING")
    listed = (await world.admin.get(f"/api/v1/operations?target={row.uid}&state=succeeded")).json["items"]
    assert [(o["id"], o["target"]) for o in listed] == [
        ("op-1", {"kind": "Deployment", "id": row.uid, "name": "gemma"})
    ]
    assert (await world.admin.get("/api/v1/operations/op-1")).json == listed[0]


async def test_pages_show_every_object_once(world: World) -> None:
    names = {f"d{i:02}" for i in range(7)}
    for name in names:
        await make(world, name)
    seen: list[str] = []
    following = ""
    while True:
        page = (await world.admin.get(f"/api/v1/namespaces/default/deployments?limit=3{following}")).json
        seen += [d["name"] for d in page["items"]]
        assert len(page["items"]) <= 3
        if page["next"] is None:
            break
        following = f"&after={page['next']}"
    assert sorted(seen) == sorted(names)


async def test_a_page_of_deployments_comes_by_name_and_one_of_operations_oldest_first(world: World) -> None:
    for name in ("b", "c", "a"):
        await make(world, name)
    for uid in ("op-2", "op-3", "op-1"):
        await world.rows.create(Operation(uid=uid, target="dep"), reason("op.created"))
        world.clock.advance(1.0)
    shown = (await world.admin.get("/api/v1/namespaces/default/deployments")).json["items"]
    assert [d["name"] for d in shown] == ["a", "b", "c"]
    shown = (await world.admin.get("/api/v1/operations?target=dep")).json["items"]
    assert [o["id"] for o in shown] == ["op-2", "op-3", "op-1"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("team=search", {"a", "b"}),
        ("team=search,tier=dev", {"b"}),
        ("team!=search", {"c", "d"}),
        ("tier", {"b", "c"}),
        ("team=nobody", set()),
    ],
)
async def test_labels_select_across_pages(world: World, selector: str, names: set[str]) -> None:
    await make(world, "a", labels={"team": "search"})
    await make(world, "b", labels={"team": "search", "tier": "dev"})
    await make(world, "c", labels={"team": "ads", "tier": "prod"})
    await make(world, "d")
    found: set[str] = set()
    after = ""
    while after is not None:
        path = f"/api/v1/namespaces/default/deployments?limit=1&labels={selector}" + (
            f"&after={after}" if after else ""
        )
        page = (await world.admin.get(path)).json
        found |= {d["name"] for d in page["items"]}
        after = page["next"]
    assert found == names


async def test_a_list_reads_each_noun_once_however_long_it_is(world: World) -> None:
    machine = await world.rows.machine("lab-1")

    async def reads() -> dict[str, int]:
        world.store.reads.clear()
        assert (await world.admin.get("/api/v1/namespaces/default/deployments")).status == 200
        assert (await world.admin.get("/api/v1/namespaces/default/runs")).status == 200
        assert (await world.admin.get("/api/v1/machines")).status == 200
        return dict(world.store.reads)

    await serve(world, await make(world, "one"), machine.uid)
    few = await reads()
    for name in ("two", "three", "four"):
        await serve(world, await make(world, name), machine.uid)
    assert await reads() == few


async def test_another_namespace_sees_nothing_of_it(world: World) -> None:
    row = await make(world, "gemma", namespace="red")
    assert (await world.admin.get("/api/v1/namespaces/red/deployments/gemma")).json["model"] == "red/gemma"
    for name in ("gemma", row.uid):
        assert (await world.admin.get(f"/api/v1/namespaces/blue/deployments/{name}")).status == 404
    assert (await world.admin.get("/api/v1/namespaces/blue/deployments")).json["items"] == []
    listed = (await world.admin.get("/api/v1/namespaces")).json["items"]
    assert [n["name"] for n in listed] == ["default", "red"]


async def test_a_deleted_deployment_leaves_a_tombstone_and_its_history(world: World) -> None:
    row = await make(world, "gemma")
    await world.rows.remove(row)
    base = "/api/v1/namespaces/default/deployments"
    assert (await world.admin.get(f"{base}/gemma")).status == 404
    gone = (await world.admin.get(f"{base}/gemma?deleted=true")).json
    assert (gone["id"], gone["deleted"], gone["reason"]["code"]) == (row.uid, True, "deploy.deleted")
    assert (await world.admin.get(f"{base}/{row.uid}?deleted=true")).json == gone
    assert (await world.admin.get(f"{base}?deleted=true")).json["items"] == [gone]
    history = (await world.admin.get(f"{base}/gemma/history")).json["items"]
    assert [c["reason"]["code"] for c in history] == ["deploy.created", "deploy.deleted"]
    assert (await world.admin.get(f"{base}/llama?deleted=true")).status == 404


async def test_a_namesake_made_later_does_not_show_the_first_ones_history(world: World) -> None:
    await world.rows.remove(await make(world, "gemma"))
    await world.rows.create(Deployment(uid="dep-new", name="gemma"))
    history = (await world.admin.get("/api/v1/namespaces/default/deployments/gemma/history")).json["items"]
    assert {c["object"]["id"] for c in history} == {"dep-new"}


async def test_history_of_a_deployment_has_what_is_under_it_and_pages_without_loss(world: World) -> None:
    machine = await world.rows.machine("lab-1")
    row = await make(world, "gemma")
    await serve(world, row, machine.uid)
    path = "/api/v1/namespaces/default/deployments/gemma/history"
    whole = (await world.admin.get(path)).json["items"]
    assert {c["object"]["kind"] for c in whole} == {"Deployment", "Revision", "Run", "Worker", "Replica"}
    paged: list[Any] = []
    after = ""
    while after is not None:
        page = (await world.admin.get(f"{path}?limit=2" + (f"&after={after}" if after else ""))).json
        paged += page["items"]
        after = page["next"]
    assert paged == whole
    run = (await world.admin.get("/api/v1/namespaces/default/runs/run-wrk-gemma/history")).json["items"]
    assert {c["object"]["kind"] for c in run} == {"Run"}
    worker = (await world.admin.get("/api/v1/namespaces/default/workers/wrk-gemma/history")).json["items"]
    assert [(c["from"], c["to"]) for c in worker][-2:] == [("Preparing", "Starting"), ("Starting", "Running")]
    joined = (await world.admin.get("/api/v1/machines/lab-1/history")).json["items"]
    assert [c["reason"]["code"] for c in joined] == ["machine.joined"]


async def test_metrics_count_states_answers_and_commits_and_read_an_idle_store_once(world: World) -> None:
    await make(world, "a")
    await make(world, "b")
    text = (await world.admin.get("/metrics")).body.decode()
    assert 'moorage_objects{kind="Deployment",state="created"} 2.0' in text
    assert "moorage_store_commits_total 41.0" in text
    world.store.reads.clear()
    text = (await world.admin.get("/metrics")).body.decode()
    assert 'moorage_api_answers_total{method="GET",status="200"} 1.0' in text
    assert not world.store.reads
    await make(world, "c")
    assert 'state="created"} 3.0' in (await world.admin.get("/metrics")).body.decode()


async def test_why_and_cordon_reach_their_rooms(world: World) -> None:
    assert (await world.admin.get("/api/v1/namespaces/default/deployments/gemma/why")).json[
        "subject"
    ] == "default/gemma"
    machine = await world.rows.machine("lab-1")
    await world.admin.ask("POST", "/api/v1/machines/lab-1/cordon", body={"why": "fan"})
    await world.admin.ask("POST", "/api/v1/machines/lab-1/uncordon")
    cordon, uncordon = world.commands.calls
    assert (cordon[0], cordon[1], cordon[2]["why"]) == ("cordon", (machine.name,), "fan")
    assert (uncordon[0], uncordon[1]) == ("uncordon", (machine.name,))


async def test_drains_and_removals_reach_their_room_and_a_dry_run_orders_nothing(world: World) -> None:
    machine = await world.rows.machine("lab-1")
    path = "/api/v1/machines/lab-1"
    await world.admin.ask("POST", f"{path}/drain", body={"grace": "15m"})
    await world.admin.ask("POST", f"{path}/drain?dry_run=true", body={})
    await world.admin.ask("DELETE", path)
    await world.admin.ask("DELETE", f"{path}?dry_run=true")
    told = [(name, args, kw.get("grace_s"), kw.get("removed")) for name, args, kw in world.commands.calls]
    assert told == [
        ("drain_machine", (machine.name,), 900.0, None),
        ("machine_dry_run", (machine.name,), None, False),
        ("remove_machine", (machine.name,), None, None),
        ("machine_dry_run", (machine.name,), None, True),
    ]
    wrong = await world.admin.ask("POST", f"{path}/drain", body={"grace": "soon"})
    assert wrong.status == 422


async def test_gateways_get_tables_and_confirm_them(world: World) -> None:
    gateway = world.as_(TOKENS.gateway)
    assert (await gateway.get("/api/v1/routing/table?after=1")).status == 204
    world.gateways.answer = RoutingTable(
        incarnation="i", number=4, endpoints=(EndpointRoute(name="gemma", deployment="dep-1", mode="starting"),)
    )
    got = await gateway.get("/api/v1/routing/table?incarnation=i&after=3")
    assert RoutingTable.model_validate_json(got.body) == world.gateways.answer
    report = {"gateway": "g-1", "incarnation": "x", "table_incarnation": "i", "table_number": 4}
    assert (await gateway.ask("POST", "/api/v1/routing/report", body=report)).json["number"] == 9
    assert world.gateways.seen[0].table_number == 4


async def test_a_request_is_asked_of_every_gateway_that_reported(world: World) -> None:
    gateway = world.as_(TOKENS.gateway)
    assert (await world.admin.get("/api/v1/requests/r-1")).status == 404
    for name, address in (("g-1", "10.0.0.1:7421"), ("g-2", "10.0.0.2:7421")):
        report = {"gateway": name, "incarnation": "x", "address": address}
        await gateway.ask("POST", "/api/v1/routing/report", body=report)
    world.gateway_answers["10.0.0.1"] = httpx.Response(404, json={})
    silent = await world.admin.get("/api/v1/requests/r-1")
    assert silent.status == 503
    assert "10.0.0.2" in silent.json["message"]
    world.gateway_answers["10.0.0.2"] = httpx.Response(200, json={"request_id": "r-1", "endpoint": "gemma"})
    assert (await world.admin.get("/api/v1/requests/r-1")).json == {"request_id": "r-1", "endpoint": "gemma"}
    assert {r.headers["authorization"] for r in world.gateway_asked} == {f"Bearer {TOKENS.gateway}"}
    world.gateway_answers["10.0.0.2"] = httpx.Response(404, json={})
    assert (await world.admin.get("/api/v1/requests/r-1")).status == 404


async def test_waiting_runs_show_their_place_in_the_schedulers_order(world: World) -> None:
    for name, priority, queued_at in (("late", 0, 9.0), ("early", 0, 1.0), ("urgent", 5, 10.0)):
        await world.rows.create(Run(uid=f"run-{name}", name=name, priority=priority, queued_at=queued_at))
        for rank in (0, 1):
            worker = Worker(uid=f"wrk-{name}-{rank}", name=f"{name}-{rank}", run=f"run-{name}", rank=rank)
            await world.rows.create(replace(worker, queued_at=queued_at))
    listed = (await world.admin.get("/api/v1/namespaces/default/runs")).json["items"]
    assert {r["name"]: r["queue_position"] for r in listed} == {"urgent": 1, "early": 2, "late": 3}
    assert (await world.admin.get("/api/v1/namespaces/default/runs/late")).json["queue_position"] == 3


async def test_metrics_count_gpus_by_machine_and_by_what_they_are_taken_by(world: World) -> None:
    well = {"vendor": "nvidia", "model": "H100", "memory_bytes": 80 << 30}
    gpus = [{"index": 0, **well}, {"index": 1, **well, "health": "faulty", "fault": "x"}, {"index": 2, **well}]
    row = Machine(uid="mch-1", name="box", capacity={"gpus": gpus})
    await world.rows.create(row, reason("machine.joined"))
    await world.store.commit(Change((Hold("mch-1", "wrk-1", 1, gpus=(2,)),), "test"))
    text = (await world.admin.get("/metrics")).body.decode()
    for state, count in (("free", 1), ("held", 1), ("faulty", 1), ("foreign", 0), ("reserved", 0)):
        assert f'moorage_gpus{{machine="box",state="{state}"}} {count}.0' in text


async def test_a_ledger_that_does_not_agree_is_counted_and_stops_nothing(world: World) -> None:
    twice = [{"index": 0, "model": "H100"}, {"index": 0, "model": "H100"}]
    await world.rows.create(Machine(uid="mch-1", name="box", capacity={"gpus": twice}), reason("machine.joined"))
    accounts = GpuAccounts(world.store, world.clock)
    assert await accounts.check() == ("machine box: GPU 0 is reported twice",)
    assert accounts.violations == 1
    assert (await world.admin.get("/api/v1/machines/box")).status == 200


async def test_of_work_elsewhere_a_machine_tells_only_that_it_is_there(world: World) -> None:
    gpus = [{"index": 0, "model": "H100"}, {"index": 1, "model": "H100"}]
    await world.rows.create(Machine(uid="mch-1", name="box", capacity={"gpus": gpus}), reason("machine.joined"))
    for n, namespace in enumerate(("mine", "theirs")):
        run = Run(uid=f"run-{n}", namespace=namespace, name=f"job-{namespace}")
        worker = Worker(uid=f"wrk-{n}", namespace=namespace, name=f"job-{namespace}-0", run=run.uid, epoch=1)
        await world.rows.create(run, reason("run.created"))
        await world.rows.create(worker, reason("worker.created"))
        await world.store.commit(Change((Hold("mch-1", worker.uid, 1, gpus=(n,)),), "test"))
    reader = Reader(world.store, world.clock, "http://g")
    mine, theirs = (await reader.machine("box", lambda namespace: namespace == "mine"))["gpus"]
    assert (mine["worker"], mine["work"]) == ("wrk-0", "job-mine-0")
    assert (theirs["holder"], theirs["worker"], theirs["work"]) == ("held", None, "work in another namespace")
    assert [g["work"] for g in (await reader.machine("box"))["gpus"]] == ["job-mine-0", "job-theirs-0"]

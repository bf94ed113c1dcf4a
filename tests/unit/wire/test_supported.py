"""What this version does not have is refused by name, and nothing else is."""

import pytest

from moorage.wire.spec import document, normalise
from moorage.wire.supported import unsupported

RUNTIME = {"command": ["server"]}


def places(**fields):
    plain = normalise(document({"kind": "Deployment", "name": "a", "runtime": RUNTIME, **fields}))
    return [refusal["path"] for refusal in unsupported(plain)]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"provider": "slurm"}, "provider"),
        ({"placement": {"topology": {"fabric": "infiniband"}}}, "placement.topology.fabric"),
        ({"rollout": {"guard": {"synthetic": "prompts.jsonl"}}}, "rollout.guard.synthetic"),
        ({"outbound": {"allow": []}}, "outbound"),
        ({"sandbox": True}, "sandbox"),
        ({"tool_gateway": True}, "tool_gateway"),
    ],
)
def test_each_feature_that_is_not_there_is_refused_at_its_place(fields, path):
    assert places(**fields) == [path]


def test_what_the_process_runner_and_the_fleet_can_do_is_not_refused():
    runtime = {**RUNTIME, "env": {"A": "b"}, "workdir": "/srv", "ready": {"request": {"path": "/v1/completions"}}}
    model = {"id": "m", "source": "hf://org/name@main"}
    assert places(runtime=runtime, model=model, resources={"gpus": 1}, priority=2) == []


@pytest.mark.parametrize("strategy", ["none", "header", "canary", "mirror"])
@pytest.mark.parametrize("capacity", ["extra", "replace"])
def test_no_way_of_rolling_out_is_refused(strategy, capacity):
    assert places(rollout={"strategy": strategy, "capacity": capacity}) == []


@pytest.mark.parametrize("topology", [{"keep": "rack"}, {"keep": "machine"}, {"max_machines": 2}, {"spread": "rack"}])
@pytest.mark.parametrize("kind", ["Deployment", "Run"])
def test_how_machines_lie_to_each_other_is_not_refused(kind, topology):
    work = {"runtime": RUNTIME} if kind == "Deployment" else {"groups": [{"runtime": RUNTIME}]}
    plain = normalise(document({"kind": kind, "name": "a", "placement": {"topology": topology}, **work}))
    assert unsupported(plain) == []


def test_a_fabric_that_no_machine_reports_is_refused_for_runs_too():
    run = {"kind": "Run", "name": "a", "groups": [{"runtime": RUNTIME}]}
    (refused,) = unsupported(normalise(document({**run, "placement": {"topology": {"fabric": "infiniband"}}})))
    assert refused["path"] == "placement.topology.fabric"
    assert "no machine reports its fabrics yet" in refused["message"]


def test_what_workers_are_given_is_not_refused():
    runtime = {
        **RUNTIME,
        "secrets": {"T": "t", "U": "login/user"},
        "configs": [{"path": "/etc/a", "content": ""}],
        "mounts": [{"source": "/a", "target": "/b"}],
    }
    assert places(runtime=runtime, expose=[{"port": 80, "external": True}], identity=True) == []


@pytest.mark.parametrize("kind", ["Deployment", "Run"])
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"outbound": {"allow": []}}, "no machine can enforce"),
        ({"sandbox": True}, "no machine can run sandboxed work"),
        ({"tool_gateway": True}, "no machine has a tool gateway"),
    ],
)
def test_what_no_machine_can_enforce_is_refused_with_that_cause(kind, asked, said):
    body = {"runtime": RUNTIME} if kind == "Deployment" else {"groups": [{"runtime": RUNTIME}]}
    refused = unsupported(normalise(document({"kind": kind, "name": "a", **body, **asked})))
    assert [r["path"] for r in refused] == list(asked)
    assert said in refused[0]["message"]


@pytest.mark.parametrize("runner", ["podman", "docker"])
def test_what_the_container_runners_can_do_is_not_refused(runner):
    mounts = [{"source": "/data", "target": "/data", "read_only": True}]
    assert places(runtime={"runner": runner, "image": "a:1", "pull": "always", "mounts": mounts}) == []


@pytest.mark.parametrize("kind", ["Endpoint", "Drive"])
def test_everything_of_an_endpoint_or_a_drive_can_be_had(kind):
    assert unsupported({"kind": kind}) == []


def test_following_the_load_a_latency_target_and_replicas_of_several_workers_are_not_refused():
    assert places(replicas={"min": 2, "max": 5, "workers": 4}, scaling={"slo": {"ttft_p95": "500ms"}}) == []

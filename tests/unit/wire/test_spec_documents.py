"""What a spec file may say, what it means, and how a wrong one is refused."""

import json

import pytest

import moorage
from moorage.domain.errors import InvalidSpec
from moorage.wire.spec import (
    document,
    live_part,
    normalise,
    parse_documents,
    revision_part,
    rooted_at,
    serve_document,
)

SMALL = {"kind": "Deployment", "name": "gemma", "runtime": {"command": ["server", "--port", "{port}"]}}


def refused(text):
    with pytest.raises(InvalidSpec) as caught:
        parse_documents(text, source="gemma.yaml")
    return caught.value


def whole(**fields):
    return normalise(document({**SMALL, **fields}))


def test_a_small_deployment_has_every_default_written_out():
    plain = whole()
    assert plain["namespace"] == "default"
    assert plain["replicas"] == {"min": 1, "max": 1, "initial": 1, "workers": 1}
    assert plain["runtime"]["ready"] == {
        "path": "/health",
        "timeout": 1800.0,
        "stall": 300.0,
        "interval": 0.1,
        "warmup": 0.0,
        "request": None,
    }
    assert plain["runtime"]["live"] == {"path": "/health", "interval": 5.0, "failures": 3, "fail_after": 300.0}
    assert plain["runtime"]["stop"] == {"signal": "SIGTERM", "grace": 20.0}
    assert plain["gateway"]["first_byte_timeout"] == 600.0
    assert plain["scaling"]["idle_timeout"] == 3600.0
    assert plain["rollout"]["strategy"] == "none"
    assert plain["resources"]["gpus"]["count"] == 0
    assert json.loads(json.dumps(plain)) == plain


def test_quantities_become_seconds_bytes_and_cores():
    plain = whole(
        resources={"cpu": "500m", "memory": "2GiB", "gpus": {"memory": "80GiB", "models": ["H100"]}},
        scaling={"idle_timeout": "1h30m"},
        runtime={**SMALL["runtime"], "stop": {"grace": 1.5}},
    )
    assert plain["resources"]["cpu"] == 0.5
    assert plain["resources"]["memory"] == 2 * 1024**3
    assert plain["resources"]["gpus"]["memory"] == 80 * 1024**3
    assert plain["resources"]["gpus"]["count"] == 1
    assert plain["scaling"]["idle_timeout"] == 5400.0
    assert plain["runtime"]["stop"]["grace"] == 1.5


def test_normalising_twice_changes_nothing():
    plain = whole(
        resources={"cpu": "250m", "gpus": 2}, replicas={"min": 0, "max": 3}, rollout={"guard": {"error_rate": 0}}
    )
    assert normalise(document(plain)) == plain


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ({}, (1, 1, 1)),
        ({"min": 0}, (0, 1, 1)),
        ({"min": 2}, (2, 2, 2)),
        ({"max": 4}, (1, 4, 1)),
        ({"min": 0, "max": 0}, (0, 0, 0)),
        ({"min": 0, "initial": 0}, (0, 1, 0)),
        ({"initial": 3}, (1, 3, 3)),
    ],
)
def test_replica_counts_that_are_not_given_follow_from_those_that_are(given, want):
    replicas = whole(replicas=given)["replicas"]
    assert (replicas["min"], replicas["max"], replicas["initial"]) == want


@pytest.mark.parametrize(
    "given", [{"min": 2, "max": 1}, {"initial": 0}, {"min": 0, "max": 1, "initial": 2}, {"min": -1}, {"workers": 0}]
)
def test_replica_counts_that_contradict_each_other_are_refused(given):
    with pytest.raises(InvalidSpec):
        whole(replicas=given)


def test_every_mistake_of_a_file_is_told_at_once_with_place_line_and_nearest_key():
    error = refused(
        "kind: Deployment\n"
        "name: Gemma\n"
        "runtime:\n"
        "  comand: [server]\n"
        "  command: [server]\n"
        "  ready: {timeout: 30x}\n"
        "---\n"
        "kind: Run\n"
        "name: train\n"
        "groups:\n"
        "  - runtime: {command: [x], runner: proces}\n"
    )
    told = {(e["path"], e.get("line"), e.get("nearest")) for e in error.errors}
    assert told == {
        ("name", 2, None),
        ("runtime.comand", 4, "runtime.command"),
        ("runtime.ready.timeout", 6, None),
        ("groups[0].runtime.runner", 11, "process"),
    }
    assert error.message.startswith("gemma.yaml is not valid: line 2: name:")


def test_an_unknown_key_with_nothing_near_it_is_told_which_there_are():
    error = refused("kind: Drive\nname: data\nsize: 1GiB\nzzz: 1\n")
    assert "annotations, kind, labels, machine, name, namespace, site, size" in error.errors[0]["message"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("kind: deployment\nname: a\n", "kind"),
        ("name: a\n", "kind"),
        ("kind: Deployment\nname: a\nname: b\nruntime: {command: [x]}\n", "name"),
        ('{"kind": "Drive", "name": "a", "size": 1, "name": "b"}', "name"),
        ("kind: Deployment\nname: a\nruntime: {command: python server.py}\n", "runtime.command"),
        ("kind: Deployment\nname: a\nruntime: {command: []}\n", "runtime"),
        ("kind: Deployment\nname: a\nruntime: {runner: podman, command: [x]}\n", "runtime"),
        ("kind: Deployment\nname: 12\nruntime: {command: [x]}\n", "name"),
        ("kind: Run\nname: a\ngroups: []\n", "groups"),
        ("kind: Run\nname: a\ngroups: [{runtime: {command: [x]}}]\ngang: {min_availabl: 2}\n", "gang.min_available"),
        ("kind: Deployment\nname: a\nruntime: {command: [x]}\nrollout: {steps: [50, 25]}\n", "rollout.steps"),
        ("kind: Endpoint\nname: a\nroutes: []\n", "routes"),
        ("[1, 2", ""),
        ("", ""),
        ("- a\n- b\n", ""),
        ("a: \x00", ""),
        ("a: &a [*a]", "a[0][0]"),
        ("[" * 3000, ""),
    ],
)
def test_what_is_wrong_is_told_by_its_place(text, path):
    assert path in [e["path"] for e in refused(text).errors]


def test_a_canary_without_a_step_is_refused_and_without_a_canary_none_is_needed():
    with pytest.raises(InvalidSpec, match=r"rollout: a canary needs at least one step.*: \[5, 25, 50\]"):
        whole(rollout={"strategy": "canary", "steps": []})
    assert whole(rollout={"strategy": "header", "steps": []})["rollout"]["steps"] == []


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"rollout": None}, "must be a mapping, not null"),
        ({"rollout": True}, "must be a mapping, not true"),
        ({"model": {"id": False}}, "must be text; put false in quotes"),
    ],
)
def test_a_wrong_value_is_shown_as_a_spec_writes_it(parts, told):
    with pytest.raises(InvalidSpec) as caught:
        document({"kind": "Deployment", "name": "d", "runtime": {"command": ["x"]}, **parts})
    assert caught.value.errors[0]["message"].startswith(told)


@pytest.mark.parametrize("gang", ["true", "{min_available: 1}"])
def test_a_group_of_a_gang_cannot_wait_for_another_one_of_it(gang):
    groups = "[{name: a, runtime: {command: [x]}}, {name: b, runtime: {command: [x]}, depends_on: [{group: a}]}]"
    error = refused(f"kind: Run\nname: r\ngang: {gang}\ngroups: {groups}\n")
    assert "a gang starts together" in error.errors[0]["message"]


def test_a_file_that_unfolds_without_end_is_refused_before_it_is_unfolded():
    layers = ["a: &a [1,1,1,1,1,1,1,1,1,1]"]
    for before, name in zip("abcdefg", "bcdefgh", strict=True):
        layers.append(f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]")
    assert "unfolds" in refused("\n".join(layers)).errors[0]["message"]


def test_environment_values_and_arguments_stay_as_they_were_written():
    doc = parse_documents(
        "kind: Deployment\nname: a\nlabels: {1: 2.50}\n"
        "runtime: {command: [run, 8000, 1.10, yes], env: {VERSION: 1.10, ON: yes, MODE: 0755, DAY: 2026-01-02}}\n",
        source="a.yaml",
    )[0]
    assert doc.runtime.command == ["run", "8000", "1.10", "yes"]
    assert doc.runtime.env == {"VERSION": "1.10", "ON": "yes", "MODE": "0755", "DAY": "2026-01-02"}
    assert doc.labels == {"1": "2.50"}


def test_a_file_may_hold_several_documents_and_json_is_read_as_well():
    text = json.dumps(SMALL)
    assert [d.name for d in parse_documents(text, source="x")] == ["gemma"]
    two = parse_documents(f"{text}\n---\nkind: Drive\nname: data\nsize: 5GiB\n---\n", source="x")
    assert [(d.kind, d.name) for d in two] == [("Deployment", "gemma"), ("Drive", "data")]


def test_two_documents_of_one_name_are_refused():
    text = json.dumps(SMALL)
    assert "named default/gemma" in refused(f"{text}\n---\n{text}\n").errors[0]["message"]


def test_a_model_placeholder_without_a_model_source_is_refused():
    assert "model.source" in refused("kind: Deployment\nname: a\nruntime: {command: [x, '{model}']}\n").message


def test_only_the_revision_part_decides_about_a_new_revision():
    before = whole()
    live = whole(replicas={"min": 2, "max": 5}, priority=3, labels={"team": "a"}, gateway={"max_queue": 7})
    assert revision_part(live) == revision_part(before)
    assert live_part(live) != live_part(before)
    gang = whole(replicas={"workers": 2})
    assert revision_part(gang) != revision_part(before)
    assert live_part(gang) == live_part(before)


def test_the_two_parts_together_are_the_whole_spec():
    plain = whole()
    covered = {*revision_part(plain), *live_part(plain)}
    assert covered | {"kind", "name", "namespace"} == set(plain)


def test_relative_paths_are_meant_from_the_directory_of_the_file():
    doc = rooted_at(
        document(
            {**SMALL, "model": {"source": "./m.gguf"}, "runtime": {"command": ["x"], "workdir": "../srv"}},
        ),
        "/home/a",
    )
    assert (doc.model.source, doc.runtime.workdir) == ("/home/a/m.gguf", "/home/srv")
    far = rooted_at(document({**SMALL, "model": {"source": "hf://org/name@1"}}), "/home/a")
    assert far.model.source == "hf://org/name@1"


def test_a_document_made_in_python_is_the_same_as_one_read():
    made = moorage.Deployment(name="gemma", runtime={"command": ["server", "--port", "{port}"]})
    assert normalise(made) == whole()


def test_a_wrong_document_made_in_python_is_refused_as_one_read_is():
    with pytest.raises(InvalidSpec) as caught:
        moorage.Deployment(name="gemma", runtime={"comand": ["x"]})
    assert {"runtime.comand"} <= {e["path"] for e in caught.value.errors}


def test_a_served_command_becomes_a_deployment():
    plain = normalise(
        serve_document(
            name="gemma",
            command=["llama-server", "-m", "{model}", "--port", "{port}"],
            model="gemma-3",
            source="/m.gguf",
            health_path="/ping",
            minimum=0,
            idle_timeout="15m",
            gpus=1,
        )
    )
    assert plain["model"] == {"id": "gemma-3", "source": "/m.gguf", "aliases": []}
    assert plain["runtime"]["ready"]["path"] == plain["runtime"]["live"]["path"] == "/ping"
    assert plain["replicas"] == {"min": 0, "max": 1, "initial": 1, "workers": 1}
    assert plain["scaling"]["idle_timeout"] == 900.0
    assert plain["resources"]["gpus"]["count"] == 1


def test_a_run_fills_in_what_follows_from_being_a_gang():
    alone = normalise(document({"kind": "Run", "name": "t", "groups": [{"runtime": {"command": ["x"]}}]}))
    assert (alone["on_failure"], alone["leader"], alone["groups"][0]["count"]) == ("RestartTask", None, 1)
    four = [{**alone["groups"][0], "count": 4}]
    gang = normalise(document({**alone, "groups": four, "on_failure": None, "gang": {"min_available": 3}}))
    assert (gang["on_failure"], gang["leader"], gang["gang"]) == ("RestartJob", "worker-0", {"min_available": 3})


def test_a_relative_mount_is_meant_from_the_spec_s_folder_and_a_container_s_working_directory_is_the_image_s():
    text = """
kind: Deployment
name: a
runtime: {runner: podman, image: i, workdir: srv, mounts: [{source: data, target: /data}]}
"""
    (found,) = parse_documents(text, source="a.yaml", base="/here")
    assert (found.runtime.workdir, found.runtime.mounts[0].source) == ("srv", "/here/data")

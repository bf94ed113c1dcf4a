"""What the engines are told at creation, and how their words about a pull are sorted."""

from pathlib import Path

import pytest

from moorage.domain.errors import ImageError
from moorage.runners.containers.creating import container_name, creation
from moorage.runners.containers.discovery import sockets_for, usual_sockets
from moorage.runners.containers.pulling import is_permanent, split
from moorage.runners.port import ContainerIntent, Labels, LaunchIntent, MountIntent

WANTED = ContainerIntent(
    "img", mounts=(MountIntent("/a", "/b", True),), gpus=(1, 3), memory_bytes=1 << 30, cpu_milli=1500
)
INTENT = LaunchIntent(
    Path("/w"), "cookie", ("serve", "--x"), {"A": "b"}, labels=Labels("o", "wrk-1", 2), container=WANTED
)


def test_docker_is_asked_for_gpus_by_their_numbers_and_for_no_restart():
    body = creation("docker", INTENT, WANTED, "sha256:id")
    host = body["HostConfig"]
    assert host["DeviceRequests"] == [{"Driver": "nvidia", "DeviceIDs": ["1", "3"], "Capabilities": [["gpu"]]}]
    assert (host["RestartPolicy"], host["NetworkMode"]) == ({"Name": "no"}, "host")
    assert (host["Memory"], host["MemorySwap"], host["NanoCpus"]) == (1 << 30, 1 << 30, 1_500_000_000)
    assert host["Mounts"] == [{"Type": "bind", "Source": "/a", "Target": "/b", "ReadOnly": True}]
    assert (body["Image"], body["Entrypoint"], body["Cmd"]) == ("sha256:id", ["serve", "--x"], [])


def test_podman_is_asked_for_gpus_by_their_cdi_names_and_for_no_restart():
    body = creation("podman", INTENT, WANTED, "sha256:id")
    assert body["devices"] == [{"path": "nvidia.com/gpu=1"}, {"path": "nvidia.com/gpu=3"}]
    assert (body["restart_policy"], body["netns"], body["stop_signal"]) == ("no", {"nsmode": "host"}, 15)
    assert body["resource_limits"]["cpu"] == {"period": 100_000, "quota": 150_000}
    assert body["mounts"][0]["options"] == ["rbind", "ro"]


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_without_limits_gpus_or_command_nothing_of_them_is_said(engine):
    plain = ContainerIntent("img")
    body = creation(engine, LaunchIntent(Path("/w"), "c", (), {}, container=plain), plain, "id")
    told = str(body).lower()
    assert not any(word in told for word in ("entrypoint", "nanocpus", "quota", "devicerequests", "nvidia", "'memory'"))


@pytest.mark.parametrize(
    ("identity", "name"), [("wrk-1", "moorage-wrk-1"), ("a/b c", "moorage-a-b-c"), ("", "moorage-cookie")]
)
def test_a_name_is_one_that_engines_take(identity, name):
    assert container_name(Labels("o", identity), "cookie") == name


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("vllm/vllm-openai", ("vllm/vllm-openai", "latest")),
        ("ghcr.io/a/b:1.2", ("ghcr.io/a/b", "1.2")),
        ("127.0.0.1:5000/a", ("127.0.0.1:5000/a", "latest")),
        (f"a/b:1@sha256:{'0' * 64}", ("a/b", f"sha256:{'0' * 64}")),
    ],
)
def test_a_reference_is_taken_apart(reference, parts):
    assert split(reference) == parts


def test_what_is_no_reference_is_final():
    with pytest.raises(ImageError) as told:
        split("a b")
    assert told.value.permanent


@pytest.mark.parametrize(
    ("said", "permanent"),
    [
        ("manifest for a/b:9 not found: manifest unknown: manifest unknown", True),
        ("pull access denied for a, repository does not exist or may require 'docker login'", True),
        ("unauthorized: authentication required", True),
        ("no matching manifest for linux/arm64 in the manifest list entries", True),
        ("toomanyrequests: You have reached your pull rate limit. You may increase the limit by authenticating", False),
        ("received unexpected HTTP status: 503 Service Unavailable", False),
        ('Get "https://r/v2/": dial tcp 10.0.0.1:443: connect: connection refused', False),
        ('Get "https://r/v2/": net/http: TLS handshake timeout', False),
        ("dial tcp: lookup registry.example on 10.0.0.2:53: no such host", False),
        ("something nobody has seen before", False),
    ],
)
def test_only_what_cannot_come_right_is_final(said, permanent):
    assert is_permanent(said) is permanent


def test_a_socket_that_is_given_is_the_only_one_tried():
    assert sockets_for("podman", {"podman": "/s"}, "/run/user/7") == (Path("/s"),)
    assert sockets_for("podman", {"podman": ""}, "/run/user/7") == ()
    assert (
        sockets_for("docker", {"podman": "/s"}, None)
        == usual_sockets("docker", None)
        == (Path("/var/run/docker.sock"),)
    )
    assert Path("/run/user/7/podman/podman.sock") in sockets_for("podman", {"podman": "auto"}, "/run/user/7")

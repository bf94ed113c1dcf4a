"""The agent's configuration file and what is made of it."""

import json
from pathlib import Path

import pytest

from moorage.agent.capacity import memory_bytes
from moorage.agent.config import load_config, parse_gpus
from moorage.domain.errors import InvalidSpec

LEAST = {"server_url": "http://127.0.0.1:7420/", "name": "box", "home": "/tmp/agent-home"}


def written(tmp_path: Path, **values: object) -> Path:
    path = tmp_path / "agent.json"
    path.write_text(json.dumps({**LEAST, **values}))
    return path


def test_the_least_configuration_has_the_documented_defaults(tmp_path):
    config = load_config(written(tmp_path), {"PATH": "/bin", "MOORAGE_TOKEN": "secret"})
    assert config.server_url == "http://127.0.0.1:7420"
    assert config.ports == (18000, 18031)
    assert config.stop_workers_on_exit is False


SHELL = {
    "PATH": "/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "CUDA_HOME": "/opt/cuda",
    "https_proxy": "http://proxy:3128",
    "SSL_CERT_FILE": "/etc/ca.pem",
    "MOORAGE_TOKEN": "secret",
}
STRAY = {"OLDPWD": "/tmp", "GIT_ASKPASS": "/bin/x", "PIP_INDEX_URL": "http://x", "HF_TOKEN": "t", "HF_HOME": "/models"}


def test_workers_inherit_what_describes_the_machine_and_nothing_of_ours_or_of_the_shell(tmp_path):
    config = load_config(written(tmp_path), {**SHELL, **STRAY})
    assert config.worker_env == {name: value for name, value in SHELL.items() if name != "MOORAGE_TOKEN"}


@pytest.mark.parametrize(
    ("passed", "gets"),
    [(["HF_HOME"], {"HF_HOME"}), (["HF_*"], {"HF_HOME", "HF_TOKEN"}), (["*"], set(STRAY)), (["MOORAGE_TOKEN"], set())],
)
def test_what_a_setting_lets_through_is_inherited_as_well_but_never_anything_of_ours(tmp_path, passed, gets):
    config = load_config(written(tmp_path, env_pass=passed), {**SHELL, **STRAY})
    assert set(config.worker_env) == set(SHELL) - {"MOORAGE_TOKEN"} | gets


def test_an_unknown_key_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(InvalidSpec) as caught:
        load_config(written(tmp_path, servr_url="x"), {})
    assert "server_url" in str(caught.value.remedy)


def test_a_missing_key_is_named(tmp_path):
    with pytest.raises(InvalidSpec, match="name"):
        load_config(written(tmp_path, name=""), {})


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_file_that_is_not_an_object_is_refused(tmp_path, content):
    path = tmp_path / "agent.json"
    path.write_text(content)
    with pytest.raises(InvalidSpec):
        load_config(path, {})


def test_declared_gpus_are_numbered_through_all_groups():
    gpus = parse_gpus("2xH100:80GiB, 1xL4:24GiB")
    assert [(g.index, g.model, g.memory_bytes >> 30) for g in gpus] == [(0, "H100", 80), (1, "H100", 80), (2, "L4", 24)]


@pytest.mark.parametrize("text", ["H100", "0xH100:80GiB", "8xH100", "x:1GiB"])
def test_gpus_that_cannot_be_read_are_refused(text):
    with pytest.raises(InvalidSpec):
        parse_gpus(text)


def test_memory_is_the_whole_of_the_machine():
    assert memory_bytes("MemFree: 1 kB\nMemTotal:       16000000 kB\n") == 16_384_000_000

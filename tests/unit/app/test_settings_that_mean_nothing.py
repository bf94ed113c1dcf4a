"""Settings of the gateway that can mean nothing are refused, and what only looks like a setting is told."""

import json
import os
from pathlib import Path

import pytest

from moorage.app.settings import load, mistyped
from moorage.cli.main import main as cli_main
from moorage.domain.errors import InvalidSpec
from moorage.gateway.config import GatewayConfig


@pytest.mark.parametrize(
    "values",
    [
        {"gateway_id": 'ü;"<b>'},
        {"gateway_id": 7},
        {"allowed_hosts": ["x y"]},
        {"allowed_origins": ["https://chat.example/app"]},
        {"access_log": "/"},
    ],
)
def test_a_gateway_itself_refuses_a_file_with_words_that_can_mean_nothing(tmp_path: Path, values: dict[str, object]):
    plain = {"server_url": "http://127.0.0.1:1", "token": "t", "state_dir": str(tmp_path), "gateway_id": "g"}
    with pytest.raises(InvalidSpec, match=f"gateway: {next(iter(values))} ") as refused:
        GatewayConfig.from_mapping(plain | values)
    assert refused.value.remedy


def test_hosts_and_origins_of_every_usual_kind_are_allowed(tmp_path: Path):
    hosts = ("*", "models.example", "Models.Example.", "gpu_1", "10.0.0.7", "fd00::1", "[fd00::1]")
    origins = (
        *hosts,
        "null",
        "https://chat.example",
        "http://chat.example:8443/",
        "http://[::1]:80",
        "chrome-extension://abcdef",
    )
    env = {"MOORAGE_HOME": str(tmp_path), "MOORAGE_GATEWAY_ALLOWED_HOSTS": ",".join(hosts)}
    settings = load(env | {"MOORAGE_GATEWAY_ALLOWED_ORIGINS": ",".join(origins)})
    assert (settings.gateway_allowed_hosts, settings.gateway_allowed_origins) == (hosts, origins)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("gateway_keepalive_s = [1]", "`gateway_keepalive_s` in .* is a list"),
        ("gateway_processes = {many = 2}", "`gateway_processes` in .* is a table"),
        ('gateway_allowed_hosts = {a = "b"}', "`gateway_allowed_hosts` in .* is a table"),
        ('agent_accepts = [["serving"]]', "`agent_accepts` in .* is a list, with lists"),
    ],
)
def test_a_list_where_one_value_belongs_is_refused_with_what_is_allowed(tmp_path: Path, line: str, says: str):
    (tmp_path / "config.toml").write_text(line + "\n")
    with pytest.raises(InvalidSpec, match=says) as refused:
        load({"MOORAGE_HOME": str(tmp_path)})
    assert str(refused.value.remedy).startswith("allowed: ")


def test_a_variable_that_looks_like_a_setting_of_the_gateway_and_is_none_is_warned_of_and_no_other():
    env = {
        "MOORAGE_GATEWAY_DRAINS": "5s",
        "MOORAGE_GATEWAY_ZZZ": "1",
        "MOORAGE_GATEWAY_EMPTY": "",
        "MOORAGE_GATEWAY_DRAIN_S": "5s",
        "MOORAGE_GATEWAY": "127.0.0.1:7421",
        "MOORAGE_ELSE": "1",
    }
    drains, other = mistyped(env)
    assert drains == "MOORAGE_GATEWAY_DRAINS is no setting and is not used: did you mean MOORAGE_GATEWAY_DRAIN_S?"
    assert other.startswith("MOORAGE_GATEWAY_ZZZ ")


def test_config_show_warns_of_such_a_variable_beside_the_settings(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    env = {**os.environ, "MOORAGE_HOME": str(tmp_path), "MOORAGE_GATEWAY_DRAINS": "5s"}
    assert cli_main(["config", "show", "-o", "json"], env) == 0
    out, err = capfd.readouterr()
    assert any(row["name"] == "MOORAGE_GATEWAY_DRAIN_S" for row in json.loads(out))
    assert "warning: MOORAGE_GATEWAY_DRAINS is no setting" in err

"""Settings: every value has a source, and a wrong one is refused by the name a person knows it by."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from moorage.agent.config import from_mapping
from moorage.app.differing import differing
from moorage.app.hangs import hang_after_s
from moorage.app.home import Home, machine_name, part_configs, write_configs
from moorage.app.joining import reached_from
from moorage.app.parsing import Address
from moorage.app.ports import require_apart
from moorage.app.service import gateway_unit
from moorage.app.settings import Settings, address_of, load
from moorage.app.showing import effective
from moorage.app.stopping import stop_limit_s
from moorage.domain.errors import InvalidSpec
from moorage.gateway.config import GatewayConfig


def test_defaults_need_nothing_but_a_home_folder(tmp_path: Path):
    settings = load({"HOME": str(tmp_path)})
    assert settings.home == tmp_path / ".moorage"
    assert settings.api == Address("127.0.0.1", 7420)
    assert settings.database_url == f"sqlite:///{tmp_path / '.moorage' / 'moorage.db'}"
    assert settings.url == "http://127.0.0.1:7420"
    assert (settings.machine_ttl_s, settings.machine_heartbeat_s) == (30.0, 10.0)
    assert settings.agent_ports == (18000, 18031)
    assert set(settings.sources.values()) == {"default"}


def test_without_any_home_the_variable_to_set_is_named():
    with pytest.raises(InvalidSpec) as caught:
        load({})
    assert "MOORAGE_HOME" in str(caught.value.remedy)


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(tmp_path: Path):
    (tmp_path / "config.toml").write_text('api = "127.0.0.1:1"\ngateway = "127.0.0.1:2"\nlog = "debug"\n')
    env = {"MOORAGE_HOME": str(tmp_path), "MOORAGE_API": "127.0.0.1:3", "MOORAGE_GATEWAY": "127.0.0.1:4"}
    settings = load(env, {"api": "127.0.0.1:5"})
    assert (settings.api.port, settings.gateway.port, settings.log) == (5, 4, "debug")
    assert settings.sources["api"] == "flag"
    assert settings.sources["gateway"] == "MOORAGE_GATEWAY"
    assert settings.sources["log"] == str(tmp_path / "config.toml")


def test_lists_and_tables_of_the_file_mean_what_the_variables_mean(tmp_path: Path):
    (tmp_path / "config.toml").write_text('agent_accepts = ["serving", "jobs"]\nagent_labels = {pool = "gpu"}\n')
    settings = load({"MOORAGE_HOME": str(tmp_path)})
    assert settings.agent_accepts == ("serving", "jobs")
    assert settings.agent_labels == {"pool": "gpu"}


def test_declared_gpus_and_reserves_are_read_with_their_units(tmp_path: Path):
    env = {
        "MOORAGE_HOME": str(tmp_path),
        "MOORAGE_AGENT_GPUS": "8xH100:80GiB,2xL4:24GiB",
        "MOORAGE_AGENT_RESERVE": "cpu=500m,memory=2GiB",
    }
    settings = load(env)
    assert [(g.count, g.model, g.memory_bytes) for g in settings.agent_gpus] == [
        (8, "H100", 80 << 30),
        (2, "L4", 24 << 30),
    ]
    assert settings.agent_reserve == {"cpu_milli": 500, "memory_bytes": 2 << 30}


def test_room_and_age_of_logs_are_read_with_their_units_shown_and_told_to_the_agent(tmp_path: Path):
    env = {"MOORAGE_HOME": str(tmp_path), "MOORAGE_AGENT_LOGS_BYTES": "20GiB", "MOORAGE_AGENT_LOGS_AGE_S": "30d"}
    settings = load(env)
    assert (settings.show("agent_logs_bytes"), settings.agent_logs_age_s) == ("20GiB", 30 * 86400.0)
    assert load({"MOORAGE_HOME": str(tmp_path)}).show("agent_logs_bytes") == "auto"
    home = Home(tmp_path)
    home.make()
    agent = from_mapping(part_configs(home, settings, "http://127.0.0.1:7420")["agent"], {})
    assert (agent.logs_bytes, agent.logs_age_s) == (20 << 30, 30 * 86400.0)


def test_what_workers_may_inherit_besides_is_told_to_the_agent(tmp_path: Path):
    settings = load({"MOORAGE_HOME": str(tmp_path), "MOORAGE_AGENT_ENV_PASS": "HF_HOME, TEAM_*"})
    home = Home(tmp_path)
    home.make()
    told = part_configs(home, settings, "http://127.0.0.1:7420")["agent"]
    assert from_mapping(told, {"HF_HOME": "/m", "TEAM_A": "1", "OTHER": "2"}).worker_env == {
        "HF_HOME": "/m",
        "TEAM_A": "1",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MOORAGE_API", "7420"),
        ("MOORAGE_API", "127.0.0.1:99999"),
        ("MOORAGE_DATABASE_URL", "mysql://x"),
        ("MOORAGE_MACHINE_TTL_S", "soon"),
        ("MOORAGE_MACHINE_TTL_S", "0"),
        ("MOORAGE_AGENT_GPUS", "H100"),
        ("MOORAGE_AGENT_GPUS", "8xH100:80ZiB"),
        ("MOORAGE_AGENT_LABELS", "gpu"),
        ("MOORAGE_AGENT_RESERVE", "disk=1GiB"),
        ("MOORAGE_AGENT_ENGINES", "lxc=/run/lxc.sock"),
        ("MOORAGE_AGENT_RESERVE", "cpu=many"),
        ("MOORAGE_AGENT_PORTS", "18031-18000"),
        ("MOORAGE_AGENT_LOGS_BYTES", "much"),
        ("MOORAGE_AGENT_LOGS_AGE_S", "long"),
        ("MOORAGE_LOG", "loud"),
        ("MOORAGE_URL", "ftp://x"),
    ],
)
def test_a_wrong_value_is_refused_by_its_variable_and_says_what_is_allowed(tmp_path: Path, name: str, value: str):
    with pytest.raises(InvalidSpec) as caught:
        load({"MOORAGE_HOME": str(tmp_path), name: value})
    assert name in caught.value.message
    assert repr(value) in caught.value.message
    assert str(caught.value.remedy).startswith("allowed: ")


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest_known_one(tmp_path: Path):
    (tmp_path / "config.toml").write_text('databse_url = "sqlite:///x"\n')
    with pytest.raises(InvalidSpec) as caught:
        load({"MOORAGE_HOME": str(tmp_path)})
    assert "databse_url" in caught.value.message
    assert "database_url" in str(caught.value.remedy)


def test_a_broken_file_is_named(tmp_path: Path):
    (tmp_path / "config.toml").write_text("api = [\n")
    with pytest.raises(InvalidSpec, match=r"config\.toml"):
        load({"MOORAGE_HOME": str(tmp_path)})


def test_shown_settings_never_show_a_token(tmp_path: Path):
    rows = load({"MOORAGE_HOME": str(tmp_path), "MOORAGE_TOKEN": "sesame"}).to_wire()
    assert all("sesame" not in str(row) for row in rows)
    assert {row["name"] for row in rows} >= {"MOORAGE_TOKEN", "MOORAGE_API", "MOORAGE_HOME"}


@pytest.mark.parametrize(
    ("listen", "url"),
    [("0.0.0.0:1", "http://127.0.0.1:1"), ("[::1]:2", "http://[::1]:2"), ("10.0.0.3:4", "http://10.0.0.3:4")],
)
def test_clients_of_this_machine_get_an_address_they_can_reach(tmp_path: Path, listen: str, url: str):
    assert load({"MOORAGE_HOME": str(tmp_path), "MOORAGE_API": listen}).api.url == url


def _ran_on(home: Path, api: str, gateway: str) -> None:
    (home / "run").mkdir()
    for name, text, shape in (("server", api, "api"), ("gateway", gateway, None)):
        host, _, port = text.rpartition(":")
        listens = {"host": host, "port": int(port)}
        (home / "run" / f"{name}.json").write_text(json.dumps({shape: listens} if shape else listens))


def test_addresses_stay_as_they_were_the_last_time_until_somebody_names_others(tmp_path: Path):
    _ran_on(tmp_path, "0.0.0.0:17420", "::1:17421")
    env = {"MOORAGE_HOME": str(tmp_path)}
    settings = load(env)
    assert (settings.api, settings.gateway) == (Address("0.0.0.0", 17420), Address("::1", 17421))
    assert settings.sources["api"] == str(tmp_path / "run" / "server.json")
    assert settings.remembered
    (tmp_path / "config.toml").write_text('gateway = "127.0.0.1:3"\n')
    named = load({**env, "MOORAGE_API": "127.0.0.1:2"})
    assert (named.api.port, named.gateway.port) == (2, 3)
    assert not named.remembered


@pytest.mark.parametrize("spoilt", ["", "[1]", "{}", '{"api": 3}', '{"api": {"host": "", "port": 99999}}'])
def test_a_spoilt_memory_of_addresses_is_none(tmp_path: Path, spoilt: str):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "server.json").write_text(spoilt)
    settings = load({"MOORAGE_HOME": str(tmp_path)})
    assert (settings.api.port, settings.sources["api"]) == (7420, "default")


def _shown(env: dict[str, str]) -> dict[str, tuple[str, str]]:
    return {row["name"]: (row["value"], row["source"]) for row in effective(load(env), env)}


def test_the_address_and_token_shown_are_those_that_commands_use(tmp_path: Path):
    env = {"MOORAGE_HOME": str(tmp_path)}
    assert _shown(env)["MOORAGE_URL"] == ("http://127.0.0.1:7420", "default")
    assert _shown(env)["MOORAGE_TOKEN"] == ("", "default")
    client = tmp_path / "client.json"
    client.write_text(json.dumps({"url": "http://127.0.0.1:17420", "token": "sesame", "gateway_url": "http://x:1"}))
    assert _shown(env)["MOORAGE_URL"] == ("http://127.0.0.1:17420", str(client))
    assert _shown(env)["MOORAGE_TOKEN"] == ("(set, not shown)", str(client))
    elsewhere = {**env, "MOORAGE_URL": "http://far:1"}
    assert _shown(elsewhere)["MOORAGE_URL"] == ("http://far:1", "MOORAGE_URL")
    assert _shown(elsewhere)["MOORAGE_TOKEN"] == ("", "default")  # a token is never sent elsewhere
    assert _shown({**elsewhere, "MOORAGE_TOKEN": "t"})["MOORAGE_TOKEN"] == ("(set, not shown)", "MOORAGE_TOKEN")


@pytest.mark.parametrize("gateway", ["127.0.0.1:5", "localhost:5", "0.0.0.0:5", "[::]:5"])
def test_one_port_for_both_is_refused(gateway: str):
    with pytest.raises(InvalidSpec, match="cannot listen on the same port") as caught:
        require_apart(address_of("http://127.0.0.1:5"), address_of(f"http://{gateway}"))
    assert "--gateway-port" in str(caught.value.remedy)


def test_one_port_on_two_addresses_is_no_conflict():
    require_apart(Address("127.0.0.1", 5), Address("127.0.0.2", 5))


def test_what_the_gateway_allows_reaches_its_configuration(tmp_path: Path):
    env = {"MOORAGE_HOME": str(tmp_path), "MOORAGE_GATEWAY_ALLOWED_ORIGINS": "https://chat.example, *"}
    (tmp_path / "tokens").mkdir()
    (tmp_path / "config.toml").write_text('gateway_allowed_hosts = ["models.example"]\n')
    settings = load(env)
    gateway = part_configs(Home(tmp_path), settings, settings.api.url)["gateway"]
    assert gateway["allowed_origins"] == ["https://chat.example", "*"]
    assert gateway["allowed_hosts"] == ["models.example"]
    assert GatewayConfig.from_mapping(gateway).allowed_hosts == ("models.example",)


def test_processes_and_tls_reach_the_gateway_and_everybody_who_names_it(tmp_path: Path):
    (tmp_path / "tokens").mkdir()
    (tmp_path / "config.toml").write_text("gateway_processes = 4\n")
    env = {
        "MOORAGE_HOME": str(tmp_path),
        "MOORAGE_GATEWAY_TLS_CERTIFICATE": str(tmp_path / "c.pem"),
        "MOORAGE_GATEWAY_TLS_KEY": str(tmp_path / "k.pem"),
    }
    settings = load(env)
    configs = part_configs(Home(tmp_path), settings, settings.api.url)
    gateway = GatewayConfig.from_mapping(configs["gateway"])
    assert gateway.processes == 4
    assert (gateway.tls_certificate, gateway.tls_key) == (tmp_path / "c.pem", tmp_path / "k.pem")
    assert settings.gateway_url == gateway.advertise == configs["server"]["gateway_url"] == "https://127.0.0.1:7421"
    assert address_of(settings.gateway_url) == settings.gateway
    shown = {row["name"]: row for row in settings.to_wire()}
    assert shown["MOORAGE_GATEWAY_PROCESSES"]["value"] == "4"
    assert shown["MOORAGE_GATEWAY_TLS_KEY"]["value"] == str(tmp_path / "k.pem")


@pytest.mark.parametrize("wrong", ["0", "257", "-1", "two", "1.5"])
def test_a_number_of_processes_that_makes_no_sense_is_refused(tmp_path: Path, wrong: str):
    with pytest.raises(InvalidSpec, match="MOORAGE_GATEWAY_PROCESSES"):
        load({"MOORAGE_HOME": str(tmp_path), "MOORAGE_GATEWAY_PROCESSES": wrong})


def test_a_certificate_without_its_key_is_refused_before_anything_starts(tmp_path: Path):
    with pytest.raises(InvalidSpec, match="only one is set"):
        load({"MOORAGE_HOME": str(tmp_path), "MOORAGE_GATEWAY_TLS_CERTIFICATE": "/c.pem"})


def test_every_setting_of_the_gateway_can_be_set_by_a_person_and_reaches_it(tmp_path: Path):
    (tmp_path / "config.toml").write_text(
        'gateway_write_timeout_s = 90\ngateway_forwarded = true\ngateway_head_bytes_max = "128KiB"\n'
    )
    env = {
        "MOORAGE_HOME": str(tmp_path),
        "MOORAGE_GATEWAY_TUNNEL_IDLE_S": "1h",
        "MOORAGE_GATEWAY_ACCESS_LOG_KEEP": "0",
        "MOORAGE_GATEWAY_ID": "edge-2",
        "MOORAGE_GATEWAY_ADVERTISE": "https://models.example",
    }
    settings = load(env)
    Home(tmp_path).make()
    configs = part_configs(Home(tmp_path), settings, settings.api.url)
    gateway = GatewayConfig.from_mapping(configs["gateway"])
    assert (gateway.write_timeout_s, gateway.forwarded, gateway.head_bytes_max) == (90.0, True, 128 * 1024)
    assert (gateway.tunnel_idle_s, gateway.access_log_keep, gateway.gateway_id) == (3600.0, 0, "edge-2")
    assert gateway.advertise == configs["server"]["gateway_url"] == "https://models.example"
    assert settings.gateway_url == "http://127.0.0.1:7421", "commands of this machine go to it directly"
    shown = {row["name"]: row["value"] for row in settings.to_wire()}
    assert (shown["MOORAGE_GATEWAY_WRITE_TIMEOUT_S"], shown["MOORAGE_GATEWAY_DRAIN_S"]) == ("1m30s", "1m")
    assert (shown["MOORAGE_GATEWAY_FORWARDED"], shown["MOORAGE_GATEWAY_HEAD_BYTES_MAX"]) == ("true", "128KiB")
    elsewhere = {"host", "port", "server_url", "token", "state_dir", "hang_after_s"}
    assert {
        f"MOORAGE_GATEWAY_{f.name}".upper().replace("GATEWAY_GATEWAY", "GATEWAY") for f in fields(GatewayConfig)
    } <= (set(shown) | {f"MOORAGE_GATEWAY_{name.upper()}" for name in elsewhere})


@pytest.mark.parametrize(
    ("name", "raw", "what", "allowed"),
    [
        ("write_timeout_s", "abc", "is not a duration", "from 50ms to 1d"),
        ("write_timeout_s", "0", "not from 50ms to 1d", "such as 1m"),
        ("drain_s", "2d", "not from 0s to 1d", "such as 1m"),
        ("head_bytes_max", "12", "not from 1KiB to 16MiB", "such as 64KiB"),
        ("records_max", "1.5", "not a whole number", "such as 10000"),
        ("forwarded", "maybe", "neither true nor false", "true or false"),
        ("id", "a/b", "not a plain name", "letters, digits"),
        ("id", 'ü;"<b>', "not a plain name", "letters, digits"),
        ("id", "-x", "not a plain name", "letters, digits"),
        ("allowed_hosts", "http://x/", "'http://x/' is no host name", "without scheme"),
        ("allowed_hosts", "models.example, x y", "'x y' is no host name", "such as models.example"),
        ("allowed_hosts", "models.example:7421", "is no host name", "without scheme, port"),
        ("allowed_hosts", "*.example", "is no host name", "* is any"),
        ("allowed_origins", "https://chat.example/app", "is no origin", "SCHEME://HOST"),
        ("allowed_origins", "x y", "'x y' is no origin", "such as https://chat.example"),
        ("allowed_origins", "https://*", "is no origin", "* is any"),
        ("advertise", "models.example", "not an http(s) address", "https://HOST"),
    ],
)
def test_a_setting_that_the_gateway_cannot_use_is_refused_where_it_was_written(
    tmp_path: Path, name: str, raw: str, what: str, allowed: str
):
    with pytest.raises(InvalidSpec) as by_variable:
        load({"MOORAGE_HOME": str(tmp_path), f"MOORAGE_GATEWAY_{name.upper()}": raw})
    assert f"MOORAGE_GATEWAY_{name.upper()} is {raw!r}" in by_variable.value.message
    assert what in by_variable.value.message
    assert allowed in str(by_variable.value.remedy)
    (tmp_path / "config.toml").write_text(f"gateway_{name} = {json.dumps(raw)}\n")
    with pytest.raises(InvalidSpec, match=r"config\.toml"):
        load({"MOORAGE_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write_timeout_s", "60"),
        ("write_timeout_s", 0),
        ("drain_s", float("nan")),
        ("head_bytes_max", 1.5),
        ("records_max", True),
        ("forwarded", "yes"),
    ],
)
def test_a_gateways_file_with_a_value_that_is_none_is_refused_by_its_name(tmp_path: Path, name: str, value: object):
    values = {"server_url": "http://127.0.0.1:1", "token": "t", "state_dir": str(tmp_path), "gateway_id": "g"}
    with pytest.raises(InvalidSpec, match=f"gateway: {name} is ") as refused:
        GatewayConfig.from_mapping({**values, name: value})
    assert refused.value.remedy


def test_a_second_gateway_of_a_machine_that_belongs_elsewhere_has_a_name_of_its_own(tmp_path: Path):
    ids = set()
    for home in ("one", "two"):
        settings = load({"MOORAGE_HOME": str(tmp_path / home), "MOORAGE_URL": "http://10.0.0.7:7420"})
        (tmp_path / home / "tokens").mkdir(parents=True)
        ids.add(part_configs(Home(tmp_path / home), settings, settings.url)["gateway"]["gateway_id"])
    assert len(ids) == 2
    assert machine_name() not in ids


def test_a_gateway_for_all_addresses_is_told_to_a_control_plane_elsewhere_by_the_address_that_leads_there():
    assert reached_from("http://127.0.0.1:7420", "http://127.0.0.1:7421") == "http://127.0.0.1:7421"
    assert reached_from("http://10.0.0.7:7420", "https://10.0.0.8:7421") == "https://10.0.0.8:7421"
    assert reached_from("http://nowhere.invalid:7420", "http://127.0.0.1:7421") == "http://127.0.0.1:7421"


def test_what_a_gateway_finishes_is_waited_for_as_long_as_it_may(tmp_path: Path):
    settings = load({"MOORAGE_HOME": str(tmp_path), "MOORAGE_GATEWAY_DRAIN_S": "10m"})
    home = Home(settings.home)
    home.make()
    assert stop_limit_s(home, "gateway") == 65.0
    write_configs(home, settings)
    assert stop_limit_s(home, "gateway") == 605.0
    assert "TimeoutStopSec=615" in gateway_unit({}, settings)


def test_a_relative_access_log_lies_in_the_home_wherever_a_command_is_given(tmp_path: Path):
    env = {"HOME": str(tmp_path), "MOORAGE_GATEWAY_ACCESS_LOG": "logs/access.log"}
    settings = load(env)
    assert settings.gateway_access_log == tmp_path / ".moorage" / "logs" / "access.log"
    assert f"MOORAGE_GATEWAY_ACCESS_LOG={settings.gateway_access_log}" in gateway_unit(env, settings)
    assert load({**env, "MOORAGE_GATEWAY_ACCESS_LOG": "/var/log/a"}).gateway_access_log == Path("/var/log/a")
    assert load({**env, "MOORAGE_GATEWAY_ACCESS_LOG": "off"}).gateway_access_log is None


def test_paths_in_the_unit_do_not_depend_on_where_it_was_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    env = {
        "HOME": str(tmp_path),
        "MOORAGE_GATEWAY_TLS_CERTIFICATE": "gw.pem",
        "MOORAGE_GATEWAY_TLS_KEY": "~/gw.key",
    }
    unit = gateway_unit(env, load(env))
    assert f'"MOORAGE_GATEWAY_TLS_CERTIFICATE={tmp_path}/gw.pem"' in unit
    assert "=~" not in unit


def test_an_access_log_whose_folder_is_not_there_is_refused_and_nothing_is_made(tmp_path: Path):
    home = Home(tmp_path / "home")
    with pytest.raises(InvalidSpec, match="is not there"):
        home.require_folder_of(tmp_path / "none" / "access.log")
    assert not (tmp_path / "none").exists()
    home.require_folder_of(home.root / "logs" / "access.log")  # which `moor up` makes
    home.require_folder_of(tmp_path / "access.log")
    (home.root / "logs").mkdir(parents=True)
    for folder in (home.root / "logs", tmp_path):
        with pytest.raises(InvalidSpec, match="it is a folder") as refused:
            home.require_folder_of(folder)
        assert str(folder / "access.log") in str(refused.value.remedy)
    home.require_folder_of(None)


def test_settings_that_have_become_others_are_told_with_what_the_parts_were_given(tmp_path: Path):
    home = Home(tmp_path / ".moorage")
    plain = {"HOME": str(tmp_path)}
    given = {"MOORAGE_GATEWAY_PROCESSES": "2", "MOORAGE_AGENT_LABELS": "a=b", "MOORAGE_GATEWAY_DRAIN_S": "9s"}
    assert differing(home, load(plain)) == ()
    assert not home.root.exists(), "to ask makes nothing"
    home.make()
    write_configs(home, load(plain | given))
    assert differing(home, load(plain | given)) == ()
    (log,) = differing(home, load(plain | given | {"MOORAGE_GATEWAY_ACCESS_LOG": "/var/log/a"}))
    assert (log.name, log.part, log.runs, log.now) == ("MOORAGE_GATEWAY_ACCESS_LOG", "gateway", "none", "/var/log/a")
    found = {each.name: (each.part, each.runs, each.now, each.source) for each in differing(home, load(plain))}
    assert found == {
        "MOORAGE_AGENT_LABELS": ("agent", "a=b", "none", "default"),
        "MOORAGE_GATEWAY_PROCESSES": ("gateway", "2", "1", "default"),
        "MOORAGE_GATEWAY_DRAIN_S": ("gateway", "9s", "1m", "default"),
    }


def test_when_a_part_counts_as_hung_is_one_setting_for_the_supervisor_and_the_gateway(tmp_path: Path):
    def given(**env: str) -> tuple[float, float]:
        settings = load({"HOME": str(tmp_path), **env})
        home = Home(settings.home)
        home.make()
        write_configs(home, settings)
        return hang_after_s(home), GatewayConfig.from_file(home.config("gateway")).hang_after_s

    assert given() == (60.0, 60.0)
    assert given(MOORAGE_HANG_AFTER_S="5m") == (300.0, 300.0)
    assert given(MOORAGE_HANG_AFTER_S="off") == (0.0, 0.0)
    off = load({"HOME": str(tmp_path), "MOORAGE_HANG_AFTER_S": "off"})
    assert {"name": "MOORAGE_HANG_AFTER_S", "value": "off", "source": "MOORAGE_HANG_AFTER_S"} in off.to_wire()
    (told,) = differing(Home(off.home), load({"HOME": str(tmp_path), "MOORAGE_HANG_AFTER_S": "90s"}))[1:]
    assert (told.part, told.runs, told.now) == ("supervisor", "off", "90")
    with pytest.raises(InvalidSpec, match="not between 1 and 86400 seconds"):
        load({"HOME": str(tmp_path), "MOORAGE_HANG_AFTER_S": "0.5s"})


def test_a_home_of_an_earlier_release_has_the_usual_bound(tmp_path: Path):
    home = Home(tmp_path / ".moorage")
    home.make()
    assert hang_after_s(home) == 60.0


def test_every_setting_of_a_part_is_compared_but_its_addresses(tmp_path: Path):
    home, settings = Home(tmp_path / ".moorage"), load({"HOME": str(tmp_path)})
    home.make()
    write_configs(home, settings)
    compared = {each.lower().removeprefix("moorage_") for each in _changed_in_every_way(home, settings)}
    elsewhere = {"home", "api", "gateway", "token", "url", "gateway_advertise"}
    assert compared == {row["name"].lower().removeprefix("moorage_") for row in settings.to_wire()} - elsewhere


def _changed_in_every_way(home: Home, settings: Settings) -> list[str]:
    for part in ("server", "agent", "gateway", "supervisor"):
        given = json.loads(home.config(part).read_text())
        own = {key.removeprefix("gateway_"): 7 for key in settings.gateway_own} if part == "gateway" else {}
        odd = {"forwarded": True, "accelerators": "off", "gateway_id": "x", "tls_certificate": "x", "tls_key": "x"}
        given = dict.fromkeys(given, 7.0 if part == "supervisor" else "x") | own | (odd if part == "gateway" else {})
        home.config(part).write_text(json.dumps(given))
    return [each.name for each in differing(home, settings)]

"""A reload keeps where a gateway is and whose it is, and the URL that its clients were given stays theirs."""

from pathlib import Path
from typing import Any

import pytest

from moorage.app.home import Home, part_configs
from moorage.app.reloading import taken_up
from moorage.app.settings import load

TLS = {"MOORAGE_GATEWAY_TLS_CERTIFICATE": "/c.pem", "MOORAGE_GATEWAY_TLS_KEY": "/k.pem"}
ADVERTISED = {"MOORAGE_GATEWAY_ADVERTISE": "https://models.example"}


def after(tmp_path: Path, started: dict[str, str], reloaded: dict[str, str]) -> dict[str, Any]:
    own = {"MOORAGE_HOME": str(tmp_path)}
    home = Home(tmp_path)
    home.make()
    settings = load(own | started)
    running = part_configs(home, settings, settings.api.url)["gateway"]
    return taken_up(home, load(own | reloaded), running)


@pytest.mark.parametrize(
    ("started", "reloaded", "advertised"),
    [
        ({}, {}, "http://127.0.0.1:7421"),
        ({}, TLS, "https://127.0.0.1:7421"),
        (TLS, {}, "http://127.0.0.1:7421"),
        (ADVERTISED, ADVERTISED, "https://models.example"),
        (ADVERTISED, {}, "https://models.example"),
        ({}, ADVERTISED, "https://models.example"),
        (TLS, TLS | {"MOORAGE_GATEWAY_ADVERTISE": "https://other.example"}, "https://other.example"),
    ],
)
def test_the_url_of_clients_changes_with_tls_and_with_what_is_advertised_and_else_not(
    tmp_path: Path, started: dict[str, str], reloaded: dict[str, str], advertised: str
) -> None:
    assert after(tmp_path, started, reloaded)["advertise"] == advertised


def test_where_it_is_and_whose_it_is_stays(tmp_path: Path) -> None:
    moved = {"MOORAGE_GATEWAY": "127.0.0.1:9999", "MOORAGE_GATEWAY_ID": "other", "MOORAGE_GATEWAY_WRITE_TIMEOUT_S": "9"}
    found = after(tmp_path, {}, moved)
    assert (found["port"], found["write_timeout_s"]) == (7421, 9.0)
    assert found["gateway_id"] != "other"

"""Which control plane is meant, and that a token goes nowhere else."""

import inspect
import json

import pytest

from moorage.client import AsyncClient, Client
from moorage.client.address import DEFAULT_URL, find_address
from moorage.client.sync import Deployments, Events, Runs, Workers
from moorage.domain.errors import InvalidSpec


@pytest.fixture
def home(tmp_path):
    recorded = {"url": "http://127.0.0.1:9001", "token": "secret", "gateway_url": "http://127.0.0.1:9002"}
    (tmp_path / "client.json").write_text(json.dumps(recorded))
    return tmp_path


def test_the_home_of_the_environment_says_where_and_proves_who(home):
    found = find_address(None, None, None, {"MOORAGE_HOME": str(home)})
    assert (found.url, found.token, found.gateway_url) == ("http://127.0.0.1:9001", "secret", "http://127.0.0.1:9002")


def test_the_default_home_is_beside_the_users_files(tmp_path):
    (tmp_path / ".moorage").mkdir()
    (tmp_path / ".moorage" / "client.json").write_text('{"url": "http://127.0.0.1:9003"}')
    assert find_address(None, None, None, {"HOME": str(tmp_path)}).url == "http://127.0.0.1:9003"


def test_arguments_win_over_variables_and_these_over_the_file(home):
    env = {"MOORAGE_HOME": str(home), "MOORAGE_URL": "http://b:1", "MOORAGE_TOKEN": "from-env"}
    assert find_address("http://a:1/", "given", None, env).url == "http://a:1"
    assert find_address("http://a:1/", "given", None, env).token == "given"
    assert find_address(None, None, None, env).url == "http://b:1"
    assert find_address(None, None, None, env).token == "from-env"


def test_the_token_of_the_file_is_never_sent_to_another_address(home):
    found = find_address("http://elsewhere:1", None, home)
    assert (found.token, found.gateway_url) == (None, None)
    assert find_address("http://127.0.0.1:9001/", None, home).token == "secret"


def test_without_anything_the_usual_address_is_meant(tmp_path):
    assert find_address(None, None, tmp_path).url == DEFAULT_URL
    assert find_address(None, None, None).url == DEFAULT_URL


def test_plain_files_for_address_and_token_are_read_as_well(tmp_path):
    (tmp_path / "url").write_text("http://127.0.0.1:9009\n")
    (tmp_path / "token").write_text("t\n")
    found = find_address(None, None, tmp_path)
    assert (found.url, found.token) == ("http://127.0.0.1:9009", "t")


def test_an_address_that_is_none_and_a_broken_file_are_refused_with_what_to_do(tmp_path):
    with pytest.raises(InvalidSpec, match="not the address"):
        Client("localhost:7420")
    (tmp_path / "client.json").write_text("{")
    with pytest.raises(InvalidSpec, match=r"client\.json") as caught:
        Client(home=tmp_path)
    assert "moor up" in caught.value.remedy


def test_a_client_of_an_environment_knows_the_gateway(home):
    with Client.from_environment({"MOORAGE_HOME": str(home)}) as client:
        assert client.gateway_url == "http://127.0.0.1:9002"
        assert client.url == "http://127.0.0.1:9001"


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_client_without_arguments_is_the_one_that_the_commands_use(make, home, monkeypatch):
    monkeypatch.delenv("MOORAGE_URL", raising=False)
    monkeypatch.delenv("MOORAGE_TOKEN", raising=False)
    monkeypatch.setenv("MOORAGE_HOME", str(home))
    assert (make().url, make().address.token, make().gateway_url) == (
        "http://127.0.0.1:9001",
        "secret",
        "http://127.0.0.1:9002",
    )
    monkeypatch.setenv("MOORAGE_URL", "http://b:1")
    assert make().url == "http://b:1"
    assert (make("http://a:1", "given").url, make("http://a:1", "given").address.token) == ("http://a:1", "given")


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_client_that_is_given_a_home_looks_at_no_variable(make, home, monkeypatch):
    monkeypatch.setenv("MOORAGE_URL", "http://b:1")
    monkeypatch.setenv("MOORAGE_TOKEN", "of another")
    assert (make(home=home).url, make(home=home).address.token) == ("http://127.0.0.1:9001", "secret")


def test_what_a_blocking_client_gives_line_by_line_is_shown_as_an_iterator():
    for method in (Client.logs, Runs.logs, Workers.logs, Deployments.logs, Events.follow):
        assert "Iterator" in str(inspect.signature(method).return_annotation)
        assert "Async" not in str(inspect.signature(method).return_annotation)

"""Where `moor secrets set` takes values from, and that it never shows one."""

import io
from pathlib import Path
from typing import Any

import click
import pytest

from moorage.cli.commands import secrets
from moorage.domain.errors import InvalidSpec

VALUE = "sesame-sesame"


class Client:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.secrets = self
        self.told: dict[str, str] = {}

    def set(self, name: str, values: dict[str, str]) -> dict[str, Any]:
        self.told = values
        return {"name": name, "keys": sorted(values), "version": 1}


def run(monkeypatch: pytest.MonkeyPatch, *args: str, env: dict[str, str] | None = None) -> dict[str, str]:
    """What the client was told."""
    client = Client()
    monkeypatch.setattr("moorage.cli.session.Session.client", client)
    secrets.secrets.main(["set", "name", *args], standalone_mode=False, obj=env or {})
    return client.told


def test_values_come_from_files_variables_and_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one").write_text(VALUE + "\n")
    (tmp_path / "several").write_text("-----BEGIN-----\nkey\n-----END-----\n")
    told = run(
        monkeypatch,
        "user=me",
        *("--from-file", f"a={tmp_path}/one", "--from-file", f"b={tmp_path}/several"),
        *("--from-env", "TOKEN", "--from-env", "other=TOKEN"),
        env={"TOKEN": VALUE},
    )
    several = "-----BEGIN-----\nkey\n-----END-----\n"
    assert told == {"user": "me", "a": VALUE, "b": several, "TOKEN": VALUE, "other": VALUE}
    shown = capsys.readouterr()
    assert shown.out == "name: set (TOKEN, a, b, other, user), version 1\n"
    assert VALUE not in shown.out + shown.err


def test_an_empty_value_is_set_only_where_that_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSpec, match="value of TOKEN is empty"):
        run(monkeypatch, "--from-env", "TOKEN", env={"TOKEN": ""})
    assert run(monkeypatch, "token=", "--allow-empty") == {"token": ""}


def test_without_any_the_value_is_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(VALUE + "\n"))
    assert run(monkeypatch) == {"value": VALUE}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((f"{VALUE}",), "not KEY=VALUE"),
        (("--from-file", f"{VALUE}"), "not KEY=PATH"),
        (("--from-file", "a=/nowhere/at/all"), "cannot read /nowhere/at/all: No such file"),
        (("--from-env", "NOT_SET"), "there is no variable NOT_SET"),
        (("--from-env", f"token={VALUE}"), "the variable named for token is not set"),
    ],
)
def test_a_wrong_argument_is_refused_without_repeating_a_value(
    monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], said: str
) -> None:
    with pytest.raises((InvalidSpec, click.UsageError)) as refused:
        run(monkeypatch, *args)
    assert said in str(refused.value)
    assert VALUE not in str(refused.value)

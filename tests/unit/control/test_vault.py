"""Secrets are encrypted where they are kept, and no message, list or record shows a value."""

import base64
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from moorage.clock import SystemClock
from moorage.control.sealing import Sealer
from moorage.control.vault import Vault, resolve
from moorage.domain.errors import InvalidSpec, NotFound, Unavailable
from moorage.store import open_store
from moorage.store.store import SqlStore

VALUE = "hunter2-hunter2-hunter2"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = await open_store(f"sqlite:///{tmp_path}/m.db", SystemClock())
    yield opened
    await opened.close()


@pytest.fixture
def vault(store: SqlStore, tmp_path: Path) -> Vault:
    return Vault(store, SystemClock(), Sealer(tmp_path / "home" / "secrets.key"))


async def test_what_is_kept_can_be_read_by_the_vault_and_is_nowhere_on_disk(
    vault: Vault, store: SqlStore, tmp_path: Path
) -> None:
    shown = await vault.put("default", "hf-token", {"value": VALUE})
    assert (shown["keys"], shown["version"]) == (["value"], 1)
    assert await vault.values("default", "hf-token") == {"value": VALUE}
    hidden = (VALUE.encode(), base64.b64encode(VALUE.encode()))
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if any(text in path.read_bytes() for text in hidden)]
    assert VALUE not in json.dumps([shown, await vault.list("default"), await store.secrets("")])


async def test_the_key_file_is_for_its_owner_only(vault: Vault, tmp_path: Path) -> None:
    await vault.put("default", "a", {"value": VALUE})
    assert stat.S_IMODE((tmp_path / "home" / "secrets.key").stat().st_mode) == 0o600


async def test_the_same_values_again_change_nothing_and_others_raise_the_version(vault: Vault) -> None:
    changed: list[str] = []
    vault.on_change = changed.append
    first = await vault.put("team", "a", {"value": VALUE})
    assert await vault.put("team", "a", {"value": VALUE}) == first
    assert (await vault.put("team", "a", {"value": "other"}))["version"] == 2
    assert changed == ["team", "team"]


async def test_namespaces_do_not_see_each_others_secrets(vault: Vault) -> None:
    await vault.put("team", "a", {"value": VALUE})
    await vault.put("team-b", "b", {"value": VALUE})
    assert [s["name"] for s in await vault.list("team")] == ["a"]
    assert await vault.values("team-b", "a") is None


async def test_a_removed_secret_is_gone(vault: Vault) -> None:
    await vault.put("default", "a", {"value": VALUE})
    await vault.remove("default", "a")
    assert await vault.values("default", "a") is None
    with pytest.raises(NotFound, match="there is no secret default/a"):
        await vault.remove("default", "a")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "one key at least"),
        ({"": VALUE}, "a key has letters"),
        ({"a/b": VALUE}, "a key has letters"),
        ({"a": VALUE + "\0"}, "NUL byte"),
        ({"a": VALUE * 10_000}, "more than 65536 bytes"),
        ({str(n): VALUE * 2_000 for n in range(8)}, "bytes in all"),
    ],
)
async def test_what_cannot_be_kept_is_refused_without_showing_it(
    vault: Vault, values: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidSpec, match=said) as refused:
        await vault.put("default", "a", values)
    assert VALUE not in json.dumps(refused.value.to_wire())


async def test_a_control_plane_with_another_key_says_so(vault: Vault, store: SqlStore, tmp_path: Path) -> None:
    await vault.put("default", "a", {"value": VALUE})
    other = Vault(store, SystemClock(), Sealer(tmp_path / "elsewhere" / "secrets.key"))
    with pytest.raises(Unavailable, match="encrypted with another key"):
        await other.values("default", "a")


async def test_a_sealed_text_that_was_moved_to_another_name_does_not_open(vault: Vault, store: SqlStore) -> None:
    await vault.put("default", "a", {"value": VALUE})
    await store.put_secret("secret/default/b", await store.secret("secret/default/a") or "")
    with pytest.raises(Unavailable, match="not what was stored there"):
        await vault.values("default", "b")


def test_a_damaged_key_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "secrets.key").write_text("bm90IGxvbmcgZW5vdWdo\n")
    with pytest.raises(Unavailable, match="cannot be used"):
        Sealer(tmp_path / "secrets.key").seal(VALUE, "here")
    assert (tmp_path / "secrets.key").read_text() == "bm90IGxvbmcgZW5vdWdo\n"


@pytest.mark.parametrize(
    ("reference", "values", "found"),
    [
        ("s", {"value": "1", "b": "2"}, ("1", "value")),
        ("s", {"token": "1"}, ("1", "token")),
        ("s", {"a": "1", "b": "2"}, (None, "value")),
        ("s", {}, (None, "value")),
        ("s/b", {"a": "1", "b": "2"}, ("2", "b")),
        ("s/c", {"a": "1"}, (None, "c")),
    ],
)
def test_a_reference_means_one_key(reference: str, values: dict[str, str], found: tuple[str | None, str]) -> None:
    assert resolve(reference, values) == found

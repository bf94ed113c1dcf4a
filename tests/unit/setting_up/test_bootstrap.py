"""The first step on a bare machine: fetched files are checked, installs stay ours, what is missing is named."""

import ast
import hashlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

TOOLS = Path(__file__).resolve().parents[3] / "tools"
sys.path.insert(0, str(TOOLS))

import bootstrap  # noqa: E402
from setting_up import index, install, system, uv  # noqa: E402

INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
WHEEL = "uv-9.9.9-py3-none-any.whl"
HTML = f'<html><a href="../../files/{WHEEL}#sha256=00">{WHEEL}</a></html>'
JSON = f'{{"files": [{{"filename": "{WHEEL}", "url": "/files/{WHEEL}"}}]}}'


class Index(ThreadingHTTPServer):
    """A package index with one wheel, in one of the two forms of the simple API."""

    def __init__(self, page: str, kind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.page, self.kind = page, kind
        self.asked: list[tuple[str, str | None]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        known = {"/simple/uv/": (self.server.page.encode(), self.server.kind), f"/files/{WHEEL}": (b"wheel", "x/y")}
        body, kind = known.get(self.path, (b"", "text/plain"))
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture(params=[(HTML, "text/html"), (JSON, "application/vnd.pypi.simple.v1+json")], ids=["html", "json"])
def an_index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with Index(*request.param) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in INDEX_VARIABLES:
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_INDEX_URL", f"http://me:secret@{server.address}/simple")
        yield server
        server.shutdown()


def test_a_file_is_found_in_the_index_that_the_machine_names(an_index: Index) -> None:
    assert index.find_in_index(WHEEL) == f"http://{an_index.address}/files/{WHEEL}"
    assert index.find_in_index("uv-0.0.0-py3-none-any.whl") is None


def test_a_password_in_the_index_address_travels_as_a_header_only(an_index: Index) -> None:
    index.find_in_index(WHEEL)
    assert an_index.asked == [("/simple/uv/", "Basic bWU6c2VjcmV0")]


def test_a_download_of_the_pinned_hash_is_kept_and_of_any_other_refused(an_index: Index, tmp_path: Path) -> None:
    url = f"http://{an_index.address}/files/{WHEEL}"
    index.download(url, tmp_path / "good", hashlib.sha256(b"wheel").hexdigest())
    assert (tmp_path / "good").read_bytes() == b"wheel"
    with pytest.raises(system.Problem, match="not the pinned"):
        index.download(url, tmp_path / "bad", "0" * 64)
    assert [path.name for path in tmp_path.iterdir()] == ["good"]


def test_an_index_that_cannot_be_reached_is_one_line_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    with pytest.raises(system.Problem, match="PIP_INDEX_URL") as raised:
        index.find_in_index(WHEEL)
    assert "\n" not in str(raised.value)


def test_the_gate_can_be_read_by_old_pythons() -> None:
    ast.parse((TOOLS / "bootstrap.py").read_text(), feature_version=(3, 4))


def test_an_old_python_is_answered_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(bootstrap.shutil, "which", lambda _name: None)
    assert bootstrap.main().startswith("error: Moorage needs Python 3.11 or newer and this is 3.9: ")


@pytest.fixture
def a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A checkout in a temporary folder, whose programs are recorded and not run."""
    ran: list[tuple[list[str], dict[str, str]]] = []

    def recorded(command: list[str], env: dict[str, str]) -> None:
        ran.append((command, env))
        for name in ("python", "moor"):
            (tmp_path / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
            (tmp_path / ".venv" / "bin" / name).touch()

    for name in ("uv.lock", "pyproject.toml"):
        (tmp_path / name).write_text("x")
    for module in (install, uv):
        monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
        monkeypatch.setattr(module, "CACHE", tmp_path / ".cache")
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(install, "run", recorded)
    monkeypatch.setattr(install, "uv_program", lambda: Path("/programs/uv"))
    for name in INDEX_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return SimpleNamespace(root=tmp_path, ran=ran)


def test_a_second_run_does_nothing_until_the_lock_changes(a_checkout: SimpleNamespace) -> None:
    assert install.bootstrap(["full"]) == 0
    assert install.bootstrap(["full"]) == 0
    assert install.bootstrap(["demo"]) == 0  # full includes it
    assert len(a_checkout.ran) == 1
    (a_checkout.root / "uv.lock").write_text("y")
    assert install.bootstrap(["full"]) == 0
    assert len(a_checkout.ran) == 2


def test_everything_that_uv_writes_lies_inside_the_checkout(a_checkout: SimpleNamespace) -> None:
    install.bootstrap(["full"])
    _, env = a_checkout.ran[0]
    assert Path(env["UV_CACHE_DIR"]).is_relative_to(a_checkout.root)
    assert Path(env["TMPDIR"]).is_relative_to(a_checkout.root)
    assert Path(env["UV_PROJECT_ENVIRONMENT"]) == a_checkout.root / ".venv"
    assert env["UV_PYTHON_DOWNLOADS"] == "never"


def test_behind_a_mirror_only_our_own_environment_is_installed_into(
    a_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    assert install.bootstrap(["full"]) == 0
    installs = [command for command, _ in a_checkout.ran if "install" in command]
    assert len(installs) == 2
    for command in installs:
        assert command[command.index("--python") + 1] == str(a_checkout.root / ".venv" / "bin" / "python")


@pytest.mark.parametrize("is_there", [True, False])
def test_an_environment_of_another_checkout_is_left_as_it_is(
    a_checkout: SimpleNamespace,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    is_there: bool,
) -> None:
    other = tmp_path_factory.mktemp("other") / ".venv"
    if is_there:
        other.mkdir()
    (a_checkout.root / ".venv").symlink_to(other)
    assert install.bootstrap(["full"]) == 1
    said = capsys.readouterr().err
    assert f"error: {a_checkout.root / '.venv'} is a link to {other}, outside this checkout" in said
    assert f"rm {a_checkout.root / '.venv'}" in said
    assert not a_checkout.ran
    assert not is_there or not list(other.iterdir())


def test_a_link_that_stays_in_the_checkout_is_an_environment_as_another(a_checkout: SimpleNamespace) -> None:
    (a_checkout.root / "environments").mkdir()
    (a_checkout.root / ".venv").symlink_to("environments")
    assert install.bootstrap(["full"]) == 0
    assert len(a_checkout.ran) == 1


def test_a_step_that_fails_leaves_no_stamp(a_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_command: list[str], _env: dict[str, str]) -> None:
        raise system.Problem("uv ended with exit code 2")

    monkeypatch.setattr(install, "run", fails)
    assert install.bootstrap(["full"]) == 1
    assert not list(a_checkout.root.glob(".venv/.moorage-*"))


def test_without_venv_and_without_root_it_says_which_package_to_install(
    a_checkout: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "uv_program", lambda: None)
    monkeypatch.setattr(system.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(system.subprocess, "run", lambda *_a, **_k: SimpleNamespace(returncode=1))
    assert install.bootstrap(["demo"]) == 1
    assert "apt-get install python3-venv" in capsys.readouterr().err
    assert not a_checkout.ran

"""Real engines for tests: podman's service and dockerd, each with a socket, directories and limits of its own."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

IMAGE = "localhost/moorage-test:1"
STARTS_WITHIN_S = 120.0
BUSYBOX = Path("/bin/busybox")
APPLETS = ("sh", "sleep", "httpd", "echo", "cat", "true", "head", "yes", "env", "setsid", "seq", "ls", "touch", "mkdir")

CONTAINERS_CONF = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
lock_type = "file"
events_logger = "file"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"""
REGISTRIES_CONF = """
unqualified-search-registries = []
[[registry]]
location = "127.0.0.1"
insecure = true
[[registry]]
prefix = "*.test"
location = "127.0.0.1"
insecure = true
"""


@dataclass
class Engine:
    name: str
    socket: Path
    base: Path
    process: subprocess.Popen[bytes]
    argv: list[str]
    env: dict[str, str]

    def client(self) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self.socket))
        return httpx.Client(transport=transport, base_url="http://engine", timeout=120)

    def remove(self, container: str) -> None:
        """As somebody does by hand, with force; podman gives no grace only on its own API."""
        own = "/v4.0.0/libpod" if self.name == "podman" else ""
        with self.client() as client:
            client.delete(f"{own}/containers/{container}", params={"force": "true", "v": "true", "timeout": "0"})

    def kill(self) -> None:
        """As an engine ends that crashes; its containers may go on."""
        self.process.kill()
        self.process.wait()

    def make_ready(self) -> None:
        """As a test may expect it, whatever the one before did."""
        if self.process.poll() is not None:
            self.start_again()
        with self.client() as client:
            left = [row["Id"] for row in client.get("/containers/json", params={"all": "true"}).json()]
        for container in left:
            self.remove(container)

    def start_again(self) -> None:
        self.process = _spawn(self.argv, self.env, self.base)
        _wait_for_answer(self)


def _unavailable(why: str) -> None:
    if os.environ.get("MOORAGE_REQUIRE_ENGINES") == "1":
        pytest.fail(f"MOORAGE_REQUIRE_ENGINES is set: {why}")
    pytest.skip(why)


@contextlib.contextmanager
def running(name: str) -> Iterator[Engine]:
    program = {"podman": "podman", "docker": "dockerd"}[name]
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    if found is None:
        _unavailable(f"{program} is not installed on this machine")
    if os.geteuid() != 0:
        _unavailable(f"{name} is started by these tests as root only")
    if not BUSYBOX.exists():
        _unavailable("the static busybox, of which the test image is made, is not installed")
    # Not under pytest's own directory: the path of a Unix socket has at most 107 bytes.
    base = Path(tempfile.mkdtemp(prefix=f"moorage-{name}-", dir="/tmp"))
    engine = (_podman if name == "podman" else _docker)(str(found), base)
    try:
        _wait_for_answer(engine)
        _make_image(engine)
        yield engine
    finally:
        _end(engine)
        shutil.rmtree(base, ignore_errors=True)


def _podman(program: str, base: Path) -> Engine:
    (base / "containers.conf").write_text(CONTAINERS_CONF)
    (base / "registries.conf").write_text(REGISTRIES_CONF)
    (base / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
    env = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(base),
        "CONTAINERS_CONF": str(base / "containers.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(base / "registries.conf"),
        "TMPDIR": str(base),
    }
    socket = base / "s"
    folders = ["--root", str(base / "root"), "--runroot", str(base / "run"), "--tmpdir", str(base / "tmp")]
    argv = [program, *folders, "--storage-driver", "vfs", "system", "service", "--time", "0", f"unix://{socket}"]
    return Engine("podman", socket, base, _spawn(argv, env, base), argv, env)


def _docker(program: str, base: Path) -> Engine:
    env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(base)}
    socket = base / "s"
    folders = ["--data-root", str(base / "root"), "--exec-root", str(base / "x"), "--pidfile", str(base / "pid")]
    limits = ["--default-ulimit", "nofile=1024:1024", "--default-ulimit", "nproc=1024:1024"]
    network = ["--iptables=false", "--bridge=none"]
    argv = [program, *folders, *limits, *network, "--storage-driver", "vfs", "-H", f"unix://{socket}"]
    return Engine("docker", socket, base, _spawn(argv, env, base), argv, env)


def _spawn(argv: list[str], env: dict[str, str], base: Path) -> subprocess.Popen[bytes]:
    with (base / "engine.log").open("ab") as log:
        return subprocess.Popen(argv, env=env, stdout=log, stderr=log, cwd=base)


def _wait_for_answer(engine: Engine) -> None:
    deadline = time.monotonic() + STARTS_WITHIN_S
    while True:
        with contextlib.suppress(httpx.HTTPError), engine.client() as client:
            if client.get("/_ping").status_code == 200:
                return
        if engine.process.poll() is not None or time.monotonic() > deadline:
            said = (engine.base / "engine.log").read_text(errors="replace")[-1500:]
            _end(engine)
            _unavailable(f"{engine.name} does not start on this machine: {said}")
        time.sleep(0.05)


def rootfs(unique: bytes = b"") -> bytes:
    """A tar of busybox with its links, and the files of a model server: all an image needs."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for folder in ("bin", "tmp", "proc", "dev", "sys", "etc", "www", "www/v1"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        tar.add(BUSYBOX, "bin/busybox")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        files = {
            "www/health": b'{"status": "ok"}',
            "www/v1/models": b'{"data": [{"id": "tiny"}]}',
            "etc/unique": unique,
        }
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _make_image(engine: Engine) -> None:
    headers = {"Content-Type": "application/x-tar"}
    name, _, tag = IMAGE.rpartition(":")
    path = f"/v4.0.0/libpod/images/import?reference={IMAGE}"
    if engine.name == "docker":
        path = f"/images/create?fromSrc=-&repo={name}&tag={tag}"
    with engine.client() as client:
        client.post(path, content=rootfs(), headers=headers).raise_for_status()


def _end(engine: Engine) -> None:
    """Remove its containers, then end it."""
    if engine.process.poll() is None:
        with contextlib.suppress(httpx.HTTPError), engine.client() as client:
            for row in client.get("/containers/json", params={"all": "true"}).json():
                engine.remove(row["Id"])
        engine.process.terminate()
        try:
            engine.process.wait(60)
        except subprocess.TimeoutExpired:
            engine.process.kill()
            engine.process.wait()
    for mount in reversed(Path("/proc/mounts").read_text().splitlines()):
        where = mount.split()[1]
        if where.startswith(f"{engine.base}/"):
            subprocess.run(["umount", "-l", where], check=False)

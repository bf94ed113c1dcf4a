"""The pinned uv: fetched once into `.cache/`, and the environment that keeps all it writes inside the project."""

import os
import platform
import shutil
import sys
import zipfile
from pathlib import Path

from setting_up.index import download, find_in_index
from setting_up.system import ROOT, certificates

CACHE = ROOT / ".cache"
VENV = ROOT / ".venv"

UV_VERSION = "0.13.9"
# (system, machine, C library) -> the platform part of the wheel's name and its sha256.
UV_WHEELS = {
    ("Linux", "x86_64", "glibc"): (
        "manylinux_2_17_x86_64.manylinux2014_x86_64",
        "d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19",
    ),
    ("Linux", "aarch64", "glibc"): (
        "manylinux_2_28_aarch64",
        "ecb6028d79dc96fbeafffe5c8af62a7099487ebc05a701e76714eebcffd06375",
    ),
    ("Linux", "x86_64", "musl"): (
        "musllinux_1_1_x86_64",
        "2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25",
    ),
    ("Linux", "aarch64", "musl"): (
        "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
        "5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe",
    ),
    ("Darwin", "arm64", ""): (
        "macosx_11_0_arm64",
        "66c512266d633bef48384a1f53003f41f2a8e7b36fe6e7fbfd3e0fd52d96fa63",
    ),
    ("Darwin", "x86_64", ""): (
        "macosx_10_12_x86_64",
        "c16ed11e013557536b3e60065f1b912f6407bd6518e041b961e23ef9e6b4fbf5",
    ),
}


def uv_program() -> Path | None:
    """The pinned uv, fetched once; None when this machine or its index has none."""
    binary = CACHE / f"uv-{UV_VERSION}" / "uv"
    if binary.exists():
        return binary
    wheel = UV_WHEELS.get((platform.system(), platform.machine(), _c_library()))
    if wheel is None:
        return None
    name = f"uv-{UV_VERSION}-py3-none-{wheel[0]}.whl"
    url = find_in_index(name)
    if url is None:
        return None
    archive = CACHE / name
    download(url, archive, wheel[1])
    _unpack(archive, binary)
    return binary


def _unpack(archive: Path, binary: Path) -> None:
    """Take the one program out of the wheel, so that a half-written one never stands at its final name."""
    binary.parent.mkdir(parents=True, exist_ok=True)
    half = binary.with_suffix(".half")
    with zipfile.ZipFile(archive) as wheel:
        member = f"uv-{UV_VERSION}.data/scripts/uv"
        with wheel.open(member) as source, half.open("wb") as target:
            shutil.copyfileobj(source, target)
    half.chmod(0o755)
    half.rename(binary)
    archive.unlink()


def uv_environment() -> dict[str, str]:
    """Everything inside the project; the machine's certificates; the Python that runs this, never a fetched one."""
    env = dict(os.environ)
    for name in ("VIRTUAL_ENV", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS"):
        env.pop(name, None)
    mine = VENV / "bin" / "python"
    scratch = CACHE / "tmp"  # uv keeps a lock file in the temporary folder
    scratch.mkdir(parents=True, exist_ok=True)
    env.update(
        UV_CACHE_DIR=str(CACHE / "uv"),
        TMPDIR=str(scratch),
        UV_PROJECT_ENVIRONMENT=str(VENV),
        UV_PYTHON=str(mine if mine.exists() else Path(sys.executable)),
        UV_PYTHON_DOWNLOADS="never",
        UV_SYSTEM_CERTS="1",
    )
    bundle = certificates()
    if bundle:
        env["SSL_CERT_FILE"] = bundle
    return env


def _c_library() -> str:
    if platform.system() != "Linux":
        return ""
    return "glibc" if platform.libc_ver()[0] == "glibc" else "musl"

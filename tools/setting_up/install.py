"""Brings `.venv` to what a profile asks: once, by one process at a time, from pinned and hashed files only."""

import contextlib
import fcntl
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from setting_up.index import index, own_index
from setting_up.system import ROOT, Problem, need_ensurepip, run, say
from setting_up.uv import CACHE, VENV, uv_environment, uv_program

REQUIREMENTS = ROOT / "tools" / "requirements.txt"

PROFILES = {
    "demo": ["--no-dev", "--extra", "demo", "--group", "demo"],
    "full": ["--all-extras", "--all-groups"],
}


def bootstrap(argv: list[str]) -> int:
    """Bring `.venv` to what the profile asks; 0 when it is there, 1 with one line that says what to do."""
    profile = argv[0] if argv else "full"
    if profile not in PROFILES:
        print(f"error: no profile {profile!r}; there are: {', '.join(PROFILES)}", file=sys.stderr)
        return 1
    try:
        if _is_current(profile):
            return 0
        CACHE.mkdir(exist_ok=True)
        with _alone():
            if not _is_current(profile):  # another make may just have done it
                _require_ours()
                _install(profile)
                _stamp(profile).write_text(_digest())
    except Problem as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


def _require_ours() -> None:
    """`.venv` may be a link, but to nowhere outside: this checkout would be installed into another one's environment.

    Raises:
        Problem: it is one.
    """
    place = VENV.resolve()
    if not place.is_relative_to(ROOT.resolve()):
        raise Problem(
            f"{VENV} is a link to {place}, outside this checkout: setting up would put this checkout's code and "
            f"packages into that environment; remove the link (rm {VENV}) and run the same command again"
        )


def _install(profile: str) -> None:
    began = time.monotonic()
    say(f"setting up {VENV.name} ({profile}); everything stays inside {ROOT}")
    uv = uv_program()
    if uv is None:
        _install_with_pip()
    elif own_index():
        _install_from_own_index(uv)
    else:
        run([str(uv), "sync", "--frozen", "--inexact", *PROFILES[profile]], uv_environment())
    say(f"ready in {time.monotonic() - began:.0f} s")


def _install_from_own_index(uv: Path) -> None:
    """The lock names the public index's addresses; behind a mirror the same hashes are asked of the mirror.

    `--python` names our own environment: `uv pip` would otherwise follow `UV_PYTHON` and change the machine's Python.
    """
    python = VENV / "bin" / "python"
    env = {**uv_environment(), "UV_DEFAULT_INDEX": index()}
    if not python.exists():
        run([str(uv), "venv", "--quiet", str(VENV)], env)
    into = [str(uv), "pip", "install", "--python", str(python), "--no-deps"]
    run([*into, "--require-hashes", "-r", str(REQUIREMENTS)], env)
    run([*into, "--editable", str(ROOT)], env)


def _install_with_pip() -> None:
    """Where no uv can be had: the standard library's venv, and pip on the same pinned and hashed list."""
    say("uv cannot be had here; using python's own venv and pip (slower, same versions)")
    python = VENV / "bin" / "python"
    if not (VENV / "bin" / "pip").exists():
        need_ensurepip()
        run([sys.executable, "-m", "venv", str(VENV)], dict(os.environ))
    env = {**os.environ, "PIP_CACHE_DIR": str(CACHE / "pip"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run([str(python), "-m", "pip", "install", "--no-deps", "--require-hashes", "-r", str(REQUIREMENTS)], env)
    run([str(python), "-m", "pip", "install", "--no-deps", "--editable", str(ROOT)], env)


def _is_current(profile: str) -> bool:
    """Whether this profile, or the one that includes it, was installed from the same files."""
    if not (VENV / "bin" / "moor").exists() or not (VENV / "bin" / "python").exists():
        return False
    digest = _digest()
    return any(_read(_stamp(name)) == digest for name in {profile, "full"})


def _stamp(profile: str) -> Path:
    return VENV / f".moorage-{profile}"


def _digest() -> str:
    files = (ROOT / "uv.lock", ROOT / "pyproject.toml", *sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files) + str(ROOT).encode()).hexdigest()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Only one bootstrap at a time works on this checkout; the kernel drops the lock with its holder."""
    with (CACHE / "bootstrap.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another make is setting up; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""The C core of the gateway as tests have it: compiled from the sources that are there, once for each state of it.

`MOORAGE_NATIVE_CORE=/path/to/moorage_gateway_native.so` takes one that was built otherwise (with sanitizers). Where it
cannot be built its tests are skipped, with the reason.
"""

import hashlib
import importlib.util
import os
import shlex
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from moorage.gateway import native

NAME = "moorage_gateway_native"
FOLDER = Path(native.__file__).parent
CACHE = Path(__file__).parents[1] / ".cache" / "native"
FLAGS = ("-std=c11", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror")


@cache
def the_core() -> native.NativeCore:
    """The core; skips the test where there is none to be had."""
    given = os.environ.get("MOORAGE_NATIVE_CORE")
    path = Path(given) if given else _built()
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    core: native.NativeCore = module
    return core


@contextmanager
def in_use(core: native.NativeCore | None) -> Iterator[None]:
    """Use this core, or Python alone, and then what was in use before."""
    before = native.core
    native.use(core)
    try:
        yield
    finally:
        native.use(before)


def _built() -> Path:
    sources = sorted(FOLDER.glob("*.c"))
    written = b"".join(path.read_bytes() for path in (*sources, *sorted(FOLDER.glob("*.h"))))
    digest = hashlib.sha256(written).hexdigest()[:16]
    path = CACHE / f"{NAME}-{digest}{sysconfig.get_config_var('EXT_SUFFIX')}"
    if path.exists():
        return path
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        pytest.skip(f"the C core cannot be built: no Python.h in {headers}")
    CACHE.mkdir(parents=True, exist_ok=True)
    own = path.with_suffix(f".{os.getpid()}")
    compiler = shlex.split(os.environ.get("CC", "cc"))
    try:
        subprocess.run(
            [*compiler, *FLAGS, f"-I{headers}", "-o", own, *sources], check=True, capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip(f"the C core cannot be built: no compiler ({compiler[0]})")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"the C core does not compile:\n{error.stderr}")
    own.rename(path)
    return path

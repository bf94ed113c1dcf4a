"""Cases that other projects published for their HTTP parsers, fetched when tests run and never copied here.

Where they come from: the source archives of h11 (its reader tests), gunicorn (`tests/requests`) and aiohttp (which
brings llhttp's `test/*.md`) on PyPI, at fixed versions with fixed digests, kept in `.cache/published`. Without a
network the tests that want them are skipped with this as their reason.
"""

import hashlib
import importlib.util
import re
import sys
import tarfile
import types
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FILES = "https://files.pythonhosted.org/packages"
CACHE = Path(__file__).parents[1] / ".cache" / "published"
TIMEOUT_S = 60


@dataclass(frozen=True)
class Archive:
    """One source archive: where it lies, its digest, and the part of it that is unpacked."""

    name: str
    path: str
    digest: str
    part: str

    def unpacked(self) -> Path:
        """The folder of its part; fetched and unpacked when it is not there."""
        folder = CACHE / self.name
        done = folder / ".whole"
        if not done.exists():
            self._unpack(self._fetched(), folder)
            done.touch()
        return folder / self.name / self.part

    def _fetched(self) -> bytes:
        try:
            with urllib.request.urlopen(f"{FILES}/{self.path}/{self.name}.tar.gz", timeout=TIMEOUT_S) as answer:
                data: bytes = answer.read()
        except OSError as error:
            pytest.skip(f"{self.name}'s published cases cannot be fetched: {error}")
        assert hashlib.sha256(data).hexdigest() == self.digest, f"{self.name} is another file than it was"
        return data

    def _unpack(self, data: bytes, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        packed = folder / "archive.tar.gz"
        packed.write_bytes(data)
        with tarfile.open(packed) as archive:
            wanted = [m for m in archive.getmembers() if m.name.startswith(f"{self.name}/{self.part}/") and m.isfile()]
            archive.extractall(folder, wanted, filter="data")
        packed.unlink()


H11 = Archive(
    "h11-0.16.0",
    "01/ee/02a2c011bdab74c6fb3c75474d40b3052059d95df7e73351460c8588d963",
    "4e35b956cf45792e4caa5885e69fba00bdbc6ffafbfa020300e549b208ee5ff1",
    "h11",
)
GUNICORN = Archive(
    "gunicorn-27.0.1",
    "0e/fc/7fd4bbebc1d17394a5c98f0ef565da3341dbb664748d1bebedefead356ee",
    "b1514965361c8b7e8107a80aa2a92636878df1ccfac6dd204a676426e04d9e3e",
    "tests/requests",
)
LLHTTP = Archive(
    "aiohttp-3.14.5",
    "6c/4c/bdccd81e9ee225b69c60e7766c9a5b05364f118f4d383713b89a682d772d",
    "5558a7f5a05af9ecf744af91e5baefc436f93c9333e656c27ec253f9a6bbe178",
    "vendor/llhttp/test",
)


@dataclass(frozen=True)
class Case:
    """Bytes of a client or of a server, and whether those who published them take them for good."""

    name: str
    raw: bytes
    of_client: bool
    good: bool


@cache
def gunicorn() -> tuple[Case, ...]:
    """`valid/*.http` and `invalid/*.http`: requests, with line ends written as escapes."""
    folder = GUNICORN.unpacked()
    files = sorted(folder.glob("*/*.http"))
    return tuple(Case(f"gunicorn/{f.parent.name}/{f.name}", _escaped(f), True, f.parent.name == "valid") for f in files)


def _escaped(file: Path) -> bytes:
    data = file.read_bytes().replace(b"\n", b"").replace(b"\\r\\n", b"\r\n")
    data = data.replace(b"\\0", b"\x00").replace(b"\\n", b"\n").replace(b"\\t", b"\t").replace(b"\\r", b"\r")
    return data.replace(b"\\\\", b"\\")


_BLOCK = re.compile(r"<!-- meta=(\{.*?\}) -->\n```http\n(.*?)\n```\n+```log\n(.*?)```", re.DOTALL)


@cache
def llhttp() -> tuple[Case, ...]:
    """Requests and responses in Markdown, each with what the strict parser says of it; lenient forms are left out."""
    return tuple(case for file in sorted(LLHTTP.unpacked().glob("re*/*.md")) for case in _markdown(file))


def _markdown(file: Path) -> Iterator[Case]:
    for number, found in enumerate(_BLOCK.finditer(file.read_text())):
        meta, text, log = found.groups()
        if "lenient" in meta or "pause" in meta or "finish" in meta:
            continue
        name = f"llhttp/{file.parent.name}/{file.stem}/{number}"
        yield Case(name, _unwrapped(text), '"response' not in meta, "error code=" not in log)


def _unwrapped(text: str) -> bytes:
    """As llhttp's own test runner reads it: line ends are CRLF unless they are written out."""
    text = re.sub(r"\\(\r\n|\r|\n)", "", text)
    raw = re.sub(r"\r\n|\r|\n", "\r\n", text)
    raw = raw.replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t").replace("\\f", "\f")
    raw = re.sub(r"\\x([0-9a-fA-F]{2})", lambda found: chr(int(found[1], 16)), raw)
    return raw.encode("latin-1", "replace")


@cache
def h11() -> tuple[Case, ...]:
    """What h11's reader tests feed to its readers: recorded by running them."""
    tests = _h11_tests()
    cases: list[Case] = []
    for name, test in vars(tests).items():
        if name.startswith("test_readers_"):
            _record(tests, name, test, cases)
    return tuple(cases)


def _h11_tests() -> Any:
    """The module h11.tests.test_io of the archive, beside the installed h11."""
    import h11 as installed

    folder = H11.unpacked() / "tests"
    package = types.ModuleType("h11.tests")
    package.__path__ = [str(folder)]
    sys.modules["h11.tests"] = package
    spec = importlib.util.spec_from_file_location("h11.tests.test_io", folder / "test_io.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert installed.__version__.startswith("0.")
    return module


def _record(tests: Any, name: str, test: Callable[[], None], cases: list[Case]) -> None:
    def tr(reader: Any, data: bytes, expected: Any) -> None:
        of_client = reader is tests.READERS[tests.CLIENT, tests.IDLE]
        if not of_client and reader is not tests.READERS[tests.SERVER, tests.SEND_RESPONSE]:
            return  # of a body alone
        good = expected is not None
        cases.append(Case(f"h11/{name}/{len(cases)}", bytes(data), of_client, good))
        if not good:
            raise tests.LocalProtocolError("recorded")

    kept, tests.tr = tests.tr, tr
    try:
        test()
    finally:
        tests.tr = kept

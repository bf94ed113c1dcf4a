"""Finding and fetching one file of the package index this machine is told to use, checked against a pinned hash."""

import base64
import hashlib
import json
import os
import re
import ssl
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from setting_up.system import Problem, certificates, explain, installed_certificates, is_certificate, say

PUBLIC_INDEX = "https://pypi.org/simple"
TRIES = 3
TIMEOUT_S = 60


def index() -> str:
    """The index that this machine is told to use, as pip and uv name it."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if os.environ.get(name):
            return os.environ[name]
    return PUBLIC_INDEX


def own_index() -> bool:
    """Whether that is another index than the public one, whose addresses the lock names."""
    return index().rstrip("/") != PUBLIC_INDEX


def find_in_index(filename: str) -> str | None:
    """The address of one file of uv in the simple index (JSON or HTML form); None when it is not listed."""
    page = index().rstrip("/") + "/uv/"
    forms = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
    try:
        with _open(page, accept=forms) as answer:
            body, kind, base = answer.read().decode(), answer.headers.get("Content-Type", ""), answer.geturl()
    except urllib.error.HTTPError as refusal:
        if refusal.code == 404:
            return None
        raise Problem(f"the package index answered {refusal.code} for {_public(page)}") from refusal
    if "json" in kind:
        links = [file["url"] for file in json.loads(body)["files"]]
    else:
        links = re.findall(r'href="([^"#]+)', body)
    found = [link for link in links if urllib.parse.unquote(link.rsplit("/", 1)[-1]) == filename]
    return urllib.parse.urljoin(base, found[0]) if found else None


def _open(url: str, accept: str = "*/*") -> Any:
    """Open an address with this machine's proxies and certificates; a name and password in it go into a header."""
    parts = urllib.parse.urlsplit(url)
    headers = {"Accept": accept, "User-Agent": "moorage-bootstrap"}
    if parts.username and parts.hostname:
        pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        url = _public(url)
    context = ssl.create_default_context(cafile=certificates())
    request = urllib.request.Request(url, headers=headers)
    problem: OSError | None = None
    for attempt in range(TRIES):
        try:
            return urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context)
        except urllib.error.HTTPError:
            raise
        except OSError as error:
            problem = error
            if is_certificate(error) and not installed_certificates():
                break
            if attempt + 1 < TRIES:
                say(f"no answer from {parts.hostname} ({error}); trying again")
    raise Problem(explain(parts.hostname or url, problem)) from problem


def download(url: str, target: Path, sha256: str) -> None:
    """Fetch to a side file, check its hash, then put it in place."""
    half = target.with_suffix(".half")
    seen = hashlib.sha256()
    with _open(url) as answer, half.open("wb") as file:
        total = int(answer.headers.get("Content-Length") or 0)
        done, shown = 0, -1
        while block := answer.read(1 << 18):
            file.write(block)
            seen.update(block)
            done += len(block)
            shown = _progress(target.name.split("-py3")[0], done, total, shown)
    if seen.hexdigest() != sha256:
        half.unlink()
        raise Problem(f"{_public(url)} has sha256 {seen.hexdigest()}, not the pinned {sha256}: refused")
    half.rename(target)


def _progress(name: str, done: int, total: int, shown: int) -> int:
    """Show the share that has come: in place on a terminal, one line at each quarter elsewhere."""
    share = 100 * done // total if total else 0
    step = share if sys.stderr.isatty() else share // 25 * 25
    if step != shown:
        ending = "\r" if sys.stderr.isatty() and share < 100 else "\n"
        print(f"  fetching {name}: {step} % of {total / 1e6:.0f} MB", end=ending, file=sys.stderr, flush=True)
    return step


def _public(url: str) -> str:
    """The address without a name and password in it."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

"""A hub for tests: the few endpoints of a model hub that huggingface_hub asks, over real HTTP, in a thread.

Repositories are dicts of files by commit; branches name commits. It can gate a repository, fail the next requests, cut
a file off after so many bytes, hold it there until told, or send other bytes than it names. What was asked is kept.
"""

import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

PIECE = 256 << 10


@dataclass
class Repo:
    """A model repository."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    token: str | None = None
    """who has it may read the files"""


class HubMirror:
    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.asked: list[tuple[str, str, str]] = []
        """method, path, range"""
        self.fail: list[int] = []
        """statuses of the next requests"""
        self.cut_after: int | None = None
        """bytes of each answer to a GET of a file, after which its connection breaks"""
        self.hold_after: int | None = None
        """bytes after which a file's answer waits for `go_on`"""
        self.go_on = threading.Event()
        self.lie = False
        """send other bytes than those that are named"""
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                mirror._serve(self, body=True)

            def do_HEAD(self) -> None:
                mirror._serve(self, body=False)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    def push(self, repo: str, files: dict[str, bytes], branch: str = "main") -> str:
        """A new commit of a branch."""
        known = self.repos.setdefault(repo, Repo())
        commit = hashlib.sha1(f"{len(known.commits)}{sorted(files)}".encode()).hexdigest()
        known.commits[commit] = files
        known.branches[branch] = commit
        return commit

    def fetched(self, file: str) -> list[str]:
        """Ranges of the GETs of a file; empty text: the whole."""
        return [span for method, path, span in self.asked if method == "GET" and path.endswith(f"/{file}")]

    # Serving

    def _serve(self, handler: BaseHTTPRequestHandler, *, body: bool) -> None:
        path = unquote(urlsplit(handler.path).path)
        self.asked.append((handler.command, path, handler.headers.get("Range", "")))
        if self.fail:
            self._answer(handler, self.fail.pop(0), {}, b"busy", body)
            return
        listing = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/(.+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        match = listing or file
        repo = self.repos.get(match[1]) if match else None
        if match is None or repo is None:
            self._error(handler, 404, "RepoNotFound", "Repository Not Found", body)
            return
        commit = repo.branches.get(match[2] or "main", match[2] or "")
        if commit not in repo.commits:
            self._error(handler, 404, "RevisionNotFound", f"Invalid rev id: {match[2]}", body)
        elif listing:
            answer = json.dumps(self._listing(match[1], repo, commit)).encode()
            self._answer(handler, 200, {"Content-Type": "application/json"}, answer, body)
        elif repo.token and handler.headers.get("Authorization") != f"Bearer {repo.token}":
            self._error(handler, 403, "GatedRepo", f"Access to model {match[1]} is restricted", body)
        elif match[3] not in repo.commits[commit]:
            self._error(handler, 404, "EntryNotFound", "Entry not found", body)
        else:
            self._file(handler, commit, match[3], repo.commits[commit][match[3]], body)

    def _listing(self, name: str, repo: Repo, commit: str) -> dict[str, Any]:
        files = [self._sibling(path, content) for path, content in repo.commits[commit].items()]
        gated = "manual" if repo.token else False
        return {"id": name, "modelId": name, "sha": commit, "private": False, "gated": gated, "siblings": files}

    def _sibling(self, path: str, content: bytes) -> dict[str, Any]:
        told: dict[str, Any] = {"rfilename": path, "size": len(content), "blobId": _git(content)}
        if not path.endswith((".json", ".txt")):
            digest = hashlib.sha256(content).hexdigest()
            told["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
        return told

    def _file(self, handler: BaseHTTPRequestHandler, commit: str, path: str, content: bytes, body: bool) -> None:
        span = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        start = int(span[1]) if span else 0
        sent = bytes(len(content)) if self.lie else content
        told = self._sibling(path, content)
        etag = told["lfs"]["sha256"] if "lfs" in told else told["blobId"]
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": commit}
        headers |= {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        if span:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._answer(handler, 206 if span else 200, headers, sent[start:], body, file=True)

    def _error(self, handler: BaseHTTPRequestHandler, status: int, code: str, message: str, body: bool) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self._answer(handler, status, headers, message.encode(), body)

    def _answer(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        headers: dict[str, str],
        content: bytes,
        body: bool,
        *,
        file: bool = False,
    ) -> None:
        handler.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            handler.send_header(name, value)
        handler.end_headers()
        if not body:
            return
        try:
            self._send(handler, content, file)
        except OSError:
            handler.close_connection = True

    def _send(self, handler: BaseHTTPRequestHandler, content: bytes, file: bool) -> None:
        for at in range(0, len(content), PIECE):
            if file and self.cut_after is not None and at >= self.cut_after:
                handler.close_connection = True
                handler.connection.close()
                return
            if file and self.hold_after is not None and at >= self.hold_after:
                handler.wfile.flush()
                self.go_on.wait()
            handler.wfile.write(content[at : at + PIECE])


def _git(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

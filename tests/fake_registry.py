"""A registry that has one image, or answers everything with one error; counts what it is asked."""

import base64
import contextlib
import gzip
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.engines import rootfs

PIECES = 20
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class Registry:
    def __init__(self) -> None:
        self.status = 200
        """answer to everything below /v2/NAME; 200: the image"""
        self.login: tuple[str, str] | None = None
        """what a login must be, sent as basic authorization"""
        self.asked: list[str] = []
        self.stall = threading.Event()
        self.stall.set()
        """cleared: layers stop half way"""
        self.over = threading.Event()
        self.drip_s = 0.0
        """between the pieces of a layer: engines tell of progress only where it takes a while"""
        layer_tar = rootfs(unique=secrets.token_bytes(1 << 20))  # an engine fetches what it has seen no second time
        self.layer = gzip.compress(layer_tar, mtime=0)
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": ["/bin/sh", "-c", "echo the image itself; exit 44"], "Env": ["OF_THE_IMAGE=yes"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer_tar)]},
        }
        self.config = json.dumps(config).encode()
        self.manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {
                    "mediaType": "application/vnd.docker.container.image.v1+json",
                    "size": len(self.config),
                    "digest": digest(self.config),
                },
                "layers": [
                    {
                        "mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip",
                        "size": len(self.layer),
                        "digest": digest(self.layer),
                    }
                ],
            }
        ).encode()
        self.address = ""

    @property
    def image(self) -> str:
        return f"{self.address}/team/model:1"

    @property
    def manifests_asked(self) -> int:
        return sum("/manifests/" in path for path in self.asked)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def serving() -> Iterator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            registry.asked.append(self.path)
            if registry.login is not None and not self._logged_in():
                self._refuse(401, "UNAUTHORIZED", ("WWW-Authenticate", 'Basic realm="here"'))
            elif self.path == "/v2/":
                self._send(b"{}", "application/json")
            elif registry.status != 200:
                codes = {401: "UNAUTHORIZED", 403: "DENIED", 404: "MANIFEST_UNKNOWN", 429: "TOOMANYREQUESTS"}
                self._refuse(registry.status, codes.get(registry.status, "UNKNOWN"))
            elif self.path.startswith("/v2/team/model/manifests/"):
                self._send(registry.manifest, MANIFEST)
            elif self.path.endswith(digest(registry.config)):
                self._send(registry.config, "application/octet-stream")
            elif self.path.endswith(digest(registry.layer)):
                self._send(registry.layer, "application/octet-stream", slow=True)
            else:
                self._refuse(404, "NAME_UNKNOWN")

        def _logged_in(self) -> bool:
            given = self.headers.get("Authorization", "")
            return given == "Basic " + base64.b64encode(":".join(registry.login or ()).encode()).decode()

        def _refuse(self, status: int, code: str, *headers: tuple[str, str]) -> None:
            text = {404: "manifest unknown", 401: "authentication required", 403: "access denied"}.get(
                status, "trouble"
            )
            body = json.dumps({"errors": [{"code": code, "message": text}]}).encode()
            self.send_response(status)
            if status == 429:  # else podman waits for minutes before it tells
                self.send_header("Retry-After", "1")
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _send(self, body: bytes, kind: str, *, slow: bool = False) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Docker-Content-Digest", digest(body))
            self.end_headers()
            if self.command == "HEAD":
                return
            step = len(body) // PIECES + 1 if slow else len(body)
            for piece, start in enumerate(range(0, len(body), step)):
                if piece == PIECES // 2:
                    registry.stall.wait()
                with contextlib.suppress(ConnectionError):  # who asked has gone
                    self.wfile.write(body[start : start + step])
                    self.wfile.flush()
                if slow and registry.drip_s:
                    registry.over.wait(registry.drip_s)  # the speed of a line

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.address = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.stall.set()
        registry.over.set()
        server.shutdown()
        server.server_close()

"""A control API of canned answers: what a test puts in is what a command gets, and every request is kept."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OBJECT = {"created_at": "2026-01-01T00:00:00Z", "namespace": "default", "labels": {}, "version": 3}


class StubApi:
    """Answers `METHOD PATH` below /api/v1 with (status, body), a list line by line; anything else is 404."""

    def __init__(self, port: int = 0) -> None:
        self.answers: dict[str, tuple[int, Any]] = {
            f"GET /namespaces/{ns}/runs": (200, {"items": [], "next": None}) for ns in ("default", "research")
        }
        self.requests: list[dict[str, Any]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.split("?")[0].removeprefix("/api/v1")
                headers = {k.lower(): v for k, v in self.headers.items()}
                stub.requests.append(
                    {"method": self.command, "path": path, "body": json.loads(body or b"null"), "headers": headers}
                )
                missing = {"code": "not_found", "message": f"there is nothing at {path}", "remedy": "see `moor ls`"}
                status, answer = stub.answers.get(f"{self.command} {path}", (404, missing))
                lines = isinstance(answer, list)
                data = (
                    b"".join(json.dumps(a).encode() + b"\n" for a in answer) if lines else json.dumps(answer).encode()
                )
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = handle_any

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def env(self) -> dict[str, str]:
        """An environment that means this API."""
        return {"MOORAGE_URL": self.url, "MOORAGE_TOKEN": "t", "MOORAGE_HOME": "/nonexistent"}

    def deployment(self, name: str, **fields: Any) -> dict[str, Any]:
        """Put a deployment in, and return it."""
        found = {
            "kind": "Deployment",
            "id": f"dep-{name}",
            "name": name,
            "phase": "ACTIVE",
            "status": "created",
            "ready_replicas": 1,
            "desired_replicas": 1,
            "serving": True,
            "initial_scale_reached": True,
            "active_revision": "rev-1",
            "spec": {"replicas": {"min": 1, "max": 1}},
            "reason": {"code": "deploy.ready", "class": "progress", "message": "1 of 1 replicas ready", "params": {}},
            **OBJECT,
            **fields,
        }
        self.answers[f"GET /namespaces/default/deployments/{name}"] = (200, found)
        self.answers[f"GET /namespaces/default/deployments/{name}/replicas"] = (200, {"items": [], "next": None})
        revisions = [{"kind": "Revision", "id": "rev-1", "number": 1, "state": "active"}]
        self.answers[f"GET /namespaces/default/deployments/{name}/revisions"] = (
            200,
            {"items": revisions, "next": None},
        )
        return found

    def sent(self, method: str) -> list[dict[str, Any]]:
        """Requests of a method."""
        return [request for request in self.requests if request["method"] == method]

    def close(self) -> None:
        """End it."""
        self.server.shutdown()
        self.server.server_close()

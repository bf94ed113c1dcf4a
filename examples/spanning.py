"""A server that needs several workers: rank 0 answers HTTP once every other rank has met it.

Standard library only, in place of an engine that splits a model over machines. They meet at MASTER_ADDR and
MASTER_PORT, as such engines do, and a rank whose leader is gone ends with an error.

    python3 spanning.py --port 8000 --model big
"""

import argparse
import json
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MEETING = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
LIMIT_S = 60.0
MET: list[str] = []


class Handler(BaseHTTPRequestHandler):
    """Health, models, and who is here."""

    model = ""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""

    def do_GET(self) -> None:
        """Loading until all are here."""
        together = len(MET) == WORLD - 1
        status = 200 if together or self.path != "/health" else 503
        said = {"/v1/models": {"data": [{"id": self.model}]}, "/members": {"met": sorted(MET)}}.get(
            self.path, {"ok": together}
        )
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def meet() -> None:
    """Take every follower in; their connections stay open."""
    with socket.create_server(MEETING) as listener:
        kept = []
        while len(kept) < WORLD - 1:
            connection, _ = listener.accept()
            kept.append(connection)
            MET.append(connection.recv(100).decode())
        threading.Event().wait()


def follow() -> None:
    """Find the leader, and stay as long as it does."""
    until = time.monotonic() + LIMIT_S
    while True:
        try:
            connection = socket.create_connection(MEETING, timeout=5.0)
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    connection.settimeout(None)
    connection.sendall(f"rank {RANK} of {WORLD}".encode())
    connection.recv(1)
    sys.exit("the leader is gone")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--model", default="big")
    options = parser.parse_args()
    if RANK:
        follow()
    Handler.model = options.model
    threading.Thread(target=meet, daemon=True).start()
    ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()

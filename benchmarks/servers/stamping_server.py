"""The model server of the restart benchmark: its first act is to write down when it began to run."""

import os
import sys
import time

with open(sys.argv[3], "a") as stamps:  # noqa: PTH123 - pathlib would cost the time that is measured
    stamps.write(f"{time.time()} {os.getpid()}\n")

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = {"status": "ok"} if self.path == "/health" else {"object": "list", "data": [{"id": sys.argv[2]}]}
        raw = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *args):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

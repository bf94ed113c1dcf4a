"""A model server of forty lines for the examples: it answers as OpenAI's do, with words of its own instead of a model.

Standard library only: python3 server.py --port 8000 --model echo. PACE=0.5 in its environment: seconds for an answer.
"""

import argparse
import json
import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/health":
            self.answer({"status": "ok"})
        elif self.path == "/v1/models":
            self.answer({"object": "list", "data": [{"id": self.server.model, "object": "model"}]})
        else:
            self.answer({"error": {"message": f"nothing at {self.path}"}}, 404)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        said = (asked.get("messages") or [{}])[-1].get("content", asked.get("prompt", ""))
        time.sleep(float(os.environ.get("PACE", "0")))
        message = {"role": "assistant", "content": f"you said: {said}"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.answer({"object": "chat.completion", "model": self.server.model, "choices": [choice]})

    def answer(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="echo")
    options = parser.parse_args()
    server = ThreadingHTTPServer((options.host, options.port), Handler)
    server.model = options.model
    print(f"serving {options.model} on {options.host}:{options.port}", flush=True)
    server.serve_forever()

"""llama.cpp's own HTTP server as a foreground program: `python -m moorage.demo.server --model FILE --port 18000`.

What answers is the server inside the wheel `xllamacpp` (`/health`, `/v1/models`, `/v1/chat/completions` with
streaming, …); here live only its start, its modest settings and its end. It is what a person would put in a spec's
`runtime.command`; it knows nothing of Moorage.

The weights are loaded off the main thread: native code holds its thread until they are in memory, and SIGTERM must
end the program at any moment of its life. The end is `os._exit`, because the native server's destructor waits for
open streams, and a server that was told to stop must not wait for its slowest reader.
"""

import argparse
import importlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CONTEXT_TOKENS = 2048
"""Enough for a short chat; the key-value cache of the demonstration then takes about 45 MB."""

THREADS = 1
"""llama.cpp's threads wait for each other by spinning: on two busy cores two of them made 2.3 tokens a second where one
made 27, and on idle cores a model of 135M gains little from the second."""


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; the exit code is 0 then, 1 when the server cannot start."""
    options = _parser().parse_args(argv)
    if not options.model.is_file():
        print(f"error: no model file at {options.model}", file=sys.stderr)
        return 1
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # inherited by every thread, so that only `sigwait` takes them
    threading.Thread(target=_serve, args=(options,), name="llama-server", daemon=True).start()
    signal.sigwait(ends)
    _leave(0)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m moorage.demo.server", description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--alias", default=None, help="the name in /v1/models (default: the file's name)")
    parser.add_argument("--context", type=int, default=CONTEXT_TOKENS, help="tokens of context")
    parser.add_argument("--threads", type=int, default=THREADS)
    return parser


def _serve(options: argparse.Namespace) -> None:
    """Start the native server, and keep it: its own threads answer from then on."""
    try:
        llama = importlib.import_module("xllamacpp")
        server = llama.Server(_params(llama, options))
        print(f"serving {options.alias or options.model.stem} on {server.listening_address}", flush=True)
        threading.Event().wait()
    except BaseException as problem:
        print(f"error: the server did not start: {problem}", file=sys.stderr)
        _leave(1)


def _leave(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _params(llama: Any, options: argparse.Namespace) -> Any:
    params = llama.CommonParams()
    params.model.path = str(options.model)
    params.model_alias = {options.alias or options.model.stem}
    params.hostname, params.port = options.host, options.port
    params.n_ctx, params.n_parallel = options.context, 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.n_threads_http = 4
    params.n_gpu_layers = 0
    params.webui = False
    return params


if __name__ == "__main__":
    sys.exit(main())

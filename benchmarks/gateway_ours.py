"""Moorage's gateway as a peer in its benchmark: plain, with accelerators, and with everything on.

Each runs one worker process, as nginx does, from a routing table on its disk; the control plane (`gateway_peers`) has
nothing newer. Rows:

    moorage       pure Python; one deployment for each upstream; no keys, no limits, no access log.
    keyed         what most people have on: a key is required and shown, and has limits of requests, tokens and requests
                  in flight; two replicas, of which the less busy one is taken; usage is read from answers.
    everything    the same with everything on: a key is required and shown, and has limits of requests and in flight;
                  the endpoint that is named has a limit of tokens, the namespace one of requests; it is bound to two
                  deployments 80 : 20, of two replicas each; `model` is written anew in each body; session affinity;
                  usage is read from answers; an access log. None of the limits is ever reached.
    accelerated, accelerated-keyed, accelerated-everything
                  the same with accelerators (`accelerators: require`).

Routing by `model`, ids of requests, histograms by endpoint and replica, and the record of each request are in all rows.

The settings are taken from the sources that are measured: a checkout that knows no accelerators has only the first two.
"""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from gateway_peers import LIMIT, Peer, Stand

SOURCE = Path(__file__).resolve().parent.parent / "src"
_KEY = "moor-key.4f1c0d7e9ab3526881726354afbecd0912837465"
_SESSION = "X-Moorage-Session"
_MODEL = "bench-7b-instruct"


@dataclass(frozen=True)
class Variant:
    """One way to run it."""

    name: str
    keyed: bool = False
    everything: bool = False
    accelerators: str = "off"
    source: Path = SOURCE
    python: Path = Path(sys.executable)


def named(python: Path) -> str:
    """Its version and where it is: how an interpreter was built decides what pure Python costs."""
    code = "import os, sys; print('Python', sys.version.split()[0], 'at', os.path.realpath(sys.executable))"
    try:
        told = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as cause:
        raise SystemExit(
            f"--python {python}: no Python runs there ({cause}); name one of an environment with Moorage's needs"
        ) from None
    return told.stdout.strip()


def variants(chosen: list[str], against: Path | None, python: Path) -> list[Variant]:
    """Those that this checkout can run, of `pure` and `accelerated`, each plain and with everything on.

    Args:
        chosen: names of `NAMES`.
        against: another checkout's `src`, measured as row `against` with accelerators where it has some built.
        python: that runs them.
    """
    found = [replace(_VARIANTS[name], python=python) for name in NAMES if name in chosen]
    for variant in [each for each in found if each.accelerators != "off"]:
        why = _without_accelerators(variant.source)
        if why is not None:
            found.remove(variant)
            print(f"{variant.name} is left out: {why}", flush=True)
    if against is not None:
        source = against.resolve()
        found.append(Variant("against", accelerators="auto", source=source, python=python))
    return found


_VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("moorage"),
        Variant("accelerated", accelerators="require"),
        Variant("keyed", keyed=True),
        Variant("accelerated-keyed", keyed=True, accelerators="require"),
        Variant("everything", everything=True),
        Variant("accelerated-everything", everything=True, accelerators="require"),
    )
}
NAMES = tuple(_VARIANTS)


def start(variant: Variant, directory: Path, port: int, stand: Stand) -> Peer:
    """Start it in a directory of its own."""
    directory.mkdir()
    table = (
        everything_table(stand) if variant.everything else keyed_table(stand) if variant.keyed else plain_table(stand)
    )
    (directory / "routing-table.json").write_text(json.dumps(table))
    config: dict[str, object] = {
        "port": port,
        "server_url": f"http://127.0.0.1:{stand.paced}",
        "token": "bench",
        "state_dir": str(directory),
        "gateway_id": "bench",
        "processes": 1,
        "keepalive_s": 600.0,
    }
    if _knows_accelerators(variant.source):
        config["accelerators"] = variant.accelerators
    if variant.everything:
        config["access_log"] = str(directory / "access.log")
    path = directory / "gateway.json"
    path.write_text(json.dumps(config))
    command = [str(variant.python), "-m", "moorage.gateway.main", "--config", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(variant.source)}
    with (directory / "gateway.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log, env=environment)
    fields = {}
    if variant.keyed or variant.everything:
        fields["Authorization"] = f"Bearer {_KEY}"
    if variant.everything:
        fields[_SESSION] = "s-0"
    return Peer(variant.name, port, process, stream_path="/endpoints/stream/v1/chat/completions", fields=fields)


# --- routing tables --------------------------------------------------------------------------------------------------


def plain_table(stand: Stand) -> dict[str, object]:
    """A deployment for each upstream."""
    endpoints = [_deployment("bench", stand.fast, 1), _deployment("stream", stand.paced, 1)]
    return {"incarnation": "bench", "number": 1, "endpoints": endpoints}


def keyed_table(stand: Stand) -> dict[str, object]:
    """The same with a key that has limits, and two replicas each."""
    limits = {"requests_per_minute": LIMIT, "tokens_per_minute": LIMIT, "in_flight": LIMIT}
    return {
        "incarnation": "bench",
        "number": 1,
        "endpoints": [_deployment("bench", stand.fast, 2), _deployment("stream", stand.paced, 2)],
        "access": {
            "number": 1,
            "keys": [_key(limits)],
            "namespaces": [{"namespace": "default", "keys": "required"}],
        },
    }


def everything_table(stand: Stand) -> dict[str, object]:
    """The same upstreams behind endpoints that people made, with keys and limits."""
    more = {"affinity": "session"}
    endpoints = [
        _deployment(f"{name}-{each}", port, 2, model=_MODEL, **more)
        for name, port in (("bench", stand.fast), ("stream", stand.paced))
        for each in ("old", "new")
    ]
    key = _key({"requests_per_minute": LIMIT, "in_flight": LIMIT})
    rule = {"namespace": "default", "keys": "required", "limits": {"requests_per_minute": LIMIT}}
    return {
        "incarnation": "bench",
        "number": 1,
        "endpoints": endpoints,
        "bindings": [_binding("bench"), _binding("stream")],
        "access": {"number": 1, "keys": [key], "namespaces": [rule]},
    }


def _key(limits: dict[str, int]) -> dict[str, object]:
    digest = hashlib.sha256(_KEY.encode()).hexdigest()
    opens = ["bench", "stream"]
    return {
        "uid": "key-1",
        "name": "bench",
        "namespace": "default",
        "digest": digest,
        "endpoints": opens,
        "limits": limits,
    }


def _deployment(name: str, port: int, replicas: int, model: str | None = None, **more: object) -> dict[str, object]:
    targets = [
        {"replica": f"{name}-{number}", "revision": f"{name}-r1", "host": "127.0.0.1", "port": port}
        for number in range(replicas)
    ]
    limits = {"max_in_flight": 8192, "max_queue": 1024, **more}
    return {"name": name, "deployment": name, "mode": "serve", "model": model, "targets": targets, "limits": limits}


def _binding(name: str) -> dict[str, object]:
    routes = [{"deployment": f"{name}-old", "weight": 80}, {"deployment": f"{name}-new", "weight": 20}]
    return {"uid": f"endpoint-{name}", "name": name, "routes": routes, "limits": {"tokens_per_minute": LIMIT}}


# --- accelerators ----------------------------------------------------------------------------------------------------


def _knows_accelerators(source: Path) -> bool:
    return "    accelerators:" in (source / "moorage" / "gateway" / "config.py").read_text()


def _without_accelerators(source: Path) -> str | None:
    """Why they cannot be measured; None: they can."""
    if not _knows_accelerators(source):
        return "these sources know no accelerators"
    if not (source / "moorage" / "accelerated" / "manifest.json").exists():
        return "accelerators are not built (make accelerators)"
    return None

"""From kill -9 of a model server to the first instruction of its replacement, through the whole control plane.

Twenty fresh deployments, each killed once (a first crash is replaced at once). Beside it, in the same run: how long
bare `posix_spawn` of the same program takes to reach its first instruction, and one full fsync of this disk, since
every step of the control plane is durable before it acts. Withdrawal is seen as a gateway sees it: on the long-poll of
the routing table.

    make bench-restart
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

SERVER = Path(__file__).parent / "servers" / "stamping_server.py"
MOOR = str(Path(sys.executable).parent / "moor")
START_TARGET_MS = 150.0
WITHDRAW_TARGET_MS = 20.0


def free_ports(count: int) -> list[int]:
    import socket

    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def until(condition, what: str, limit_s: float = 60.0):
    """Wait for a condition, bounded."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        threading.Event().wait(0.01)
    raise SystemExit(f"gave up waiting for {what}")


class Plane:
    """One `moor up` in a temporary home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.api, self.gateway = free_ports(2)
        self.env = {**os.environ, "MOORAGE_HOME": str(home), "MOORAGE_AGENT_PORTS": "21000-21100"}
        self.moor("up", "--port", str(self.api), "--gateway-port", str(self.gateway))
        config = json.loads((home / "run" / "server.json").read_text())
        self.admin, self.gateway_token = config["tokens"]["admin"], config["tokens"]["gateway"]
        self.url = f"http://127.0.0.1:{self.api}/api/v1"
        self.http = httpx.Client(headers={"Authorization": f"Bearer {self.admin}"}, timeout=30)

    def moor(self, *args: str) -> None:
        subprocess.run([MOOR, *args], env=self.env, check=True, stdout=subprocess.DEVNULL)

    def apply(self, name: str, stamps: Path) -> None:
        spec = {
            "kind": "Deployment",
            "name": name,
            "model": {"id": name},
            "runtime": {"command": [sys.executable, "-S", str(SERVER), "{port}", name, str(stamps)]},
            "resources": {"cpu": "10m"},
        }
        self.http.put(f"{self.url}/namespaces/default/deployments/{name}", json=spec).raise_for_status()

    def phase(self, name: str) -> str:
        return str(self.http.get(f"{self.url}/namespaces/default/deployments/{name}").json()["phase"])


class TableWatch(threading.Thread):
    """Follows the routing table as a gateway does, noting when a deployment's targets were withdrawn."""

    def __init__(self, plane: Plane) -> None:
        super().__init__(daemon=True)
        self.plane = plane
        self.withdrawn: dict[str, float] = {}
        self.routed: dict[str, bool] = {}
        self.over = False

    def run(self) -> None:
        headers = {"Authorization": f"Bearer {self.plane.gateway_token}"}
        at: dict[str, str | int] = {"after": 0, "wait_s": 20}
        with httpx.Client(headers=headers, timeout=60) as http:
            while True:
                try:
                    answer = http.get(f"{self.plane.url}/routing/table", params=at)
                except httpx.TransportError:
                    if self.over:
                        return
                    raise
                seen = time.time()
                if answer.status_code != 200:
                    continue
                table = answer.json()
                at = {"after": table["number"], "incarnation": table["incarnation"], "wait_s": 20}
                for endpoint in table["endpoints"]:
                    has = bool(endpoint["targets"])
                    if self.routed.get(endpoint["name"]) and not has:
                        self.withdrawn.setdefault(endpoint["name"], seen)
                    self.routed[endpoint["name"]] = has


def bare_spawn_ms(folder: Path) -> float:
    """posix_spawn of the same program to its first instruction."""
    stamps = folder / "bare"
    begun = time.time()
    pid = os.posix_spawn(sys.executable, [sys.executable, "-S", str(SERVER), "0", "bare", str(stamps)], os.environ)
    until(stamps.exists, "the bare program")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    first = float(stamps.read_text().split()[0])
    stamps.unlink()
    return (first - begun) * 1000


def fsync_ms(folder: Path) -> float:
    with (folder / "fsync").open("wb") as file:
        file.write(b"x" * 4096)
        file.flush()
        begun = time.perf_counter()
        os.fsync(file.fileno())
        return (time.perf_counter() - begun) * 1000


def crash(plane: Plane, watch: TableWatch, name: str, folder: Path) -> tuple[float, float]:
    """(ms to the replacement's first instruction, ms to the withdrawal)."""
    stamps = folder / name
    plane.apply(name, stamps)
    until(lambda: plane.phase(name) == "ACTIVE", f"{name} to be ACTIVE")
    until(lambda: watch.routed.get(name), f"the route of {name}")
    pid = int(stamps.read_text().split()[1])
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    until(lambda: len(stamps.read_text().splitlines()) >= 2, f"the replacement of {name}")
    started = float(stamps.read_text().splitlines()[1].split()[0])
    withdrawn = until(lambda: watch.withdrawn.get(name), f"the withdrawal of {name}")
    until(lambda: plane.phase(name) == "ACTIVE", f"{name} to be ACTIVE again")
    plane.moor("stop", name)
    return (started - killed) * 1000, (withdrawn - killed) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crashes", type=int, default=20)
    rounds = parser.parse_args().crashes
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        root = Path(folder)
        plane = Plane(root / "home")
        try:
            watch = TableWatch(plane)
            watch.start()
            starts, withdrawals, bare, syncs = [], [], [], []
            for n in range(rounds):
                bare.append(bare_spawn_ms(root))
                syncs.append(fsync_ms(root))
                start, withdrawn = crash(plane, watch, f"crash-{n}", root)
                starts.append(start)
                withdrawals.append(withdrawn)
                print(f"  {n + 1:2}/{rounds}  replacement {start:6.1f} ms   withdrawn {withdrawn:5.1f} ms", flush=True)
            watch.over = True
        finally:
            plane.moor("down")
    rows = (
        ("kill -9 → first instruction of the replacement", starts),
        ("kill -9 → route withdrawn, seen by a gateway", withdrawals),
        ("bare posix_spawn of the same program", bare),
        ("one fsync of this disk", syncs),
    )
    print(f"\n{'':50} {'median':>9} {'p90':>9} {'max':>9}   (ms)")
    for label, values in rows:
        ordered = sorted(values)
        p90 = ordered[max(0, int(len(ordered) * 0.9) - 1)]
        print(f"{label:50} {statistics.median(values):9.1f} {p90:9.1f} {ordered[-1]:9.1f}")
    print(f"RATIO restart_first_instruction_ms {statistics.median(starts):.1f} <={START_TARGET_MS:.0f}")
    print(f"RATIO restart_route_withdrawn_ms {statistics.median(withdrawals):.1f} <={WITHDRAW_TARGET_MS:.0f}")
    ratio = statistics.median(starts) / statistics.median(bare)
    print(f"RATIO restart_vs_bare_spawn {ratio:.1f} report")


if __name__ == "__main__":
    main()

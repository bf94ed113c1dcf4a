"""Ending the parts of a home, by proven identity, in the right order and within limits.

Model servers are ended by the agent alone, since only it can prove which are its own: where it is gone and they live,
it is started once more to stop them. Called by `supervisor` and by `up`.
"""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

from moorage.app import processes
from moorage.app.home import Home
from moorage.app.processes import Identity
from moorage.gateway import handover

STOP_LIMIT_S = {"agent": 90.0, "gateway": 65.0, "server": 20.0}
"""How long each part may take to stop: the agent waits for model servers (20 s of grace each, all at once), the gateway
for streams that are still being read (`drain_s`, 60 s unless it is set)."""
_GATEWAY_ENDS_S = 5.0
"""How much longer than `drain_s` it may take."""
STOP_ORDER = ("agent", "gateway", "server")

HANDLER_LIMIT_S = 20.0
"""How long an agent may take from its start until it answers SIGTERM in its own way."""


def stop_limit_s(home: Home, name: str) -> float:
    """How long a part of this home may take to stop."""
    if name == "gateway":
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return float(json.loads(home.config(name).read_text())["drain_s"]) + _GATEWAY_ENDS_S
    return STOP_LIMIT_S[name]


def stop_all_limit_s(home: Home) -> float:
    """How long all of them may take, one after the other."""
    return sum(stop_limit_s(home, name) for name in STOP_LIMIT_S) + 15.0


def left_over(home: Home, name: str) -> Iterator[tuple[Identity, str | None]]:
    """Processes of a part that outlived their supervisor, with the digest they were started from where it is known.

    The recorded one by its identity; besides it any of ours with exactly this part's command line, which covers a
    supervisor killed between starting a part and writing that down.
    """
    recorded = home.read_record().get("parts", {}).get(name, {})
    identity = Identity.from_wire(recorded.get("identity"))
    if identity is not None and processes.alive(identity):
        yield identity, recorded.get("digest")
    for other in processes.find_by_command(home.command(name)):
        if other != identity:
            yield other, None


def end(identity: Identity, name: str, *, keep: bool, limit_s: float) -> None:
    """Stop one part and wait for its end; after `limit_s` seconds it is killed."""
    if name == "agent" and keep:
        processes.send(identity, signal.SIGKILL)  # an agent that is killed leaves its model servers to be adopted
    else:
        if name == "agent":
            _await_handler(identity)  # one that was just started again would die of it without stopping anything
        processes.send(identity, signal.SIGTERM)
    if not processes.wait_gone(identity, limit_s):
        say(f"{name}: pid {identity.pid} did not stop within {limit_s:g} s; killing it")
        processes.send(identity, signal.SIGKILL)
        processes.wait_gone(identity, 5.0)


def end_masterless(home: Home, limit_s: float) -> bool:
    """End the gateway's processes whose master was killed, which serve until another one comes.

    Returns:
        Whether there were any.
    """
    found = handover.take(home.gateway_state)
    for each in found:
        each.end()
    until = time.monotonic() + limit_s
    for each in found:
        if not each.gone(max(0.0, until - time.monotonic())):
            say(f"gateway: pid {each.pid} did not stop within {limit_s:g} s; killing it")
            each.kill()
            each.gone(5.0)
        each.close()
    return bool(found)


def model_servers_live(home: Home) -> bool:
    """Whether a model server that an agent of this home started still runs."""
    try:
        folder = json.loads(home.config("agent").read_text())["home"]
    except (FileNotFoundError, ValueError, KeyError):
        return False  # there never was an agent here
    return processes.any_with_variable("MOORAGE_HEARTBEAT_FILE", f"{folder}/")


def revive_agent(home: Home, tell: Callable[[str], None]) -> Identity | None:
    """Start an agent that is gone while its model servers live, so that it can stop them; None where none live.

    `tell` is called with what is done. Returns once SIGTERM reaches the agent's own handler.
    """
    if not model_servers_live(home):
        return None
    tell("the agent is gone, but model servers of it run: starting it to stop them")
    _, identity = processes.start(home.command("agent"), home.log("agent"), home.root)
    if identity is not None:
        _await_handler(identity)
    return identity


def _await_handler(identity: Identity) -> None:
    """Wait until an agent answers SIGTERM in its own way, within `HANDLER_LIMIT_S`."""
    deadline = time.monotonic() + HANDLER_LIMIT_S
    while processes.alive(identity) and time.monotonic() < deadline:
        if processes.catches(identity, signal.SIGTERM):
            return
        time.sleep(0.05)  # the kernel tells of no such moment; the condition is the handler


def say(text: str) -> None:
    """A line of the supervisor's own log. Where the disk has no room for it, the work goes on without."""
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n"
    with contextlib.suppress(OSError):  # nowhere is left to say it; a buffered stream would fail again at the next line
        os.write(sys.stdout.fileno(), line.encode())

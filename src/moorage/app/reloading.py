"""Having the gateway that runs replace its processes, and waiting until it has.

Here: finding its master by what it tells of itself (pid with start time), the settings it is to take up, the wait. Not
here: the replacing (`moorage.gateway.master`). Called by `commands` and by `supervisor`.
"""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moorage.app import processes
from moorage.app.accelerated import Accelerated
from moorage.app.home import Home, part_configs, write_client, write_private
from moorage.app.processes import Identity
from moorage.app.settings import Settings
from moorage.cli.progress import Progress
from moorage.domain.errors import Unavailable, WaitFailed, WaitTimeout
from moorage.gateway import holding
from moorage.gateway.master import START_LIMIT_S

LOOK_S = 0.1
MARGIN_S = 15.0
_STAYS = ("host", "port", "server_url", "token", "gateway_id")
"""Of the running gateway's settings, what a reload keeps: to be reached elsewhere, or to belong to another control
plane, is to be another gateway."""
_DRAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What came of it.

    Args:
        accelerated: what the new processes use of the compiled parts.
    """

    url: str
    processes: int
    accelerated: Accelerated


def reload(home: Home, settings: Settings, progress: Progress) -> Reloaded:
    """Have the gateway of this home take up these settings, and wait until the processes before have ended.

    Raises:
        Unavailable: none runs here.
        WaitFailed: the new processes cannot start; the old ones and their settings stay.
        WaitTimeout: it did not come to an end.
    """
    master, told = _running(home)
    path = home.config("gateway")
    before = path.read_text() if path.exists() else None
    if before is not None and told.get("config") == str(path):
        write_private(path, json.dumps(taken_up(home, settings, json.loads(before)), indent=1) + "\n")
    try:
        after = _renew(home, master, told, progress.update)
    except WaitFailed:
        if before is not None:
            write_private(path, before)
        raise
    _await_ends(home, master, progress, _drain_s(before))
    url = f"{after['scheme']}://{after['address']}"
    if after["scheme"] != told["scheme"] and home.client.exists():
        write_client(home, settings)
    return Reloaded(url, len(after["workers"]), accelerated=Accelerated.of(after))


def renewed(home: Home, identity: Identity) -> bool:
    """Have a gateway of another version or configuration replace its processes; False where it cannot, and is to be
    ended and started anew."""
    try:
        master, told = _running(home)
        if master != identity:
            return False
        _renew(home, master, told, lambda _: None)
    except (Unavailable, WaitFailed, WaitTimeout):
        return False
    return True


def _running(home: Home) -> tuple[Identity, dict[str, Any]]:
    told = _told(home)
    master = Identity.from_wire(told.get("identity"))
    if master is None or not processes.alive(master):
        raise Unavailable(
            f"no gateway of {home.root} runs that could be reloaded", remedy="start it: `moor up` or `moor gateway`"
        )
    return master, told


def _told(home: Home) -> dict[str, Any]:
    """What the master tells, or nothing."""
    return holding.told(home.gateway_state)


def taken_up(home: Home, settings: Settings, running: dict[str, Any]) -> dict[str, Any]:
    """The settings with which a gateway goes on: these, but where it is and whose it is stays."""
    fresh = part_configs(home, settings, settings.api.url)["gateway"]
    stays = {key: running[key] for key in _STAYS if key in running}
    advertised = settings.gateway_own["gateway_advertise"] or running.get("advertise")
    if advertised == running.get("advertise") and advertised and _tls(fresh) != _tls(running):
        advertised = f"{'https' if _tls(fresh) else 'http'}://{advertised.partition('://')[2]}"
    return {**fresh, **stays, "advertise": advertised}


def _tls(config: dict[str, Any]) -> bool:
    return config.get("tls_certificate") is not None


def _renew(home: Home, master: Identity, before: dict[str, Any], update: Callable[[str], None]) -> dict[str, Any]:
    """Ask for it, and wait until new processes serve. What the master tells then."""
    processes.send(master, signal.SIGHUP)
    deadline = time.monotonic() + 2 * START_LIMIT_S
    while True:
        told = _told(home)
        if told.get("reloads", 0) > before.get("reloads", 0) and told.get("state") == "serving":
            if told.get("error"):
                raise WaitFailed(
                    f"the gateway goes on as it was, since new processes could not start: {told['error']}",
                    last={},
                    remedy=f"mend that, and reload again; {home.log('gateway')} has more",
                )
            return told
        _require_alive(home, master)
        if time.monotonic() > deadline:
            raise WaitTimeout("the gateway did not reload", last={}, remedy=f"see {home.log('gateway')}")
        update("waiting for new processes to serve")
        time.sleep(LOOK_S)


def _await_ends(home: Home, master: Identity, progress: Progress, drain_s: float) -> None:
    deadline = time.monotonic() + drain_s + MARGIN_S
    while retiring := _told(home).get("retiring"):
        _require_alive(home, master)
        progress.update(_waited_for(retiring, max(0.0, deadline - time.monotonic())))
        if time.monotonic() > deadline:
            raise WaitTimeout(
                "new processes serve, but former ones have not ended", last={}, remedy=f"see {home.log('gateway')}"
            )
        time.sleep(LOOK_S)


def _waited_for(retiring: list[dict[str, int]], left_s: float) -> str:
    left, many = sum(each["left"] for each in retiring), len(retiring)
    connections = f"{left} connection{'s' if left != 1 else ''} of " if left else ""
    former = f"{many} former process{'es' if many != 1 else ''}"
    return f"new processes serve; waiting for {connections}{former} to end, for at most {left_s:.0f} s"


def _require_alive(home: Home, master: Identity) -> None:
    if not processes.alive(master):
        raise Unavailable("the gateway ended meanwhile", remedy=f"see {home.log('gateway')}")


def _drain_s(config: str | None) -> float:
    return float(json.loads(config).get("drain_s", _DRAIN_S)) if config is not None else _DRAIN_S

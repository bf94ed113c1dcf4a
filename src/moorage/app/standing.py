"""How the parts of this machine stand, and why one was started again: `moor status` and `moor why` without a name.

Read from what supervisor and gateway write down, so that it is told while the control plane does not answer. Nothing
is decided or asked of anybody here. Called by `commands`.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from moorage.app import processes
from moorage.app.home import PARTS, Home
from moorage.app.processes import Identity
from moorage.cli.times import span
from moorage.domain.errors import NotFound
from moorage.gateway import holding


def standing(home: Home) -> dict[str, Any]:
    """For programs: the supervisor, and each part with its state, process, starts, and the reason of its last end.

    Raises:
        NotFound: nothing of this home runs under a supervisor.
    """
    record = home.read_record()
    recorded: Mapping[str, Any] = record.get("parts") or {}
    supervisor = _alive(record.get("supervisor"))
    parts = [_part(name, recorded.get(name) or {}, supervised=supervisor is not None) for name in PARTS]
    if supervisor is None and not any(part["pid"] for part in parts):
        raise NotFound(
            f"no `moor up` runs from {home.root}, so there are no parts to tell of",
            remedy="`moor up` starts them; with a name this command tells of a deployment or run",
        )
    for part in parts:
        if part["name"] == "gateway" and part["pid"]:
            part["last_process_death"] = _stamped(holding.told(home.gateway_state).get("last_death"))
    return {"home": str(home.root), "supervisor": {"pid": supervisor}, "parts": parts}


def words(told: Mapping[str, Any], now: float) -> str:
    """The same for people.

    Args:
        told: of `standing`.
        now: seconds since the epoch.
    """
    pid = told["supervisor"]["pid"]
    lines = [f"supervisor  running  pid {pid}" if pid else "supervisor  gone: parts that end stay ended; `moor up`"]
    for part in told["parts"]:
        running = f"  pid {part['pid']}" if part["pid"] else ""
        lines.append(f"{part['name'].ljust(12)}{part['state']}{running}")
        if part["reason"] is not None:
            times = f", started {part['starts']} times" if part["starts"] > 1 else ""
            lines.append(f"  {_ago(part['ended_at'], now)}: {part['reason']['message']}{times}")
            lines.append(f"  advice: {part['reason']['advice']}")
            lines.append(f"  log: {part['reason']['params']['log']}")
        death = part.get("last_process_death")
        if death is not None:
            lines.append(f"  {_ago(death['at'], now)}: its process {death['process']}: {death['how']}")
    return "\n".join(lines)


def _part(name: str, recorded: Mapping[str, Any], *, supervised: bool) -> dict[str, Any]:
    pid = _alive(recorded.get("identity"))
    state = str(recorded.get("state", "unknown"))
    if pid is None and state == "running":
        state = "ended"
    return {
        "name": name,
        "state": state if supervised else f"{state}, without a supervisor" if pid else "ended",
        "pid": pid,
        "starts": int(recorded.get("starts", 0)),
        "deaths": int(recorded.get("deaths", 0)),
        "hangs": int(recorded.get("hangs", 0)),
        "ended_at": _iso(recorded.get("last_exit_at")),
        "reason": recorded.get("last_reason"),
    }


def _alive(identity: Mapping[str, Any] | None) -> int | None:
    found = Identity.from_wire(identity)
    return found.pid if found is not None and processes.alive(found) else None


def _stamped(death: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if not death else {**death, "at": _iso(death.get("at"))}


def _iso(moment: float | None) -> str | None:
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


def _ago(stamp: str | None, now: float) -> str:
    return "before" if stamp is None else f"{span(max(0.0, now - datetime.fromisoformat(stamp).timestamp()))} ago"

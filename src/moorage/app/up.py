"""`moor up` and `moor down`: start the supervisor once and wait until its parts answer; stop it and wait for the end.

Whatever is half started when something fails is stopped again. Called by `app.commands`; the restarting itself is the
supervisor's.
"""

import json
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from moorage.app import disk, ports, processes, readiness
from moorage.app.differing import Difference, differing
from moorage.app.home import PARTS, Home, write_configs, write_private
from moorage.app.parsing import Address
from moorage.app.processes import Identity
from moorage.app.settings import Settings, address_of
from moorage.app.stopping import (
    STOP_ORDER,
    end,
    end_masterless,
    left_over,
    model_servers_live,
    revive_agent,
    stop_all_limit_s,
    stop_limit_s,
)
from moorage.app.supervisor import REMOVED, Part, Supervisor
from moorage.cli.progress import Progress
from moorage.domain.errors import Conflict, MoorageError, Unavailable, WaitFailed, WaitTimeout
from moorage.gateway import handover

GIVE_UP_AFTER_DEATHS = 3
LOOK_EVERY_S = 0.1
GIVE_BACK_LIMIT_S = 20.0
"""How long an `up` that failed may take to stop what it started. Nothing was served yet, so nothing has to finish."""
MODEL_SERVERS_END_S = 10.0
"""How long after its agent the last trace of a model server may take to go."""


@dataclass(frozen=True, slots=True)
class Up:
    """What `up` found or made."""

    already: bool
    url: str
    gateway_url: str
    differs: tuple[Difference, ...] = ()
    """settings of now that are others than those of the last start"""
    taken_up: bool = False
    """whether the parts have them, since they were started by this; else what runs goes on with its own"""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One `up`, which judges by what happens from its beginning on.

    Args:
        home: the folder.
        supervisor: the one that runs now.
        deaths: of each part under this supervisor, before.
        log_sizes: of each log, before, bytes.
    """

    home: Home
    supervisor: Identity
    deaths: Mapping[str, int]
    log_sizes: Mapping[str, int]

    def parts(self) -> Mapping[str, Any]:
        """What this supervisor has recorded of its parts; nothing while it has not, whatever a former one left."""
        record = self.home.read_record()
        recorded: Mapping[str, Any] = record.get("parts") or {}
        return recorded if Identity.from_wire(record.get("supervisor")) == self.supervisor else {}

    def log(self, name: str) -> dict[str, Any]:
        """The end of what was logged since, as a wait's error carries it."""
        return {"last_failure": {"log": processes.tail(self.home.log(name), since=self.log_sizes.get(name, 0))}}

    def remedy(self, otherwise: str) -> str:
        """What to do about a failure: on a full disk, nothing else matters."""
        return disk.REMEDY if disk.is_full(self.home.root) else otherwise

    def told(self, message: str) -> str:
        """A failure, with the disk before it where that is full."""
        root = self.home.root
        return f"{disk.no_space(root).message}: {message}" if disk.is_full(root) else message


def up(home: Home, settings: Settings, progress: Progress, *, timeout_s: float) -> Up:
    """Bring the control plane, agent and gateway of this home up and wait until all answer.

    Args:
        home: the folder.
        settings: effective settings.
        progress: where to say what is waited for.
        timeout_s: seconds to wait for the parts; after it, what was started is stopped again within a minute.

    Raises:
        Conflict: a port is taken, or this home is up on other addresses, or another `up`/`down` is at work.
        WaitFailed: a part keeps dying; carries the end of its log.
        WaitTimeout: the parts did not answer in time.
        Unavailable: the disk is full.
        InvalidSpec: both addresses are one.
    """
    ports.require_apart(settings.api, settings.gateway)
    home.make()
    with home.locked("up") as mine:
        if not mine:
            raise Conflict(f"another `moor up` or `moor down` is at work in {home.root}", remedy="let it finish first")
        sizes, differs = _log_sizes(home), differing(home, settings)
        running = running_supervisor(home)
        starts = running is None
        if running is not None:
            settings = _as_running(home, settings)
            attempt = _Attempt(home, running, _deaths(home), sizes)
        else:
            _check_ports(home, settings)
            with disk.told_when_full(home.root):
                write_configs(home, settings)
                running = _launch(home)
            attempt = _Attempt(home, running, {}, sizes)
        try:
            _await_ready(attempt, settings, progress, timeout_s)
        except (MoorageError, KeyboardInterrupt):
            if not _was_ready(home):
                progress.say("stopping what was started")
                _stop_supervisor(home, running, progress, keep=True, limit_s=GIVE_BACK_LIMIT_S)
            raise
        finally:
            progress.clear()
        already = _mark_ready(home, running, progress)
        return Up(already, settings.api.url, settings.gateway_url, differs, taken_up=starts)


def down(home: Home, progress: Progress, *, keep: bool) -> bool:
    """Stop everything of this home: agent (with its model servers, unless `keep`), gateway, server.

    Returns:
        False when nothing was running.

    Raises:
        Unavailable: something of it still runs.
    """
    if not home.root.exists():
        return False
    with home.locked("up") as mine:
        if not mine:
            raise Conflict(f"another `moor up` or `moor down` is at work in {home.root}", remedy="let it finish first")
        running = running_supervisor(home)
        try:
            did = (
                _stop_supervisor(home, running, progress, keep=keep, limit_s=stop_all_limit_s(home))
                if running
                else _stop_left_over(home, progress, keep=keep, limit_s=stop_all_limit_s(home))
            )
        finally:
            progress.clear()
        (home.root / "ready").unlink(missing_ok=True)
        if not keep:
            _require_model_servers_gone(home)
        return did


def running_supervisor(home: Home) -> Identity | None:
    """The supervisor of this home, if it runs: the recorded one, or one that could not write its record."""
    identity = Identity.from_wire(home.read_record().get("supervisor"))
    if processes.alive(identity):
        return identity
    found = processes.find_by_command(_supervisor_command(home))
    return found[0] if found else None


def _supervisor_command(home: Home) -> list[str]:
    return processes.python("moorage.app.supervisor", "--home", str(home.root))


def _require_model_servers_gone(home: Home) -> None:
    deadline = time.monotonic() + MODEL_SERVERS_END_S
    while model_servers_live(home):
        if time.monotonic() > deadline:
            full = disk.is_full(home.root)
            because = f"; {disk.no_space(home.root).message}" if full else ""
            raise Unavailable(
                f"everything else is down, but model servers of {home.root} still run{because}",
                remedy="free some, then `moor down` again" if full else f"see {home.log('agent')}; `moor down` again",
            )
        time.sleep(LOOK_EVERY_S)


def _log_sizes(home: Home) -> dict[str, int]:
    paths = {name: home.log(name) for name in (*PARTS, "supervisor")}
    return {name: path.stat().st_size for name, path in paths.items() if path.exists()}


def _deaths(home: Home) -> dict[str, int]:
    parts = home.read_record().get("parts") or {}
    return {name: part.get("deaths", 0) for name, part in parts.items()}


def _was_ready(home: Home) -> bool:
    return (home.root / "ready").exists()


def _mark_ready(home: Home, running: Identity, progress: Progress) -> bool:
    """Remember that everything answered once, so that a later `up` that fails does not stop it. True if it was so."""
    marker = home.root / "ready"
    text = f"{running.pid} {running.started}"
    if marker.exists() and marker.read_text() == text:
        return True
    try:
        with disk.told_when_full(home.root):
            write_private(marker, text)
    except Unavailable as full:  # all answer, so this is no failure; the next `up` will say it again
        progress.say(f"warning: {full.message}: {full.remedy}")
    return False


def _as_running(home: Home, settings: Settings) -> Settings:
    """The settings with the addresses that are up; those that somebody asked for must be the same."""
    try:
        recorded = json.loads(home.client.read_text())
        api, gateway = address_of(recorded["url"]), address_of(recorded["gateway_url"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return settings  # lost or spoilt: the parts' own configurations, where our settings are from, say the same
    for name, address in (("api", api), ("gateway", gateway)):
        wanted: Address = getattr(settings, name)
        if settings.asked(name) and wanted.url != address.url:
            raise Conflict(
                f"already up with its {name} on {address}, not on {wanted}",
                remedy="run `moor down --keep` first; model servers live on and are adopted by the next `moor up`",
            )
    return _with_its_tls(home, replace(settings, api=api, gateway=gateway))


def _with_its_tls(home: Home, settings: Settings) -> Settings:
    """The settings with the certificate that the running gateway has."""
    try:
        running = json.loads(home.config("gateway").read_text())
        certificate, key = (Path(running[k]) if running.get(k) else None for k in ("tls_certificate", "tls_key"))
    except (OSError, ValueError, AttributeError):
        return settings
    if settings.gateway_tls_certificate is not None and certificate is None:
        raise Conflict(
            f"already up with its gateway at {settings.gateway.url}, without TLS",
            remedy="`moor gateway --reload` takes the certificate up; nothing that runs is cut",
        )
    return replace(settings, gateway_tls_certificate=certificate, gateway_tls_key=key)


def _check_ports(home: Home, settings: Settings) -> None:
    for part, address, option in (
        ("server", settings.api, "--port or MOORAGE_API"),
        ("gateway", settings.gateway, "--gateway-port or MOORAGE_GATEWAY"),
    ):
        if not ports.is_free(address) and not _held_by_us(home, part, address):
            raise Conflict(
                f"the {part} cannot listen on {address}: the port is used by {ports.taken_by(address.port)}",
                remedy=f"stop that process, or choose another port with {option}; nothing was started",
                code="port_in_use",
            )


def _held_by_us(home: Home, part: str, address: Address) -> bool:
    who = ports.owner(address.port) or ""
    pids = {identity.pid for identity, _ in left_over(home, part)}
    if part == "gateway":  # its processes may serve without a master, for the one that is started now
        pids.update(handover.waiting(home.gateway_state))
    return any(who.endswith(f"(pid {pid})") for pid in pids)


def _launch(home: Home) -> Identity:
    (home.root / "ready").unlink(missing_ok=True)
    log = home.log("supervisor")
    before = log.stat().st_size if log.exists() else 0
    child, identity = processes.start(_supervisor_command(home), log, home.root)
    if identity is None:
        child.wait()
        raise WaitFailed(
            "the supervisor ended at once", last={"last_failure": {"log": processes.tail(log, since=before)}}
        )
    child.returncode = 0  # it outlives us on purpose; nothing here collects it
    return identity


def _await_ready(attempt: _Attempt, settings: Settings, progress: Progress, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    asked = False
    while True:
        asked = asked or _joins_anew(attempt, progress)
        waiting = list(readiness.missing(attempt.home, settings))
        if not waiting:
            return
        _check_parts(attempt, [part for part, _ in waiting])
        if time.monotonic() >= deadline:
            part, what = waiting[0]
            raise WaitTimeout(
                attempt.told(f"{what} did not answer within {timeout_s:g} s"),
                last=attempt.log(part),
                remedy=attempt.remedy(f"look into {attempt.home.log(part)}"),
            )
        progress.update("waiting for " + ", ".join(what for _, what in waiting))
        time.sleep(LOOK_EVERY_S)


def _joins_anew(attempt: _Attempt, progress: Progress) -> bool:
    """Have an agent started again that ended since its machine was removed from the cluster."""
    removed = (attempt.parts().get("agent") or {}).get("state") == REMOVED
    if removed:
        progress.say("this machine was removed from the cluster; it joins anew")
        processes.send(attempt.supervisor, signal.SIGUSR2)
    return removed


def _check_parts(attempt: _Attempt, waiting: list[str]) -> None:
    """Fail early where waiting longer cannot help."""
    if not processes.alive(attempt.supervisor):
        raise WaitFailed(
            attempt.told("the supervisor ended"), last=attempt.log("supervisor"), remedy=attempt.remedy("`moor up`")
        )
    parts = attempt.parts()
    if not parts and disk.is_full(attempt.home.root):
        raise disk.no_space(attempt.home.root)  # it cannot even tell how its parts do
    for name in waiting:
        part = parts.get(name) or {}
        deaths = part.get("deaths", 0) - attempt.deaths.get(name, 0)
        if deaths >= GIVE_UP_AFTER_DEATHS:
            raise WaitFailed(
                attempt.told(f"the {name} keeps dying ({deaths} times; the last time it {part.get('last_exit')})"),
                last=attempt.log(name),
                remedy=attempt.remedy(f"the whole log is in {attempt.home.log(name)}"),
            )


def _stop_supervisor(home: Home, running: Identity, progress: Progress, *, keep: bool, limit_s: float) -> bool:
    processes.send(running, signal.SIGUSR1 if keep else signal.SIGTERM)
    deadline = time.monotonic() + limit_s
    while processes.alive(running):
        progress.update(_stopping_words(home))
        processes.wait_gone(running, 0.2)
        if time.monotonic() > deadline:
            processes.send(running, signal.SIGKILL)
            processes.wait_gone(running, 5.0)
            return _stop_left_over(home, progress, keep=keep, limit_s=limit_s)
    left = [name for name in PARTS if any(True for _ in left_over(home, name))]
    if left:
        raise Unavailable(f"could not stop {', '.join(left)}", remedy=f"see {home.log('supervisor')}")
    return True


def _stopping_words(home: Home) -> str:
    parts = home.read_record().get("parts", {})
    for name in STOP_ORDER:
        if (parts.get(name) or {}).get("state") == "stopping":
            return "stopping the agent, its model servers and jobs" if name == "agent" else f"stopping the {name}"
    return "stopping"


def _stop_left_over(home: Home, progress: Progress, *, keep: bool, limit_s: float) -> bool:
    """Stop parts whose supervisor is gone, by proven identity, each within its own limit and `limit_s` seconds."""
    did = False
    with home.locked("supervisor") as mine:
        if not mine:
            raise Conflict("a supervisor that is not recorded runs for this home", remedy="run `moor down` again")
        supervisor = Supervisor(home)
        for name in STOP_ORDER:
            found = [identity for identity, _ in left_over(home, name)]
            if name == "agent" and not found and not keep:
                revived = revive_agent(home, progress.say)
                found = [revived] if revived else []
            for identity in found:
                progress.update(f"stopping the {name} (pid {identity.pid})")
                end(identity, name, keep=keep, limit_s=min(limit_s, stop_limit_s(home, name)))
                did = True
            if name == "gateway":
                did |= end_masterless(home, min(limit_s, stop_limit_s(home, name)))
            supervisor.parts[name] = Part(name, "", state="stopped")
        if did:
            supervisor.state = "stopped"
            supervisor.save()
    return did

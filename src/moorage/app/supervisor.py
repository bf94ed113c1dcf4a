"""The supervisor: keeps server, agent and gateway of one machine running, and stops them in the right order.

    python -m moorage.app.supervisor --home DIR

It starts each part (or adopts the one that outlived an earlier supervisor, by pid and start time), starts it again
when it dies (at once the first time, then after 0.5 s doubling to 5 s; a minute of running forgives), ends one that
hangs (`hangs`), bounds the logs, and keeps a record of all that in `supervisor.json`. SIGTERM or SIGINT: stop all,
model servers first. SIGUSR1: stop all but the model servers, which the next agent adopts. An agent whose machine was
removed from the cluster is left ended; SIGUSR2 (another `moor up`) starts it again, and it joins anew. Killed itself,
it takes nothing down: the parts live on. It decides nothing about deployments and opens no network connection. Started
by `up`.
"""

import argparse
import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage._version import VERSION
from moorage.app import hangs, processes, reloading
from moorage.app.hangs import Hangs
from moorage.app.home import PARTS, Home, write_private
from moorage.app.processes import Identity
from moorage.app.stopping import STOP_ORDER, end, end_masterless, left_over, revive_agent, say, stop_limit_s
from moorage.domain.errors import Unavailable
from moorage.domain.reasons import Reason, reason
from moorage.domain.silence import DUMP_LIMIT_S

REMOVED = "removed"
"""State of an agent that is left ended."""

HUNG = "hung"
"""State of a part that is being ended since it hung."""

RETRY_MAX_S = 5.0
FORGIVEN_AFTER_S = 60.0
LOG_LIMIT_BYTES = 10 << 20
LOG_LOOK_S = 15.0
_WRITE_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


@dataclass(slots=True)
class Part:
    """One part as the supervisor sees it."""

    name: str
    digest: str
    identity: Identity | None = None
    child: "subprocess.Popen[bytes] | None" = None
    fd: int | None = None
    state: str = "waiting"
    adopted: bool = False
    starts: int = 0
    failures: int = 0
    deaths: int = 0
    since: float = 0.0
    retry_at: float | None = None
    last_exit: str | None = None
    last_reason: Reason | None = None
    last_exit_at: float | None = None
    """seconds since the epoch"""
    hangs: int = 0
    answered: bool = False
    """this process has said that it lives, so that its silence means something, to the next supervisor as well"""
    silent_s: float | None = None
    """of one that hung: for how long it had answered nothing"""
    kill_at: float | None = None

    def to_wire(self) -> dict[str, Any]:
        """For the record."""
        return {
            "identity": self.identity.to_wire() if self.identity else None,
            "digest": self.digest,
            "state": self.state,
            "adopted": self.adopted,
            "starts": self.starts,
            "failures": self.failures,
            "deaths": self.deaths,
            "hangs": self.hangs,
            "answered": self.answered,
            "last_exit": self.last_exit,
            "last_reason": self.last_reason.to_wire() if self.last_reason else None,
            "last_exit_at": self.last_exit_at,
        }


@dataclass(slots=True)
class Supervisor:
    """Parts of one home. `run` returns when all are stopped."""

    home: Home
    parts: dict[str, Part] = field(default_factory=dict)
    state: str = "running"
    keep: bool = False
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    signals: list[int] = field(default_factory=list)
    unsaved: bool = False
    hangs: Hangs | None = None
    """asks the parts whether they live, while `run` runs"""

    def run(self) -> int:
        """Start or adopt, watch, stop."""
        folder = self.home.config("supervisor").parent
        self.hangs = Hangs(folder, hangs.hang_after_s(self.home), clock=time.monotonic, tell=say)
        if (asking := self.hangs.fileno()) is not None:
            self.selector.register(asking, selectors.EVENT_READ, "answers")
        self.adopt_or_start()
        next_look = time.monotonic() + LOG_LOOK_S
        while not set(self.signals) - {signal.SIGUSR2}:
            self._start_removed()
            self._wait(next_look)
            for name, silent_s in self.hangs.look():
                self._give_up(self.parts[name], silent_s)
            for name in self.hangs.first_answers():
                self.parts[name].answered = True
                self.save()
            for part in self.parts.values():
                self._collect(part)
                if part.state == "waiting" and (part.retry_at is None or part.retry_at <= time.monotonic()):
                    self._start(part)
                    self.save()
            if time.monotonic() >= next_look:
                bound_logs(self.home)
                if self.unsaved:
                    self.save()
                next_look = time.monotonic() + LOG_LOOK_S
        self.stop(keep=signal.SIGUSR1 in self.signals)
        return 0

    def adopt_or_start(self) -> None:
        """Take over what an earlier supervisor left, replace what no longer fits, start the rest."""
        # all of the old record is read, and adopted parts are in ours, before ours first replaces it
        found = {name: list(left_over(self.home, name)) for name in PARTS}
        recorded: dict[str, dict[str, Any]] = self.home.read_record().get("parts") or {}
        self.parts = {name: Part(name, self.home.digest(name)) for name in PARTS}
        unfit: list[tuple[str, Identity]] = []
        for name, part in self.parts.items():
            for identity, digest in found[name]:
                if part.identity is None and digest == part.digest:
                    part.answered = bool(recorded.get(name, {}).get("answered"))
                    self._watch(part, identity, adopted=True)
                else:
                    unfit.append((name, identity))
        for name, identity in unfit:
            part = self.parts[name]
            if name == "gateway" and part.identity is None and reloading.renewed(self.home, identity):
                self._watch(part, identity, adopted=True)
                say(f"gateway: pid {identity.pid} has new processes of this configuration and version")
                continue
            say(f"{name}: pid {identity.pid} was started from another configuration or version; replacing it")
            end(identity, name, keep=True, limit_s=stop_limit_s(self.home, name))
        self.save()
        for part in self.parts.values():
            if part.identity is None:
                self._start(part)
                self.save()

    def stop(self, *, keep: bool) -> None:
        """Stop the parts: agent (with the model servers, or without when `keep`), gateway, server."""
        self.state, self.keep = "stopping", keep
        self.save()
        if not keep and self.parts["agent"].identity is None:
            self.parts["agent"].identity = self._revived()
        for name in STOP_ORDER:
            part = self.parts[name]
            if part.identity is not None:
                part.state = "stopping"
                self.save()
                end(part.identity, name, keep=keep, limit_s=stop_limit_s(self.home, name))
                self._unwatch(part)
            if name == "gateway":
                end_masterless(self.home, stop_limit_s(self.home, name))
            part.state, part.identity = "stopped", None
            self.save()
        self.state = "stopped"
        self.save()

    def save(self) -> None:
        """Write the record, as far as the disk lets us: parts are kept and stopped without it, so nothing ends here."""
        me = processes.identify(os.getpid())
        data = {
            "version": VERSION,
            "supervisor": me.to_wire() if me else None,
            "state": self.state,
            "keep": self.keep,
            "parts": {name: part.to_wire() for name, part in self.parts.items()},
        }
        try:
            write_private(self.home.record, json.dumps(data, indent=1) + "\n")
        except OSError as cause:
            if not self.unsaved:
                say(f"cannot write {self.home.record}: {cause.strerror}; going on, and trying again")
            self.unsaved = True
        else:
            self.unsaved = False

    def _revived(self) -> Identity | None:
        try:
            return revive_agent(self.home, say)
        except (OSError, Unavailable) as cause:
            say(f"the agent could not be started to stop its model servers: {cause}")
            return None

    def _start(self, part: Part) -> None:
        part.starts, part.retry_at, part.since = part.starts + 1, None, time.monotonic()
        try:
            child, identity = processes.start(
                self.home.command(part.name),
                self.home.log(part.name),
                self.home.root,
                private=part.name != "agent",  # model servers inherit the agent's umask, which is to be the user's
            )
        except (OSError, Unavailable) as cause:  # no memory or no process to be had now: as if it had died
            self._died(part, f"could not be started: {cause}")
            return
        part.child = child
        if identity is None:  # it ended before it could be looked at
            child.wait()
            self._died(part, describe_exit(child.returncode))
            return
        self._watch(part, identity, adopted=False)

    def _watch(self, part: Part, identity: Identity, *, adopted: bool) -> None:
        part.identity, part.adopted = identity, adopted
        part.state, part.since = "running", time.monotonic()
        if self.hangs is not None:
            self.hangs.watch(part.name, identity, answered=part.answered)
        part.fd = processes.watch(identity)
        if part.fd is not None:
            self.selector.register(part.fd, selectors.EVENT_READ)
        say(f"{part.name}: {'adopted' if adopted else 'started'}, pid {identity.pid}")

    def _unwatch(self, part: Part) -> None:
        if self.hangs is not None:
            self.hangs.forget(part.name)
        if part.fd is not None:
            self.selector.unregister(part.fd)
            os.close(part.fd)
            part.fd = None

    def _collect(self, part: Part) -> None:
        """Notice that a part has ended."""
        if part.state not in ("running", HUNG) or part.identity is None:
            return
        if processes.alive(part.identity):
            if part.kill_at is not None and part.kill_at <= time.monotonic():
                processes.send(part.identity, signal.SIGKILL)
                part.kill_at = None
            return
        how = describe_exit(part.child.wait()) if part.child is not None else "ended (adopted, so its code is unknown)"
        self._unwatch(part)
        self._died(part, how)

    def _give_up(self, part: Part, silent_s: float) -> None:
        """End a part that hung; what its end brings is as with any other."""
        assert part.identity is not None
        part.state, part.silent_s, part.hangs = HUNG, silent_s, part.hangs + 1
        part.kill_at = time.monotonic() + DUMP_LIMIT_S
        if self.hangs is not None:
            self.hangs.forget(part.name)
        say(
            f"{part.name}: part.hung: pid {part.identity.pid} has answered nothing for {silent_s:.0f} s; it is ended, "
            f"and is to write the stacks of its threads to {self.home.log(part.name)} before"
        )
        self.save()
        hangs.abort(part.identity)

    def _died(self, part: Part, how: str) -> None:
        if time.monotonic() - part.since >= FORGIVEN_AFTER_S:
            part.failures = 0
        delay_s = retry_delay_s(part.failures)
        part.failures += 1
        part.deaths += 1
        part.last_reason = self._why(part, how)
        part.last_exit = how if part.silent_s is None else f"hung; {how}"
        part.identity, part.child, part.last_exit_at = None, None, time.time()
        part.answered = False
        part.silent_s = part.kill_at = None
        if part.name == "agent" and self.home.agent_removed():
            part.state = REMOVED
            say("agent: this machine was removed from the cluster; not started again. `moor up` joins it anew")
            self.save()
            return
        part.state, part.retry_at = "waiting", time.monotonic() + delay_s
        say(f"{part.name}: {part.last_exit}; starting it again {f'in {delay_s:g} s' if delay_s else 'now'}")
        self.save()

    def _why(self, part: Part, how: str) -> Reason:
        log = str(self.home.log(part.name))
        if part.silent_s is not None:
            known = None if part.adopted else how
            return reason("part.hung", part=part.name, silent=round(part.silent_s), how=known, log=log)
        return reason("part.ended", part=part.name, how=how, log=log)

    def _start_removed(self) -> None:
        """Asked for by a person: what its removal ended may join anew."""
        if not self.signals:
            return
        self.signals.clear()
        for part in self.parts.values():
            if part.state == REMOVED:
                part.state, part.retry_at, part.failures = "waiting", None, 0

    def _wait(self, until: float) -> None:
        """Sleep until a part ends, a signal comes or something is due."""
        retries = [p.retry_at for p in self.parts.values() if p.state == "waiting" and p.retry_at is not None]
        blind = any(p.state in ("running", HUNG) and p.fd is None for p in self.parts.values())
        kills = [p.kill_at for p in self.parts.values() if p.kill_at is not None]
        question = self.hangs.due() if self.hangs is not None else None
        due = min([until, *retries, *kills, *([] if question is None else [question])]) - time.monotonic()
        for key, _ in self.selector.select(max(0.0, min(due, 0.5) if blind else due)):
            if key.data == "signal":
                with contextlib.suppress(BlockingIOError):
                    self.signals.extend(os.read(key.fd, 64))


def retry_delay_s(failures: int) -> float:
    """Seconds before a part that died is started again, after `failures` earlier ones in a row."""
    return 0.0 if failures == 0 else min(RETRY_MAX_S, 0.5 * 2.0 ** (min(failures, 10) - 1))


def bound_logs(home: Home) -> None:
    """Keep each log under a limit: the full one is copied to `.1` and emptied.

    The parts hold the file open in append mode and must outlive us, so it is emptied in place, not renamed. Where the
    disk has no room for the copy, it is emptied without one: a log is not what a full disk is for.
    """
    for name in (*PARTS, "supervisor"):
        path = home.log(name)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > LOG_LIMIT_BYTES:
                _set_aside(path, path.with_suffix(".log.1"))
                os.truncate(path, 0)


def _set_aside(path: Path, kept: Path) -> None:
    try:
        with path.open("rb") as source, os.fdopen(os.open(kept, _WRITE_ANEW, 0o600), "wb") as target:
            shutil.copyfileobj(source, target)
    except OSError as cause:
        kept.unlink(missing_ok=True)
        say(f"{path} could not be kept ({cause.strerror}), and is emptied")


def describe_exit(code: int) -> str:
    """`exited with code 1` or `killed by SIGKILL`."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exited with code {code}"


def _listen(supervisor: Supervisor) -> None:
    """Turn signals into readable bytes, so that one wait covers them and the ends of the parts."""
    receive, transmit = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
    os.set_blocking(transmit, False)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.set_wakeup_fd(transmit, warn_on_full_buffer=False)
    supervisor.selector.register(receive, selectors.EVENT_READ, "signal")


def supervise(home: Home) -> int:
    """Run the supervisor of a home until it is told to stop; leaves at once when another one runs."""
    with home.locked("supervisor") as mine:
        if not mine:
            say("another supervisor runs for this home; leaving")
            return 0
        supervisor = Supervisor(home)
        _listen(supervisor)
        return supervisor.run()


def main(argv: list[str] | None = None) -> int:
    """Entry of the process."""
    parser = argparse.ArgumentParser(prog="moorage.app.supervisor")
    parser.add_argument("--home", required=True, type=Path)
    return supervise(Home(parser.parse_args(argv).home))


if __name__ == "__main__":
    sys.exit(main())

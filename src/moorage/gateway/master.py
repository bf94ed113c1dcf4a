"""The master of a gateway: holds the listening sockets, keeps worker processes at them, replaces all of them on SIGHUP.

Here: when workers are started, started again, retired and ended. Not here: their processes (`crew`), the sockets
(`listeners`), anything about requests (`worker`). Called by `main`. Standard library and settings only, no event loop:
what is not here can neither fail nor take memory.

    SIGTERM, SIGINT   end: workers finish what runs for at most `drain_s`, then the master ends
    SIGHUP            read the settings anew, start new workers at the same sockets, and once all of them serve let the
                      old ones retire; when one of the new cannot start, all stays as it was
    a worker hangs    it is ended (`hangs`)
    a worker dies     another one is started in its place; meanwhile the others accept at its socket too
    it starts         workers whose master was killed hand over their sockets, and retire once its own serve

What it does is told in `master.json` in the gateway's state folder, for `moor gateway --reload`.
"""

import contextlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from moorage._version import VERSION
from moorage.domain.errors import MoorageError
from moorage.gateway import crew, handover, hearing, holding
from moorage.gateway.config import GatewayConfig, values_of
from moorage.gateway.crew import ENDING, FORGIVEN_AFTER_S, SERVING, Worker
from moorage.gateway.hangs import Hangs, answering
from moorage.gateway.listeners import Listeners
from moorage.gateway.orders import Order
from moorage.gateway.state_folder import StateFolder
from moorage.gateway.telling import say as _say

START_LIMIT_S = 60.0
"""How long new workers may take until they serve; after it a reload has failed."""
FIRST_TABLE_S = 5.0
_KILL_AFTER_S = 5.0
"""How much longer than `drain_s` a worker may take to end."""


class Master:
    """One gateway's master.

    Args:
        path: file of the settings, read anew at each reload.

    Raises:
        InvalidSpec: the settings cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values = values_of(path)
        self._config = GatewayConfig.from_mapping(self._values)
        self._listeners: Listeners
        self._crew: dict[int, Worker] = {}
        """by slot: those that serve"""
        self._new: dict[int, Worker] = {}
        """by slot: those of a reload, which do not serve yet"""
        self._old: list[Worker] = []
        """those that retire, and until the first of our own serve those of a master before"""
        self._released: list[int] = []
        """of those, the ones that were let go since our own could not start"""
        self._due: dict[int, float] = {}
        """by slot: when a worker that died is started again"""
        self._deaths: dict[int, int] = {}
        self._last_death: dict[str, Any] | None = None
        self._hangs = Hangs()
        self._pending: tuple[GatewayConfig, dict[str, Any], Listeners] | None = None
        self._new_by = 0.0
        self._begun = False
        self._stopping = False
        self._again = False
        self._reloads = 0
        self._error: str | None = None
        self._code = 0
        self._selector = selectors.DefaultSelector()
        self._folder = StateFolder(self._config.state_dir)
        self._in_terminal = hearing.has_terminal()

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until told to end. The exit code: 0 after a graceful end, 1 or 2 when it could not start."""
        config = self._config
        try:
            held = self._hold()
        except MoorageError as error:
            print(f"gateway: {error.message}; {error.remedy}", file=sys.stderr)
            return 1
        heard = hearing.hear_signals()
        self._selector.register(heard, selectors.EVENT_READ)
        if (asked := answering(self._path)) is not None:
            self._selector.register(asked, selectors.EVENT_READ, asked)
        try:
            self._listeners = Listeners(config.host, config.port, config.processes, self._take_over_orphans())
        except OSError as error:
            print(f"gateway: cannot listen on {config.host}:{config.port}: {error.strerror or error}", file=sys.stderr)
            return 1
        self._folder.clear(and_family=not self._old)
        self._start_all(self._crew)
        while self._crew or self._new or self._old or not self._stopping:
            self._tell()
            crew.introduce(self._workers())
            self._wait(heard)
            self._look()
        if not self._released:  # else the next master finds them by what we told
            self._folder.forget()
        if held is not None:
            os.close(held)
        return self._code

    def _hold(self) -> int | None:
        """The lock of the state folder, held until this process ends; None on a disk that takes no file for it.

        Raises:
            Conflict: another gateway runs from there.
        """
        try:
            return holding.hold(self._config.state_dir)
        except OSError as error:
            _say("gateway.not_locked", "warning", path=str(self._config.state_dir), error=error.strerror or str(error))
            return None

    def _take_over_orphans(self) -> list[socket.socket]:
        """Have the say over workers whose master was killed. Their sockets, where they are at our address."""
        config, sockets = self._config, []
        for handed in handover.take(config.state_dir):
            worker = crew.adopted(handed)
            self._old.append(worker)
            self._selector.register(worker.channel, selectors.EVENT_READ, worker)
            self._folder.family = worker.order.master
            if handed.said["asked"] == [config.host, config.port]:
                sockets += handed.sockets
            else:
                for each in handed.sockets:
                    each.close()
            _say("worker.taken_over", "info", pid=handed.pid, sockets=len(handed.sockets))
        return handover.distinct(sockets)

    def _inherited(self) -> list[Worker]:
        return [worker for worker in self._old if worker.state == SERVING]

    def _wait(self, heard: int) -> None:
        now = time.monotonic()
        due = [*self._due.values(), *(w.kill_at for w in self._workers() if w.kill_at is not None)]
        due += self._hangs.due()
        if self._new:
            due.append(self._new_by)
        for key, _ in self._selector.select(max(0.0, min(due) - now) if due else None):
            if key.fileobj == heard:
                with contextlib.suppress(BlockingIOError):
                    for number in os.read(heard, 64):
                        self._signalled(number)
            else:
                key.data.hear()

    def _signalled(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop()
        elif number == signal.SIGHUP:
            if self._in_terminal and not hearing.has_terminal():
                self._stop()  # the terminal was closed
            elif self._new or not self._begun:
                self._again = True
            elif not self._stopping:
                self._reload()

    def _look(self) -> None:
        """Act on what has happened to workers."""
        self._hangs.look(self._workers(), self._config.hang_after_s)
        for worker in list(self._workers()):
            how = worker.ended()
            if how is not None:
                self._gone(worker, how)
            elif worker.kill_at is not None and worker.kill_at <= time.monotonic():
                _say("worker.killed", "warning", pid=worker.child.pid, left=worker.left)
                worker.child.kill()
                worker.kill_at = None
        if self._stopping:
            return
        if not self._begun and self._crew and all(w.state == SERVING for w in self._crew.values()):
            self._begun = True
            for worker in self._inherited():
                worker.retire(self._config.drain_s + _KILL_AFTER_S)
        if self._new:
            self._look_at_new()
        elif self._again and self._begun:
            self._again = False
            self._reload()
        for slot in [slot for slot, at in self._due.items() if at <= time.monotonic()]:
            del self._due[slot]
            self._start(self._crew, slot)
        self._cover()

    def _cover(self) -> None:
        """Have those that serve accept where nobody else does."""
        if not self._begun or self._stopping:
            return
        many = self._config.processes
        left = [slot for slot in range(many) if slot not in self._crew or self._crew[slot].state != SERVING]
        numbers = tuple(each.fileno() for slot in left for each in self._listeners.of(slot, many))
        for worker in self._crew.values():
            if worker.state == SERVING:
                worker.cover(numbers)

    def _workers(self) -> Iterable[Worker]:
        return (*self._crew.values(), *self._new.values(), *self._old)

    # --- starting ------------------------------------------------------------------------------------------------

    def _start_all(self, into: dict[int, Worker]) -> None:
        reload = self._pending
        config = reload[0] if reload is not None else self._config
        for slot in range(config.processes):
            if self._pending is reload:  # no earlier one has made the reload fail
                self._start(into, slot)

    def _start(self, into: dict[int, Worker], slot: int) -> None:
        reload = self._pending if into is self._new else None
        config, values, listeners = reload or (self._config, self._values, self._listeners)
        own = config.gateway_id if config.processes == 1 else f"{config.gateway_id}/{slot + 1}"
        order = Order(
            settings=values,
            gateway_id=crew.free_id(own, self._workers()),
            address=listeners.address,
            master=self._folder.family,
            slot=slot,
            patience_s=FIRST_TABLE_S if reload or self._inherited() else 0.0,
            replaces=self._begun and into is self._crew,
        )
        try:
            worker = crew.start(order, listeners.of(slot, config.processes), listeners.others(slot, config.processes))
        except OSError as error:  # no memory or no process to be had now
            self._not_started(into, slot, f"cannot be started: {error.strerror or error}")
            return
        into[slot] = worker
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)

    def _not_started(self, into: dict[int, Worker], slot: int, why: str) -> None:
        if into is self._new:
            self._reload_failed(why)
        elif self._begun:
            self._died(slot, why)
        else:
            self._fail(1, f"gateway: a worker process {why}")

    # --- ends of workers -----------------------------------------------------------------------------------------

    def _gone(self, worker: Worker, how: str) -> None:
        self._selector.unregister(worker.channel)
        worker.close()
        self._folder.remove_socket(worker.child.pid)
        if worker in self._old:
            self._old.remove(worker)
            return
        slot = next((slot for slot, each in self._crew.items() if each is worker), None)
        if slot is None:
            slot = next(slot for slot, each in self._new.items() if each is worker)
            del self._new[slot]
            self._reload_failed(how)
            return
        del self._crew[slot]
        if self._stopping:
            return
        safer = crew.safer(self._values, how, served=self._begun)
        self._values = safer or self._values  # until the next reload
        if self._begun or safer is not None:
            self._died(slot, how, lived_s=time.monotonic() - worker.since)
        else:
            code, message = worker.failure or (1, f"gateway: a worker process {how} before it served")
            self._fail(code, message)

    def _died(self, slot: int, how: str, *, lived_s: float = 0.0) -> None:
        deaths = 0 if lived_s >= FORGIVEN_AFTER_S else self._deaths.get(slot, 0)
        delay_s = crew.retry_delay_s(deaths)
        self._deaths[slot] = deaths + 1
        self._due[slot] = time.monotonic() + delay_s
        use = self._values.get("accelerators", "auto")
        self._last_death = {"process": str(slot + 1), "how": how, "at": time.time()}
        _say("worker.died", "warning", process=str(slot + 1), how=how, again_in_s=delay_s, accelerators=use)

    def _fail(self, code: int, message: str) -> None:
        """The gateway could not start."""
        if not self._stopping:
            print(message, file=sys.stderr, flush=True)
            self._code, self._error = code, message
            for worker in self._inherited():  # they go on, for a master that can start
                self._selector.unregister(worker.channel)
                worker.close()
                self._old.remove(worker)
                self._released.append(worker.child.pid)
            self._stop()

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._due.clear()
        for worker in self._workers():
            worker.end(self._config.drain_s + _KILL_AFTER_S)
        # Theirs are closed by themselves; a connection in ours would wait for nobody.
        self._listeners.close()
        if self._pending is not None:
            self._pending[2].close()

    # --- reload --------------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        self._reloads += 1
        self._error = None
        try:
            values = values_of(self._path)
            config = GatewayConfig.from_mapping(values)
        except MoorageError as error:
            self._reload_failed(f"{error.message}; {error.remedy}")
            return
        listeners = self._listeners
        try:
            if (config.host, config.port) != listeners.asked:
                listeners = Listeners(config.host, config.port, config.processes)
            else:
                listeners.grow(config.processes)
        except OSError as error:
            self._reload_failed(f"cannot listen on {config.host}:{config.port}: {error.strerror or error}")
            return
        _say("gateway.reloading", "info", processes=config.processes)
        self._pending = (config, values, listeners)
        self._new_by = time.monotonic() + START_LIMIT_S
        self._start_all(self._new)

    def _look_at_new(self) -> None:
        if all(worker.state == SERVING for worker in self._new.values()):
            self._take_over()
        elif time.monotonic() >= self._new_by:
            self._reload_failed(f"the new worker processes did not serve within {START_LIMIT_S:g} s")

    def _take_over(self) -> None:
        assert self._pending is not None
        before, drain_s = self._listeners, self._config.drain_s
        self._config, self._values, self._listeners = self._pending
        retired = list(self._crew.values())
        self._crew, self._new, self._pending = self._new, {}, None
        self._due.clear()
        self._deaths.clear()
        for worker in retired:
            worker.retire(drain_s + _KILL_AFTER_S)
        self._old.extend(retired)
        if before is not self._listeners:
            before.close()
        _say("gateway.reloaded", "info", processes=len(self._crew), retiring=len(retired))

    def _reload_failed(self, why: str) -> None:
        """All stays as it was. New ones that serve already may have clients, whom they finish."""
        if self._stopping or (self._error is not None and self._pending is None):
            return
        self._error = why
        _say("gateway.not_reloaded", "warning", error=why)
        for worker in self._new.values():
            worker.retire(self._config.drain_s + _KILL_AFTER_S)
            self._old.append(worker)
        self._new = {}
        if self._pending is not None and self._pending[2] is not self._listeners:
            self._pending[2].close()
        self._pending = None

    # --- telling -------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Write what is so, where it changed. A disk that does not take it costs nothing else."""
        state = "stopping" if self._stopping else "reloading" if self._new else "serving" if self._begun else "starting"
        told = {
            "identity": crew.identity(),
            "version": VERSION,
            "config": str(self._path),
            "address": self._listeners.address if not self._stopping else None,
            "scheme": self._config.scheme,
            "state": state,
            "workers": [worker.child.pid for worker in self._crew.values()],
            **crew.accelerated(self._crew.values()),
            "reloads": self._reloads,
            "error": self._error,
            "last_death": self._last_death,
            "inherited": [*self._released, *(worker.child.pid for worker in self._inherited())],
            "retiring": [{"pid": w.child.pid, "left": w.left} for w in self._old if w.state == ENDING],
        }
        try:
            self._folder.tell(told)
        except OSError as error:
            _say("gateway.status_not_written", "warning", path=str(self._folder.status), error=str(error))

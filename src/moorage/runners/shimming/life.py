"""One worker's life as its shim sees it, from the order to an empty tree.

Run as a script (`python -I -S shim.py`), never imported by the agent; standard library only and few of its modules,
because its start is part of every start of a worker. It reads one line from its standard input, the worker's
directory, and then: becomes its own session and the reaper of its descendants, starts the command in a session of
its own, pumps the command's output into a bounded log, writes down how it ended, ends whatever of the tree is left
and exits. Files of the directory, all written here except `launch`:

    launch    what to run, NUL-separated (see `Launch`); removed once read, since it may hold secrets
    lock      a POSIX record lock held while the shim lives
    fenced    made by an agent that holds the lock: this directory may never start anything
    identity  key=value lines: shim and child pids with kernel start ticks, boot id; on disk before the command runs
    log.N     output, N being the sequence number of the file's first line
    exit      key=value lines: how the command ended; fsynced
    gone      the tree is empty; fsynced
    control   FIFO, agent to shim: `stop SIGNAL_NUMBER GRACE_MS`, `grant COUNT ALWAYS`
    events    FIFO, shim to agent: a hint that `identity`, `exit` or `gone` is news

The runner library keeps its shims on a leash (`leash.py`) and may grant restarts ahead: with `grant 1 0` the shim
starts the command again at once when it has failed, unless a stop came first, and tells the end of the one and the
start of the other in one line, `again …`. So a replacement waits for nobody to be scheduled but the shim itself. How
often, and whether at all, stays the owner's decision; a shim without a grant ends with its command.
"""

import _signal
import os
import select
import time

from . import tree
from .cgroup import Cgroup
from .child import Child, Launch
from .kernel import (
    become_subreaper,
    kernel_log_names,
    machine_oom_kills,
    slurp,
    start_ticks,
    sync,
    write_whole,
)
from .leash import Leash, clear_away
from .log import Log
from .order import read_order, take_lock

SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM = 1, 2, 9, 13, 15
"""As numbers: importing `signal` costs 5 ms for its enumerations."""
CHUNK_BYTES = 1 << 16
DRAIN_CHUNKS_MAX = 32
"""Twice what a pipe can hold at most by default settings of the system (1 MiB)."""
HEAD_START_MS = 2
"""What a replacement gets before it is told of: waking up at its execve would put this process before it on its CPU."""
SWEEP_PAUSE_MS, SWEEP_PAUSE_MAX_MS = 2, 500
"""Between two looks at a tree that is not empty yet: killed processes need a moment; an unkillable one, long."""


class Shim:
    """One worker from its start to an empty tree."""

    def __init__(self, folder: str, launch: Launch, *, reaper: bool) -> None:
        self.folder = folder
        self.launch = launch
        self.reaper = reaper
        self.log = Log(folder)
        self.control = os.open(f"{folder}/control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.events = os.open(f"{folder}/events", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.output, output = _output()
        self.cgroup = Cgroup(launch.cgroup)
        self.leash = Leash(launch.leash)
        self.oom_before = machine_oom_kills()
        self.child = Child(launch, output, self.cgroup)
        os.close(output)
        self.kill_at: float | None = None
        self.stopping = False
        self.ended: int | None = None
        self.granted, self.granted_always = 0, False
        self.standby: tuple[Child, int] | None = None
        self.wake = -1

    def run(self) -> None:
        """The whole life, in order."""
        self.cgroup.add(self.child.pid)
        self._write_identity()
        self.child.release()
        failure = self.child.failure()
        if failure is None:
            self._event("running")
            self._watch()
            while self._may_start_again() and self._start_again():
                self._watch()
        self._grant(0, always=False)
        self._drain()  # so that the last words are in the log when the exit is told
        record = self._record(failure)
        self._event("exit " + record.replace("\n", " "))
        write_whole(f"{self.folder}/exit", record, sync=False)
        self._event("exited")
        if self._empty():
            self._event("gone")  # told before the disk has it: capacity waits for this
        durable = not self.leash.held
        if durable:
            sync(f"{self.folder}/exit")
        self._sweep()
        write_whole(f"{self.folder}/gone", "", sync=durable)
        self._event("gone")
        if self.leash.broken:
            clear_away(self.folder)

    def _may_start_again(self) -> bool:
        """Whether it ended as the owner has granted a restart for, and nobody wants it stopped."""
        if self.stopping or self.granted < 1 or self.leash.broken:
            return False
        self._obey_what_waits()  # a stop that came just before the end was seen
        return not self.stopping and self.granted > 0 and (self.ended != 0 or self.granted_always)

    def _start_again(self) -> bool:
        """End what is left of the tree, start the command, then tell. False when it cannot be: the end is told then."""
        assert self.ended is not None
        swept = False
        while self._reap() or self._others_in_cgroup():
            swept = True
            self._kill_tree()
            select.poll().poll(SWEEP_PAUSE_MS)
        if swept:
            self.cgroup.renew()
        if self.standby is None:  # its place was spent on the sweep, or this kernel cannot have one
            try:
                self.standby = self._next_child(standby=False)
            except OSError:
                return False
        (successor, output), self.standby = self.standby, None
        successor.release()
        select.poll().poll(HEAD_START_MS)
        if successor.failure() is not None:
            os.close(output)
            return False
        self._drain()
        os.close(self.output)
        self.log.end_line()
        record = self._record(None).replace("\n", " ")
        at = f"line={self.log.next_line} next_pid={successor.pid} next_ticks={successor.ticks}"
        self.child, self.output, self.ended = successor, output, None
        self.granted = 0
        self._event(f"again {at} {record}")
        self.oom_before = machine_oom_kills()
        self._write_identity()
        return True

    def _next_child(self, *, standby: bool) -> tuple[Child, int]:
        """The command once more, at its gate, and our end of its output."""
        output, theirs = _output()
        try:
            child = Child(self.launch, theirs, self.cgroup, standby=standby)
        except OSError:
            os.close(output)
            raise
        finally:
            os.close(theirs)
        self.cgroup.add(child.pid)
        return child, output

    def _grant(self, granted: int, *, always: bool) -> None:
        """Note what the owner allows, and have the next one standing by where there may be one."""
        self.granted, self.granted_always = granted, always
        if granted and self.standby is None and not self.stopping:
            try:
                self.standby = self._next_child(standby=True)
            except OSError:
                return  # then it is forked when it is needed
        elif not granted and self.standby is not None:
            (child, output), self.standby = self.standby, None
            child.dismiss()
            os.close(output)

    def _others_in_cgroup(self) -> bool:
        waiting = self.standby[0].pid if self.standby else 0
        return any(pid != waiting for pid in self.cgroup.members())

    def _write_identity(self) -> None:
        lines = {
            "pid": self.child.pid,
            "start_ticks": self.child.ticks,
            "shim_pid": os.getpid(),
            "shim_ticks": start_ticks(os.getpid()),
            "boot_id": slurp("/proc/sys/kernel/random/boot_id").decode().strip(),
            "cgroup": self.cgroup.path or "",
            "reaper": int(self.reaper),
        }
        text = "".join(f"{k}={v}\n" for k, v in lines.items())
        write_whole(f"{self.folder}/identity", text, sync=False)  # needed only until the next boot
        self._event("identity")

    def _watch(self) -> None:
        self._listen_for_signals()
        pidfd = os.pidfd_open(self.child.pid)
        poll = select.poll()
        for fd in (self.output, self.control, pidfd, self.wake, *self.leash.fds):
            poll.register(fd, select.POLLIN)
        if self.leash.broken:
            self._let_go(poll)
        while self.ended is None:
            ready = {fd for fd, _ in poll.poll(self._patience_ms())}
            if pidfd in ready:
                _, self.ended = os.waitpid(self.child.pid, 0)
            if self.control in ready:
                self._obey(os.read(self.control, 4096))
            if self.wake in ready and SIGTERM in os.read(self.wake, 64):
                self._stop(SIGTERM, 20_000)
            if not ready.isdisjoint(self.leash.fds):
                self._let_go(poll)
            if self.output in ready and not self._pump():
                poll.unregister(self.output)
            if self.kill_at is not None and self.ended is None and time.monotonic() >= self.kill_at:
                self.kill_at = None
                self._kill_tree()
        os.close(pidfd)

    def _listen_for_signals(self) -> None:
        if self.wake < 0:
            self.wake, wake_write = os.pipe()
            os.set_blocking(wake_write, False)
            _signal.set_wakeup_fd(wake_write)
            _signal.signal(SIGTERM, lambda *_: None)

    def _let_go(self, poll: "select.poll") -> None:
        """The owner is gone: what it would have done at its own end is done here."""
        self.leash.broken = True
        for fd in self.leash.fds:
            poll.unregister(fd)
        self._stop(self.leash.signal, self.leash.grace_ms)

    def _patience_ms(self) -> int:
        if self.kill_at is None:
            return -1
        return max(0, int((self.kill_at - time.monotonic()) * 1000) + 1)

    def _pump(self) -> bool:
        """Move what is there into the log. False at the end of the output."""
        try:
            data = os.read(self.output, CHUNK_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        self.log.write(data)
        return True

    def _obey(self, raw: bytes) -> None:
        for line in raw.decode("ascii", "replace").splitlines():
            words = line.split()
            if len(words) != 3 or not (words[1].isdigit() and words[2].isdigit()):
                continue
            if words[0] == "stop":
                self._stop(int(words[1]), int(words[2]))
            elif words[0] == "grant":
                self._grant(int(words[1]), always=words[2] == "1")

    def _obey_what_waits(self) -> None:
        try:
            self._obey(os.read(self.control, 4096))
        except BlockingIOError:
            return

    def _stop(self, number: int, grace_ms: int) -> None:
        """Signal the command's group, and set when the tree is killed; a second stop can only shorten the grace."""
        deadline = time.monotonic() + grace_ms / 1000
        if not self.stopping:
            self.stopping = True
            self._grant(0, always=False)
            self._event("stopping")
            try:
                # The child was not reaped yet, so its pid, which is also its group's id, cannot be anybody else's.
                os.killpg(self.child.pid, number)
            except OSError:
                pass
            self.kill_at = deadline
        elif self.kill_at is not None:
            self.kill_at = min(self.kill_at, deadline)

    def _kill_tree(self, spared: int = 0) -> None:
        """SIGKILL to all below this process but the process group `spared`."""
        self._grant(0, always=False)
        if not spared:
            self.cgroup.kill()
        tree.kill(self._descendants(), spared)

    def _record(self, failure: tuple[int, str] | None) -> str:
        status = self.ended or 0
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = failure[0] if failure else (128 + number if number else os.WEXITSTATUS(status))
        lines = {
            "code": code,
            "signal": number,
            "oom": int(number == SIGKILL and self._out_of_memory()),
            "stopped": int(self.stopping),
            "at_ms": int(time.time() * 1000),
            "error": failure[1][:1000].encode("unicode_escape").decode() if failure else "",
        }
        return "".join(f"{k}={v}\n" for k, v in lines.items())

    def _out_of_memory(self) -> bool:
        kills = self.cgroup.oom_kills()
        if kills is not None:
            return kills > 0
        if machine_oom_kills() <= self.oom_before:
            return False
        named = kernel_log_names(self.child.pid)
        # Without the kernel's log a kill for memory somewhere on the machine during this run, and an end by SIGKILL
        # that nobody of ours sent, is the best evidence there is.
        return not self.stopping if named is None else named

    def _sweep(self) -> None:
        """End and reap all that is left, whatever session it moved to, until nothing is; drain the output.

        In a stop the command's own group got the signal too and keeps what is left of the grace (a wrapper may end
        long before the server behind it has finished its streams).
        """
        pause, pause_ms = select.poll(), SWEEP_PAUSE_MS
        while not self._empty():
            grace = self.kill_at is not None and time.monotonic() < self.kill_at
            self._kill_tree(spared=self.child.pid if grace else 0)
            self._drain()
            pause.poll(pause_ms)
            pause_ms = min(pause_ms * 2, 20 if grace else SWEEP_PAUSE_MAX_MS)
        self._drain()

    def _empty(self) -> bool:
        """Whether the tree is proven empty; its cgroup is then removed too.

        As the reaper of all below it, a process without children has no descendants either.
        """
        if self._reap() or (not self.reaper and self._descendants()):
            return False
        return not self.cgroup.members() and self.cgroup.remove()

    def _drain(self) -> None:
        """Take what is in the pipe now; bounded, since something left of the tree may write for ever."""
        for _ in range(DRAIN_CHUNKS_MAX):
            try:
                data = os.read(self.output, CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            self.log.write(data)

    def _reap(self) -> bool:
        """Collect dead children; True while any child is left."""
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

    def _descendants(self) -> list[int]:
        return tree.descendants(self.launch.cookie, reaper=self.reaper)

    def _event(self, line: str) -> None:
        try:
            os.write(self.events, line.encode() + b"\n")
        except BlockingIOError:
            pass  # nobody has read for long; the files say the same


def _output() -> tuple[int, int]:
    """A pipe for the command's output: our end, which never blocks, and the command's."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    return ours, theirs


def main() -> int:
    """Wait for the order, then live one worker's life."""
    os.setsid()
    for number in (SIGHUP, SIGINT, SIGPIPE):
        _signal.signal(number, _signal.SIG_IGN)
    reaper = become_subreaper()
    folder = read_order()
    if not folder:
        return 0
    null = os.open("/dev/null", os.O_RDWR)
    errors = os.open(f"{folder}/shim.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.dup2(errors, 2)
    if not take_lock(folder):
        return 3
    launch = Launch(slurp(f"{folder}/launch"))
    os.unlink(f"{folder}/launch")
    Shim(folder, launch, reaper=reaper).run()
    return 0

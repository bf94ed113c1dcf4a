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
    control   FIFO, agent to shim: `stop SIGNAL_NUMBER GRACE_MS`
    events    FIFO, shim to agent: a hint that `identity`, `exit` or `gone` is news
"""

import _signal
import os
import select
import time

from .cgroup import Cgroup
from .child import Child, Launch
from .kernel import (
    become_subreaper,
    kernel_log_names,
    machine_oom_kills,
    slurp,
    start_ticks,
    stat_fields,
    sync,
    write_whole,
)
from .log import Log

SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM = 1, 2, 9, 13, 15
"""As numbers: importing `signal` costs 5 ms for its enumerations."""
CHUNK_BYTES = 1 << 16
DRAIN_CHUNKS_MAX = 32
"""Twice what a pipe can hold at most by default settings of the system (1 MiB)."""
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
        self.output, output = os.pipe()
        os.set_blocking(self.output, False)
        self.cgroup = Cgroup(launch.cgroup)
        self.oom_before = machine_oom_kills()
        self.child = Child(launch, output)
        os.close(output)
        self.kill_at: float | None = None
        self.stopping = False
        self.ended: int | None = None

    def run(self) -> None:
        """The whole life, in order."""
        self.cgroup.add(self.child.pid)
        self._write_identity()
        failure = self.child.release()
        if failure is None:
            self._event("running")
            self._watch()
        else:
            _, self.ended = os.waitpid(self.child.pid, 0)
        self._drain()  # so that the last words are in the log when the exit is told
        record = self._record(failure)
        self._event("exit " + record.replace("\n", " "))
        write_whole(f"{self.folder}/exit", record, sync=False)
        self._event("exited")
        if self._empty():
            self._event("gone")  # told before the disk has it: capacity waits for this
        sync(f"{self.folder}/exit")
        self._sweep()
        write_whole(f"{self.folder}/gone", "", sync=True)
        self._event("gone")

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
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        _signal.set_wakeup_fd(wake_write)
        _signal.signal(SIGTERM, lambda *_: None)
        pidfd = os.pidfd_open(self.child.pid)
        poll = select.poll()
        for fd in (self.output, self.control, pidfd, wake_read):
            poll.register(fd, select.POLLIN)
        while self.ended is None:
            ready = {fd for fd, _ in poll.poll(self._patience_ms())}
            if pidfd in ready:
                _, self.ended = os.waitpid(self.child.pid, 0)
            if self.control in ready:
                self._obey(os.read(self.control, 4096))
            if wake_read in ready and SIGTERM in os.read(wake_read, 64):
                self._stop(SIGTERM, 20_000)
            if self.output in ready and not self._pump():
                poll.unregister(self.output)
            if self.kill_at is not None and self.ended is None and time.monotonic() >= self.kill_at:
                self.kill_at = None
                self._kill_tree()
        os.close(pidfd)
        _signal.set_wakeup_fd(-1)

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
            if len(words) == 3 and words[0] == "stop" and words[1].isdigit() and words[2].isdigit():
                self._stop(int(words[1]), int(words[2]))

    def _stop(self, number: int, grace_ms: int) -> None:
        """Signal the command's group, and set when the tree is killed; a second stop can only shorten the grace."""
        deadline = time.monotonic() + grace_ms / 1000
        if not self.stopping:
            self.stopping = True
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
        if not spared:
            self.cgroup.kill()
        for pid, group in self._descendants().items():
            if group != spared:
                try:
                    os.kill(pid, SIGKILL)
                except OSError:
                    continue

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

    def _descendants(self) -> dict[int, int]:
        """Pid → process group of everything alive below this process."""
        parents: dict[int, int] = {}
        groups: dict[int, int] = {}
        for name in os.listdir("/proc"):
            fields = stat_fields(int(name)) if name.isdigit() else None
            if fields and fields[0] not in b"ZX":
                parents[int(name)], groups[int(name)] = int(fields[1]), int(fields[2])
        me = os.getpid()
        return {pid: groups[pid] for pid in parents if pid != me and self._ours(pid, me, parents)}

    def _ours(self, pid: int, me: int, parents: dict[int, int]) -> bool:
        at, steps = pid, 0
        while at in parents and steps < len(parents):
            at, steps = parents[at], steps + 1
            if at == me:
                return True
        return not self.reaper and self._carries_cookie(pid)

    def _carries_cookie(self, pid: int) -> bool:
        """Without the reaper flag an orphan is told by the cookie in its environment."""
        try:
            return b"MOORAGE_COOKIE=" + self.launch.cookie.encode() in slurp(f"/proc/{pid}/environ").split(b"\0")
        except OSError:
            return False

    def _event(self, line: str) -> None:
        try:
            os.write(self.events, line.encode() + b"\n")
        except BlockingIOError:
            pass  # nobody has read for long; the files say the same


def take_lock(folder: str) -> bool:
    """Hold `lock` until this process ends. False when another holds it or the directory was fenced off."""
    fd = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.lockf(fd, os.F_TLOCK, 0)
    except OSError:
        return False
    return not os.path.exists(f"{folder}/fenced")


def read_order() -> str:
    """The line from the agent; empty when it went away without one."""
    raw = b""
    while not raw.endswith(b"\n"):
        part = os.read(0, 4096)
        if not part:
            return ""
        raw += part
    return raw[:-1].decode("utf-8", "surrogateescape")


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

"""Becomes a command beside a worker: in its cgroup, namespaces, directory and environment.

Run as a script (`python -I -S entering.py OWNER NUMBER CGROUP TTY TERM ERROR_FD ARGV…`) by `beside`, never imported;
standard library only. Standard input and output are the command's already. What goes wrong before the command executes
is written to ERROR_FD as `CODE TEXT`; it is closed by the execution itself.

    OWNER   pid of who starts this
    NUMBER  of the worker's process in /proc
    CGROUP  directory of the worker's cgroup, or nothing
    TTY     1: standard input is a terminal, to be the command's own
    TERM    what that terminal is, or nothing
"""

import _signal
import ctypes
import fcntl
import os
import sys
import termios

PR_SET_PDEATHSIG, SIGKILL = 1, 9
NAMESPACES = (("user", 0x10000000), ("mnt", 0x00020000))
"""In the order in which they are entered: rights over the mounts come with the user namespace."""
RESET_SIGNALS = (1, 2, 3, 13, 15, 25)


def main(owner: str, number: str, cgroup: str, tty: str, term: str, *argv: str) -> None:
    """See the module."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)  # so that it never outlives whoever is connected to it
    if os.getppid() != int(owner):
        os._exit(128 + SIGKILL)  # which has died already
    proc = f"/proc/{number}"
    env = environment(proc, term)
    folder = os.open(f"{proc}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    entered = [(os.open(f"{proc}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), flag) for name, flag in differing(proc)]
    if cgroup:
        with open(f"{cgroup}/cgroup.procs", "w") as members:
            members.write("0")
    for fd, flag in entered:
        if libc.setns(fd, flag):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), "the worker's namespaces")
    os.fchdir(folder)
    os.setsid()
    if tty == "1":
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for one in RESET_SIGNALS:
        _signal.signal(one, _signal.SIG_DFL)
    os.execve(which(argv[0], env), [os.fsencode(word) for word in argv], env)


def environment(proc: str, term: str) -> dict[bytes, bytes]:
    """What the worker was started with."""
    with open(f"{proc}/environ", "rb") as shown:
        pairs = [pair.split(b"=", 1) for pair in shown.read().split(b"\0") if b"=" in pair]
    env = dict(pairs)
    return {**env, b"TERM": os.fsencode(term)} if term else env


def differing(proc: str) -> list[tuple[str, int]]:
    """The namespaces that the worker does not share with this process."""
    return [(n, f) for n, f in NAMESPACES if os.readlink(f"{proc}/ns/{n}") != os.readlink(f"/proc/self/ns/{n}")]


def which(name: str, env: dict[bytes, bytes]) -> bytes:
    """The program's path by the worker's own PATH."""
    program = os.fsencode(name)
    if b"/" in program:
        return program
    for folder in env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        path = (folder or b".") + b"/" + program
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(2, "command not found", name)


if __name__ == "__main__":
    channel = int(sys.argv[6])
    os.set_inheritable(channel, False)
    try:
        main(*sys.argv[1:6], *sys.argv[7:])
    except OSError as cause:
        missing = isinstance(cause, FileNotFoundError) and os.fsencode(cause.filename or "") == os.fsencode(sys.argv[7])
        what = os.fsdecode(cause.filename or sys.argv[7])
        told = f"{127 if missing else 126} {what}: {cause.strerror}"
        os.write(channel, told.encode("utf-8", "replace"))
        os._exit(126)

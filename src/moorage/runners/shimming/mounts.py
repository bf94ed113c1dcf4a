"""A private view of the machine for one command: directories and files bound where its spec wants to see them.

Entered by the command's own process between its fork and its execve, so that nothing of it is seen by anybody else and
all of it ends with the last process of the tree. Imported only where a launch has mounts: loading `ctypes` for the two
calls that Python does not have costs as much as the rest of the shim.
"""

import ctypes
import os

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
KEPT = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
"""Options of a mount that a remount must repeat: in a user namespace the kernel refuses to drop any of them."""

_LIBC = ctypes.CDLL(None, use_errno=True)

Mount = "tuple[str, str, bool]"
"""Source, target, whether read-only."""


def enter(mounts: "list[tuple[str, str, bool]]") -> None:
    """Move this process to a mount namespace of its own and bind there what is asked for, in order.

    Without the right to do so as it is, a user namespace gives that right; the process stays the user that it was.

    Raises:
        OSError: the kernel refuses, with what it was about as its filename.
    """
    _unshare()
    _mount(None, "/", MS_REC | MS_PRIVATE)  # what happens here is not carried out to others, nor theirs in here
    for source, target, read_only in mounts:
        _mount(source, target, MS_BIND | MS_REC)
        if read_only:
            _make_read_only(target)


def _unshare() -> None:
    if _LIBC.unshare(CLONE_NEWNS) == 0:
        return
    uid, gid = os.geteuid(), os.getegid()
    _check(_LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS), "a mount namespace")
    _write("/proc/self/setgroups", "deny")  # without this no group may be mapped by an ordinary user
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def _make_read_only(target: str) -> None:
    """The mount and all that came with it from below its source; `ro` on a bind is for its top alone."""
    for point, flags in _mounts_below(os.path.realpath(target)):
        _mount(None, point, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)


def _mounts_below(target: str) -> "list[tuple[str, int]]":
    """Mount points at and below `target`, with the options that must be repeated."""
    with open("/proc/self/mountinfo", "rb") as file:
        lines = file.read().decode("utf-8", "surrogateescape").splitlines()
    found: dict[str, int] = {}
    for line in lines:
        fields = line.split(" ")
        point = _unescaped(fields[4])
        if point == target or point.startswith(target.rstrip("/") + "/"):
            options = fields[5].split(",")
            found[point] = sum(flag for name, flag in KEPT.items() if name in options)
    return list(found.items())


def _unescaped(text: str) -> str:
    """Blanks in a path are written as octal numbers there."""
    for code in ("040", "011", "012", "134"):
        text = text.replace("\\" + code, chr(int(code, 8)))
    return text


def _mount(source: "str | None", target: str, flags: int) -> None:
    told = None if source is None else os.fsencode(source)
    failed = _LIBC.mount(told, os.fsencode(target), None, ctypes.c_ulong(flags), None)
    _check(failed, target if source is None else f"{source} at {target}")


def _check(failed: int, what: str) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot mount: {os.strerror(number)}", what)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def probe(folder: str) -> None:
    """Do all of it once, with an empty directory: whether this machine lets this user do it.

    Raises:
        OSError: it does not, and why.
    """
    enter([(folder, folder, True)])
    try:
        os.mkdir(f"{folder}/written")
    except OSError:
        return
    raise OSError(1, "a read-only mount can be written to", folder)

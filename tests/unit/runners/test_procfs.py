"""Pids and numbers of /proc: never one process taken for another, whatever namespace /proc counts for."""

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.runners.identity import shown_cookie
from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import shown_stat, start_ticks

NAMING = str(Path(__file__).with_name("naming.py"))
AS_ROOT = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
OUTER_PROC = ["unshare", *AS_ROOT, "--pid", "--fork", "--kill-child"]
OWN_PROC = [*OUTER_PROC, "--mount", "--mount-proc"]


def permitted(prefix: list[str]) -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(
    not permitted(OUTER_PROC), reason="this user may not make a pid namespace on this machine"
)
needs_own_proc = pytest.mark.skipif(
    not permitted(OWN_PROC), reason="this user may not mount a /proc of its own on this machine"
)


class Inside:
    """A process inside of a namespace, and what it says."""

    def __init__(self, process: "subprocess.Popen[str]", cookie: str) -> None:
        self.process = process
        self.cookie = cookie
        self.facts: dict[str, Any] = self._next()

    def _next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "it ended before it said anything"
        return dict(json.loads(line))

    def end(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.close()
        last = self._next()
        assert self.process.wait() == 0
        return last


@contextlib.contextmanager
def inside(prefix: list[str], *numbers: int, cookie: str | None = None) -> Iterator[Inside]:
    cookie = cookie or secrets.token_hex(16)
    process = subprocess.Popen(
        [*prefix, sys.executable, NAMING, cookie, *map(str, numbers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield Inside(process, cookie)
        finally:
            process.kill()


def test_a_process_finds_itself_and_back():
    me = os.getpid()
    number = procfs.number(me)
    assert number == int(Path("/proc/self").readlink().name)
    assert procfs.ours(number) == me
    assert number in procfs.numbers()


def test_a_process_that_was_reaped_has_no_number_and_cannot_be_pinned():
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    number = procfs.number(child.pid)
    assert number is not None
    child.communicate()
    assert procfs.pin(number) is None
    assert start_ticks(child.pid) == 0


def test_a_pin_is_of_the_process_that_proc_shows():
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    found = procfs.pin(procfs.number(child.pid) or 0)
    assert found is not None
    pid, fd = found
    assert pid == child.pid
    signal.pidfd_send_signal(fd, signal.SIGKILL)
    os.close(fd)
    child.communicate()
    assert child.returncode == -signal.SIGKILL


@needs_own_proc
def test_with_a_proc_of_its_own_pids_and_numbers_are_the_same():
    with inside(OWN_PROC) as it:
        assert it.facts["depth"] == 0
        assert it.facts["number"] == it.facts["pid"]
        assert it.facts["child_number"] == it.facts["child_pid"] == it.facts["child_back"]


@needs_namespaces
def test_under_the_outer_proc_each_process_is_found_by_proof():
    with inside(OUTER_PROC) as it:
        facts = it.facts
        assert facts["depth"] == (procfs.depth() or 0) + 1
        assert facts["number"] != facts["pid"]
        assert facts["child_back"] == facts["child_pid"] != facts["child_number"]
        # seen from outside, where the numbers are everybody's: it is that very process
        assert shown_cookie(facts["child_number"], it.cookie)
        fields = shown_stat(facts["child_number"])
        assert fields is not None
        assert facts["child_ticks"] == int(fields[19])


@needs_namespaces
def test_a_process_outside_of_the_namespace_has_no_pid_there():
    me = procfs.number(os.getpid())
    assert me is not None
    with inside(OUTER_PROC, me, 1) as it:
        assert it.facts["asked"] == [None, None]
        assert it.facts["pinned"] == [False, False]


@needs_namespaces
def test_a_process_of_another_namespace_with_the_very_same_pid_is_told_apart():
    with (
        inside(OUTER_PROC) as first,
        inside(OUTER_PROC, first.facts["number"], first.facts["child_number"]) as second,
    ):
        assert second.facts["pid"] == first.facts["pid"]
        assert second.facts["asked"] == [None, None]


@needs_namespaces
def test_a_stray_is_ended_by_its_cookie_and_its_double_outside_of_the_namespace_lives():
    cookie = secrets.token_hex(16)
    with inside(OUTER_PROC, cookie=cookie) as other, inside(OUTER_PROC, cookie=cookie) as it:
        assert it.end() == {"ended": 1, "code": -signal.SIGKILL, "number_after": None}
        assert shown_cookie(other.facts["child_number"], cookie)


@pytest.mark.skipif(
    os.getuid() != 0 or not permitted(OWN_PROC), reason="only root may look at the /proc of another namespace"
)
def test_where_proc_does_not_show_us_nothing_is_named_and_nothing_signalled():
    with inside(OWN_PROC) as host:
        number = _namespace_of(host)
        elsewhere = ["nsenter", "--mount", "--target", str(number)]
        with inside(elsewhere, 1) as it:
            assert it.facts["depth"] is None
            assert it.facts["number"] is None
            assert it.facts["asked"] == [None]
            assert it.facts["child_ticks"] == 0
            assert it.end()["ended"] == 0


def _namespace_of(host: Inside) -> int:
    """Our pid of a process that has the namespace's /proc."""
    for number in procfs.numbers():
        if shown_cookie(number, host.cookie):
            return procfs.ours(number) or 0
    raise AssertionError("it is not to be seen")

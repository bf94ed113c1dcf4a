"""Whose a process is, asked by somebody who saw its pid elsewhere."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from moorage.runners.belonging import Mark, belonging, visible
from moorage.runners.shimming import procfs

CHILD = """
import subprocess, sys
child = subprocess.Popen(["sleep", "60"])
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
"""


@pytest.fixture
def family():
    """A process that starts another, and the pids of both."""
    env = {"PATH": os.environ["PATH"], "MOORAGE_COOKIE": "c00kie"}
    with subprocess.Popen([sys.executable, "-c", CHILD], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:
        child = int(it.stdout.readline())
        # A program's environment shows a moment after its start, later than its parent hears of that.
        until = time.monotonic() + 60
        while not Path(f"/proc/{child}/environ").read_bytes():
            assert time.monotonic() < until
        yield procfs.number(it.pid), procfs.number(child), it.pid
        it.stdin.close()


def test_children_of_what_is_hosted_are_part_of_it(family):
    parent, child, pid = family
    assert belonging([parent, child], [Mark("another", pid)]) == {parent, child}


def test_what_carries_the_cookie_is_part_of_it_whoever_its_parent_is(family):
    parent, child, _ = family
    assert belonging([parent, child], [Mark("c00kie")]) == {parent, child}


def test_a_stranger_is_not_part_of_anything(family):
    parent, child, _ = family
    assert belonging([parent, child, os.getppid()], [Mark("another"), Mark("", 0)]) == frozenset()


def test_what_has_ended_is_visible_no_more_and_nobodys():
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert not visible(ended.pid)
    assert belonging([ended.pid], [Mark("c00kie")]) == frozenset()

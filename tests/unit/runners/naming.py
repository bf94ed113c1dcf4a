"""What a process makes of pids and numbers of /proc, as one line of JSON; `test_procfs` runs it inside of namespaces.

usage: naming.py COOKIE [NUMBER...]: each NUMBER is asked for. It lives, with a child that carries the cookie, until its
standard input ends; then it ends its child by the cookie alone.
"""

import json
import os
import subprocess
import sys

from moorage.runners import strays
from moorage.runners.identity import COOKIE_VARIABLE
from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import start_ticks


def main() -> None:
    cookie, *asked = sys.argv[1:]
    # it reads from us, so it never outlives us
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", "input()"], env={COOKIE_VARIABLE: cookie}, stdin=subprocess.PIPE
    )
    number = procfs.number(child.pid)
    facts = {
        "depth": procfs.depth(),
        "pid": os.getpid(),
        "number": procfs.number(os.getpid()),
        "child_pid": child.pid,
        "child_number": number,
        "child_back": procfs.ours(number) if number else None,
        "child_ticks": start_ticks(child.pid),
        "asked": [procfs.ours(int(one)) for one in asked],
        "pinned": [procfs.pin(int(one)) is not None for one in asked],
    }
    print(json.dumps(facts), flush=True)
    sys.stdin.read()
    ended = strays.signal_all(cookie, "", 9)
    if procfs.depth() is None:
        child.kill()
    code = child.wait()
    print(json.dumps({"ended": ended, "code": code, "number_after": procfs.number(child.pid)}), flush=True)


main()

"""The line once, in the namespace where this is started; says in one line of JSON how it went.

usage: the_line_inside.py FOLDER. Run by `test_foreign_proc`.
"""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import shown_stat
from tests.acceptance.installation import Installation, alive, until


def left(home: Path) -> list[str]:
    """Command lines of living processes that have this home in their environment."""
    found = []
    for number in procfs.numbers():
        try:
            environ = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
            command = Path(f"/proc/{number}/cmdline").read_bytes()
        except OSError:
            continue
        fields = shown_stat(number)
        if f"MOORAGE_HOME={home}".encode() in environ and fields and fields[0] not in b"ZX":
            found.append(command.replace(b"\0", b" ").decode())
    return found


def main(folder: Path) -> None:
    installation = Installation(folder / "home")
    installation.up()
    while_up = len(left(installation.home))
    installation.apply("inside")
    before = installation.server_pid("inside")
    os.kill(before, signal.SIGKILL)
    after = until(
        lambda: installation.request("inside").status_code == 200 and installation.server_pid("inside"), "an answer"
    )
    agent = installation.kill_part("moorage.agent.main")
    until(lambda: installation.part_pid("moorage.agent.main") != agent, "another agent")
    until(lambda: installation.json("machines")[0]["state"] == "Ready", "the machine to be ready")
    adopted = installation.server_pid("inside")
    installation.down()
    said = {
        "depth": procfs.depth(),
        "while_up": while_up,
        "replaced": after not in (0, before),
        "adopted": adopted == after,
        "server_alive": alive(after),
        "left": left(installation.home),
    }
    print(json.dumps(said))


main(Path(sys.argv[1]))

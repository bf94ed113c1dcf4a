"""The shim: the small process that stands between an agent and one worker, and outlives the agent.

Run as a script, `python -I -S shim.py`, never imported by the agent. What it does is in `shimming/life.py`. This file
is only the door: a script is compiled at each start, the modules behind it come from their compiled caches. They are
reached without passing through the `moorage` package, whose own imports cost more than the whole shim.
"""

import sys

if __name__ == "__main__":
    sys.path.append(__file__.rpartition("/")[0])
    from shimming.life import main  # type: ignore[import-not-found]  # found only on the path made above

    sys.exit(main())

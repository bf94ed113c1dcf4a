"""The shim: the small process that stands between an agent and one worker, and outlives the agent.

Run as a script, `python -I -S shim.py`, never imported by the agent. What it does is in `shimming/life.py`. This file
is only the door: a script is compiled at each start, the modules behind it come from their compiled caches.
"""

import sys

if __name__ == "__main__":
    sys.path.insert(0, __file__.rsplit("/", 3)[0])
    from moorage.runners.shimming.life import main

    sys.exit(main())

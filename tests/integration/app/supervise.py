"""Runs the real supervisor over stub parts: `supervise.py HOME`."""

import sys
from pathlib import Path

from moorage.app.home import PARTS, Home
from moorage.app.supervisor import supervise

if __name__ == "__main__":
    sys.exit(supervise(Home(Path(sys.argv[1]), modules=dict.fromkeys(PARTS, "stub_part"))))

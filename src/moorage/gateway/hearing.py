"""How a master hears signals, and whether a terminal is left that sends them. Called by `master`. Standard library."""

import os
import signal

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def hear_signals() -> int:
    """Turn signals into readable bytes, so that one wait covers them and what workers say."""
    receive, transmit = os.pipe()
    os.set_blocking(receive, False)
    os.set_blocking(transmit, False)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(transmit, warn_on_full_buffer=False)
    return receive


def has_terminal() -> bool:
    """Whether this runs in a terminal that is still there."""
    try:
        return os.isatty(0) and os.tcgetpgrp(0) >= 0
    except OSError:
        return False

"""The environment that a model server inherits from the program that embeds the runner: the one place that reads it."""

import os


def inherited() -> dict[str, str]:
    """As it is now: a server started from a program finds the same PATH, caches and proxies as the program."""
    return dict(os.environ)

"""The version, as a plain word: `importlib.metadata` would cost a command more than the rest of its start."""

VERSION = "0.1.0"

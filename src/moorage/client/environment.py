"""The environment of the program that uses the SDK: looked at when a client is made of nothing else, never at import.

The only module of this room that does. Called by the constructors of both clients.
"""

import os
from collections.abc import Mapping


def environment() -> Mapping[str, str]:
    """The variables as they are now."""
    return dict(os.environ)

"""How much of a client's current request was received.

Plain integers: these are compared a dozen times a request, and reading a member of an Enum costs ten times as much.
Used by the classes that make up a client connection.
"""

from typing import Final

IDLE: Final = 0  # nothing, or a part of its head
BODY: Final = 1
SENT: Final = 2  # all of it
LINGER: Final = 3  # answered, and closing
CLOSED: Final = 4
TUNNEL: Final = 5  # switched to another protocol

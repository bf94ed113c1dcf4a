"""What a request says of its model, written as its replica calls it, on the way through.

Here: the bytes that go on in place of those that came. Not here: when (`frontend`: where the name that a client used
is neither the replica's own nor an alias), finding the name (`skim`, `naming`, `multipart`).

It is always possible: a name is found only in bytes that are all still held, and of the body after them only how many
they are is told beforehand. Where the body has a length, that is told anew; where it comes in chunks, what is held goes
as a chunk of its own and the rest is passed on untouched.
"""

import re

from moorage.gateway.heads import RequestHead
from moorage.gateway.naming import Finder

_LENGTH_LINE = re.compile(rb"(?i)(\A|\r\n)(content-length:[ \t]*)[0-9]+[ \t]*(?=\r\n)")


def replaced(body: bytes | bytearray, finder: Finder, model: str) -> bytes:
    """The bytes of a body with another model where `finder` found one."""
    return b"".join((body[: finder.start], finder.written(model), body[finder.end :]))


def longer_by(head: RequestHead, difference: int) -> RequestHead:
    """The head of a body that became longer by so many bytes (shorter, where negative)."""
    length = head.length + difference
    lines = _LENGTH_LINE.sub(rb"\g<1>\g<2>%d" % length, head.lines, count=1)
    return head._replace(lines=lines, length=length)

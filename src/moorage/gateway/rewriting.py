"""What a request says of its model, written as its replica calls it, on the way through.

Here: the bytes that go on in place of those that came. Not here: when (`frontend`: where the name that a client used
is neither the replica's own nor an alias), finding the name (`skim`, `naming`, `multipart`).

It is always possible: a name is found only in bytes that are all still held, and of the body after them only how many
they are is told beforehand. Where the body has a length, that is told anew; where it comes in chunks, what is held goes
as a chunk of its own and the rest is passed on untouched.
"""

import re

from moorage.gateway import native
from moorage.gateway.heads import RequestHead
from moorage.gateway.naming import Finder
from moorage.gateway.skim import ModelSkimmer, leading_span, within_string

_LENGTH_LINE = re.compile(rb"(?i)(\A|\r\n)(content-length:[ \t]*)[0-9]+[ \t]*(?=\r\n)")
_new = tuple.__new__


def respelled(body: bytes | bytearray, model: str) -> bytes:
    """The bytes of a whole JSON body, which names a model, with another one."""
    span = leading_span(body)
    if span is None:
        finder = ModelSkimmer()
        finder.feed(body, True)
        span = finder.start, finder.end
    return _with(body, *span, within_string(model))


def renamed(head: RequestHead, body: bytes, model: str) -> tuple[RequestHead, bytes]:
    """A request whose whole body came with its length and names a model, with another one."""
    core = native.core
    known = None if core is None else core.renamed(head, body, model)
    if known is not None:
        return known
    span = leading_span(body)
    if span is None:
        data = respelled(body, model)
        return longer_by(head, len(data) - len(body)), data
    start, end = span
    name = within_string(model)
    difference = len(name) - end + start
    return longer_by(head, difference) if difference else head, b"%b%b%b" % (body[:start], name, body[end:])


def replaced(body: bytes | bytearray, finder: Finder, model: str) -> bytes:
    """The bytes of a body with another model where `finder` found one."""
    return _with(body, finder.start, finder.end, finder.written(model))


def _with(body: bytes | bytearray, start: int, end: int, text: bytes) -> bytes:
    """A body with this text between its places; it may have tens of megabytes, which are copied once."""
    with memoryview(body) as view:
        return b"".join((view[:start], text, view[end:]))


def longer_by(head: RequestHead, difference: int) -> RequestHead:
    """The head of a body that became longer by so many bytes (shorter, where negative)."""
    line, lines, before, keep_alive, expects_continue, request_id, revision, asks, session = head
    length = before + difference
    # as most write it, and not in the first line: no other line can hold the ends of this one
    told = lines.replace(b"\r\nContent-Length: %d\r\n" % before, b"\r\nContent-Length: %d\r\n" % length, 1)
    if told is lines:
        told = _LENGTH_LINE.sub(rb"\g<1>\g<2>%d" % length, lines, count=1)
    return _new(RequestHead, (line, told, length, keep_alive, expects_continue, request_id, revision, asks, session))

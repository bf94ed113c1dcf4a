"""The body of a request as it comes, and the endpoint that the request names.

Here: counting a body to its end, and step 2 of a request: its endpoint, by the path, a header, a JSON body, a form or
the query; another name than the replica's own is written as the replica calls it. Not here: heads and what follows once
the endpoint is known (`frontend`, which builds on this), the answer (`exchange`, the base, and
`switching`).
"""

from typing import TYPE_CHECKING

from moorage.decide.serving.routes import EndpointState, Refuse
from moorage.gateway import answers
from moorage.gateway.explaining import nameless
from moorage.gateway.fields import value_of
from moorage.gateway.framing import ChunkCounter, FramingError
from moorage.gateway.heads import ENDPOINT, MODEL, OWN, RequestHead, RequestLine
from moorage.gateway.naming import HOW, Finder, WholeFinder, form_finder, in_query, with_query
from moorage.gateway.phases import BODY, SENT
from moorage.gateway.rewriting import longer_by, renamed, replaced, respelled
from moorage.gateway.skim import ModelSkimmer, Skimmed, leading_model, names_twice, sole_model
from moorage.gateway.switching import Switching

if TYPE_CHECKING:
    from moorage.gateway.hub import Hub

WHOLE_BODY_BYTES_MAX = 256 * 1024
"""A body up to this size is looked at whole, so that a second `model` is seen wherever it stands and however the body
was cut on its way. In a longer one the first `model` counts: it goes on while it still comes."""
_TOO_LARGE = Refuse(413, "body_too_large", "the request's body is too large for this gateway")


class Intake(Switching):
    """One client connection, seen from the body of the request on it."""

    __slots__ = (
        "_chosen",
        "_counter",
        "_finder",
        "_forward",
        "_found",
        "_left",
        "_payload",
        "_pending",
        "_pending_bytes",
    )

    def __init__(self, hub: "Hub") -> None:
        super().__init__(hub)
        self._forward = b""
        self._found: str | Skimmed = Skimmed.MORE
        self._left = 0
        """of the body: what its length says still comes, or how much may in chunks"""
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._payload = bytearray()
        """data of what is pending, while it is looked at"""
        self._counter: ChunkCounter | None = None
        self._finder: Finder | None = None
        self._chosen: EndpointState | None = None
        """named by the path or a header; its body is looked at before it is decided on"""

    @property
    def so_far(self) -> tuple[bytes, ...]:
        """The first line that goes on, and what there is of the body."""
        return (self._forward, *self._pending)

    def _looked_at(self) -> bytes | bytearray:
        """What there is of the body's data."""
        return self._payload or b"".join(self._pending)

    def _body_begins(self, head: RequestHead, data: bytes, start: int) -> bytes:
        """Set up the count of the body; the part of it that came with the head."""
        self._counter = self._finder = None
        self._pending.clear()
        self._pending_bytes = 0
        length = head.length
        have = len(data) - start
        if length < 0:
            self._counter = ChunkCounter()
            self._left = self.hub.config.body_bytes_max
            self._phase = BODY
        elif have >= length:
            self._phase = SENT
            if have == length:
                return data[start:] if length else b""
            self._buffer = data[start + length :]
            return data[start : start + length]
        else:
            self._left = length
            self._phase = BODY
        if self._phase == BODY:
            self.deadline = self.hub.tick + self.hub.config.body_timeout_s
        return data[start:]

    # --- naming the endpoint -------------------------------------------------------------------------------------

    def _dispatch(self, head: RequestHead, body: bytes) -> None:
        line = head.line
        if head.length > self.hub.config.body_bytes_max:
            self.refuse(_TOO_LARGE)
        elif line.kind == MODEL:
            self._forward = line.forwards[0].line
            if head.asks is None and head.length:
                self._skim(body)
            else:
                self._look_elsewhere(head, body)
        elif line.kind == ENDPOINT:
            self._by_path(line, body)
        elif line.kind == OWN:
            told = self.hub.own.answer(head)
            if told is None:
                self.hub.spawn(self.hub.own.ask(head, self.own_answer))
            else:
                self.own_answer(*told)
        else:
            self.refuse(Refuse(404, "unknown_path", f"nothing is served at {line.path}"))

    def _by_path(self, line: RequestLine, body: bytes) -> None:
        router = self.hub.router
        for forward in line.forwards:
            if router.find(forward.name) or router.bound(forward.name):
                self._forward = forward.line
                self._choose(self._find(forward.name), body)
                return
        self.asked = line.forwards[0].name
        self.refuse(router.unknown(self.asked))

    def _find(self, name: str) -> EndpointState | None:
        """The endpoint called so, or one that answers for it; None when the request was refused."""
        router = self.hub.router
        endpoint = router.find(name)
        if endpoint is not None:
            return endpoint
        self.binding = router.bound(name)
        drawn = router.unknown(name) if self.binding is None else self.binding.draw()
        if type(drawn) is Refuse:
            self.asked = name
            self.refuse(drawn)
            return None
        assert isinstance(drawn, EndpointState)
        return drawn

    def _look_elsewhere(self, head: RequestHead, body: bytes) -> None:
        """The name of a request that has no body, or says how else it is to be named."""
        asks = head.asks
        if asks is not None and asks.endpoint:
            self._choose(self._find(asks.endpoint.decode("latin-1")), body)
        elif not head.length:
            self._named_in_query(body)
        elif asks is not None and asks.form:
            self._finder = form_finder(asks.form)
            if self._finder is None:
                self.refuse(Refuse(400, "bad_request", "the form's Content-Type must say its boundary, once"))
            else:
                self._begin_gathering(body)
                self._skim(body)
        else:
            self._skim(body)

    def _choose(self, endpoint: EndpointState | None, body: bytes) -> None:
        """Its name stands outside of the body, which is looked at only where the endpoint's settings need it."""
        if endpoint is None:
            return
        limits = endpoint.route.limits
        if self._phase == BODY and (limits.affinity != "none" or limits.hold_comments_s is not None):
            self._finder = WholeFinder(WHOLE_BODY_BYTES_MAX)
            self._begin_gathering(body, endpoint)
            self._skim(body)
        else:
            self._decide(endpoint, body)

    def _skim(self, body: bytes) -> None:
        """Look for the model's name in what has come of the body."""
        if self._phase == SENT and self._counter is None and self._finder is None:
            name = sole_model(body) if len(body) <= WHOLE_BODY_BYTES_MAX else None
            if name is not None:
                self._named(name, body, body, None)
            elif len(body) > WHOLE_BODY_BYTES_MAX or not names_twice(body):
                self._named(leading_model(body) or ModelSkimmer().feed(body, True), body, body, None)
            else:
                self._refuse_twice()
            return
        if not self._gather(body):
            return
        found, whole = self._found, self._phase == SENT
        if found is Skimmed.MORE:
            if self._pending_bytes > self.hub.config.skim_bytes_max:
                message = (
                    f"no `model` within the first {self.hub.config.skim_bytes_max} bytes of the body; put it before "
                    "large fields and files, or name the endpoint in the path (/endpoints/NAME/v1/…)"
                )
                self.refuse(Refuse(413, "model_not_found_early", message))
            return
        if type(found) is str and self._pending_bytes <= WHOLE_BODY_BYTES_MAX and not whole:
            return
        self._look_is_over(found)

    def _look_is_over(self, found: str | Skimmed) -> None:
        finder, self._finder = self._finder, None
        chosen, self._chosen = self._chosen, None
        if self._counter is not None:
            self._counter.payload = None
        payload = self._payload
        if chosen is not None:
            self._decide(chosen, b"")
        elif self._pending_bytes <= WHOLE_BODY_BYTES_MAX and finder is not None and finder.twice(payload):
            self._refuse_twice()
        else:
            self._named(found, b"", payload, finder)
        self._payload = bytearray()

    def _begin_gathering(self, body: bytes, chosen: EndpointState | None = None) -> None:
        self._chosen = chosen
        self._found = Skimmed.MORE
        self._payload = bytearray()
        if self._counter is not None:
            self._counter.payload = []
        if self.head.expects_continue and not body:
            self.transport.write(answers.CONTINUE)

    def _gather(self, body: bytes) -> bool:
        """Keep a part of the body, and look on in it; False when it was refused."""
        finder = self._finder
        if finder is None:
            finder = self._finder = ModelSkimmer()
            self._begin_gathering(body)
        part = body if self._phase == SENT else self._cut_or_refuse(body)
        if part is None:
            return False
        self._pending.append(part)
        self._pending_bytes += len(part)
        if self._counter is None:
            self._payload += part
        elif self._counter.payload:
            self._payload += b"".join(self._counter.payload)
            self._counter.payload.clear()
        if self._found is Skimmed.MORE:
            self._found = finder.feed(self._payload, self._phase == SENT)
        return True

    def _refuse_twice(self) -> None:
        self.refuse(Refuse(400, "model_twice", "the body has more than one top-level `model`; send it once"))

    def _named(self, found: str | Skimmed, body: bytes, payload: bytes | bytearray, finder: Finder | None) -> None:
        """Go on with what was found in the body.

        Args:
            body: of it, what is not pending yet.
            payload: the data in which it was found.
            finder: what found it; None: it leads.
        """
        if type(found) is not str:
            self._named_in_query(body, payload)
            return
        endpoint = self.hub.router.find(found) or self._find(found)
        if endpoint is None:
            return
        model = endpoint.route.model
        if model is not None and found != model and found not in endpoint.route.aliases:
            body = self._rewrite(model, body, payload, finder)
        self._decide(endpoint, body)

    def _named_in_query(self, body: bytes, payload: bytes | bytearray = b"") -> None:
        names = in_query(self._forward)
        if not names:
            kind = value_of(self.head.lines, b"content-type") or b""
            self.refuse(nameless(kind, bytes(payload), whole=self._phase == SENT))
            return
        if len(names) > 1:
            self.refuse(Refuse(400, "model_twice", f"the request has more than one `model`; {HOW}"))
            return
        endpoint = self._find(names[0])
        if endpoint is None:
            return
        model = endpoint.route.model
        if model is not None and names[0] != model and names[0] not in endpoint.route.aliases:
            self._forward = with_query(self._forward, model)
        self._decide(endpoint, body)

    def _rewrite(self, model: str, body: bytes, payload: bytes | bytearray, finder: Finder | None) -> bytes:
        """The replica's own name in place of the one that was found; what is not pending of it."""
        if finder is None and self._counter is None and body is payload:
            self.head, body = renamed(self.head, body, model)
            return body
        if not body:
            self._pending.clear()  # another one stands in its place, and it may be large
        if self._counter is None:
            data = respelled(payload, model) if finder is None else replaced(payload, finder, model)
            self.head = longer_by(self.head, len(data) - len(payload))
        else:
            assert finder is not None
            assert isinstance(payload, bytearray)
            payload[finder.start : finder.end] = finder.written(model)
            data = self._counter.reframed(payload, whole=self._phase == SENT)
        if body:
            return data
        self._pending = [data]
        self._pending_bytes = len(data)
        return b""

    def _decide(self, endpoint: EndpointState, body: bytes) -> None:
        raise NotImplementedError

    # --- where the body ends -------------------------------------------------------------------------------------

    def _cut_or_refuse(self, data: bytes) -> bytes | None:
        """The part of `data` that belongs to this body; None when it was refused."""
        try:
            end = self._body_end(data)
        except FramingError as error:
            self._end_early(Refuse(400, "bad_request", f"malformed chunked body: {error}"))
            return None
        if self._counter is not None:  # which does not say before how long it will be; its framing counts too
            self._left -= len(data) if end < 0 else end
            if self._left < 0:
                self._end_early(_TOO_LARGE)
                return None
        if end < 0:
            return data
        self._phase = SENT
        if end == len(data):
            return data
        self._buffer = data[end:]
        return data[:end]

    def _end_early(self, refusal: Refuse) -> None:
        """The rest of the body does not go on: say why, or end the answer that has begun."""
        if self.first_at:
            self._drop_upstream()
            self._cut()
        else:
            self.refuse(refusal)

    def _body_end(self, data: bytes) -> int:
        if self._counter is not None:
            return self._counter.feed(data)
        if len(data) < self._left:
            self._left -= len(data)
            return -1
        end, self._left = self._left, 0
        return end

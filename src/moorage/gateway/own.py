"""Paths that the gateway answers itself: the list of models, its health, its metrics, attribution of one request.

Each process of a gateway answers for all of them: what only the others know they are asked (`siblings`). Not here:
sending (`exchange`). Called by `intake`; reads the hub, changes nothing.
"""

import hmac
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from moorage.decide.serving.routes import EndpointState, Refuse
from moorage.gateway import answers, exposition
from moorage.gateway.fields import value_of
from moorage.gateway.heads import RequestHead
from moorage.gateway.siblings import METRICS, REQUEST, Siblings

if TYPE_CHECKING:
    from moorage.gateway.hub import Hub

_LISTED_MODES = frozenset(("serve", "hold", "asleep", "starting"))
_JSON = "application/json"
_REQUESTS = "/moorage/requests/"
Answer = tuple[int, str, bytes]
"""status, content type, body"""


class OwnPaths:
    """Answers for one gateway.

    Args:
        token: what `/moorage/…` asks for.
    """

    def __init__(self, hub: "Hub", token: str) -> None:
        self._hub = hub
        self._bearer = b"Bearer " + token.encode()
        self.siblings: Siblings | None = None
        """the gateway's other processes, where it may have any"""
        self.process = "1"
        """what this process is called among them"""
        self.accelerated: tuple[str, ...] = ()
        """what of the hot path it uses in a compiled form"""

    def answer(self, head: RequestHead) -> Answer | None:
        """The answer to one of these paths; None: the other processes are to be asked, by `ask`."""
        path = head.line.path
        if head.line.method not in ("GET", "HEAD"):
            return _error(405, "method_not_allowed", f"{path} is read with GET")
        if path == "/livez":
            return 200, "text/plain", b"ok\n"
        if path == "/readyz":
            if self._hub.router.generation is None:
                return _error(503, "not_ready", "no routing table yet")
            return 200, "text/plain", b"ok\n"
        if path == "/metrics":
            return self._metrics(head, self.text()) if self.siblings is None else None
        if path.startswith("/moorage/"):
            return self._attribution(head)
        if self._hub.router.generation is None:  # an empty list would say that there is nothing
            return _error(503, "not_ready", "no routing table yet")
        shown = head.asks.credential if head.asks is not None and head.asks.credential else None
        if shown is not None and self._hub.keys.of(shown) is None:
            return _error(401, "invalid_api_key", "the key is unknown, revoked or expired")
        return self._models(path, shown)

    def _models(self, path: str, shown: bytes | None) -> Answer:
        """Those that who asks may use.

        Args:
            shown: the key that came with the request, if one did.
        """
        router, keys = self._hub.router, self._hub.keys

        def opens(namespace: str, name: str) -> bool:
            return not isinstance(keys.admit(shown, namespace, name), Refuse)

        if path == "/v1/models":
            own = [e for e in router.endpoints() if _is_listed(e) and opens(e.route.namespace, e.route.name)]
            made = [b for b in router.bindings() if opens(b.spec.namespace, b.spec.name)]
            models = [_model(endpoint) for endpoint in own] + [_entry(binding.public_id) for binding in made]
            return _json({"object": "list", "data": sorted(models, key=lambda model: str(model["id"]))})
        name = unquote(path.removeprefix("/v1/models/"))
        endpoint = router.find(name)
        binding = router.bound(name) if endpoint is None else None
        if binding is not None and opens(binding.spec.namespace, binding.spec.name):
            return _json(_entry(binding.public_id))
        if endpoint is None or not _is_listed(endpoint) or not opens(endpoint.route.namespace, endpoint.route.name):
            unknown = router.unknown(name)
            return _error(unknown.status, unknown.code, unknown.message)
        return _json(_model(endpoint))

    async def ask(self, head: RequestHead, send: Callable[[int, str, bytes], None]) -> None:
        """Ask the other processes as well, and send the answer."""
        assert self.siblings is not None
        if head.line.path == "/metrics":
            texts, silent = await self.siblings.ask(METRICS)
            live = [self.text(), *(text.decode() for text in texts)]
            told = self._metrics(head, exposition.joined(live, self.siblings.left(), silent))
        else:
            wanted = quote(_request_id(head), safe="")
            found, silent = await self.siblings.ask(REQUEST + wanted)
            record = next(filter(None, found), b"")
            told = (200, _JSON, record) if record else _unknown_request(silent)
        send(*told)

    def told(self, question: str) -> bytes:
        """The answer to a question of another process; nothing where this one has none."""
        if question == METRICS:
            return self.text().encode()
        if question.startswith(REQUEST):
            return self._record(unquote(question.removeprefix(REQUEST)).encode()) or b""
        return b""

    def text(self) -> str:
        """The metrics of this process."""
        return exposition.prometheus(self._seen())

    def _metrics(self, head: RequestHead, text: str) -> Answer:
        accept = value_of(head.lines, b"accept") or b""
        if b"application/openmetrics-text" in accept:
            return 200, exposition.OPEN_CONTENT_TYPE, exposition.openmetrics(text).encode()
        return 200, exposition.CONTENT_TYPE, text.encode()

    def _seen(self) -> exposition.Seen:
        hub = self._hub
        generation = hub.router.generation
        return exposition.Seen(
            generation=generation.number if generation else 0,
            clients=len(hub.clients),
            control_up=hub.router.control_lost_at is None,
            unrouted=hub.counts.unrouted,
            log_lost=hub.counts.access.lost if hub.counts.access is not None else None,
            endpoints=list(hub.router.endpoints()),
            counted=hub.counts.named(),
            now=hub.time(),
            process=self.process,
            resident_bytes=_resident_bytes(),
            accelerated=self.accelerated,
        )

    def _attribution(self, head: RequestHead) -> Answer | None:
        if not hmac.compare_digest(value_of(head.lines, b"authorization") or b"", self._bearer):
            return _error(401, "unauthorized", "this path needs the gateway's token")
        if not head.line.path.startswith(_REQUESTS):
            return _error(404, "not_found", f"nothing is at {head.line.path}")
        record = self._record(_request_id(head).encode())
        if record is not None:
            return 200, _JSON, record
        return None if self.siblings is not None else _unknown_request(0)

    def _record(self, request_id: bytes) -> bytes | None:
        hub = self._hub
        record = hub.counts.find(request_id, hub.clients, hub.router.generation)
        return None if record is None else record.to_wire().model_dump_json(exclude_none=True).encode()


def _request_id(head: RequestHead) -> str:
    return unquote(head.line.path.removeprefix(_REQUESTS))


def _unknown_request(silent: int) -> Answer:
    """404 says that nobody knows it: while a process says nothing, that is not known."""
    if silent:
        return _error(503, "not_known", f"{silent} of this gateway's processes did not answer, and no other knows it")
    return _error(404, "not_found", "no such request among the last ones of this gateway")


def _resident_bytes() -> int:
    """Memory of this process; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _is_listed(endpoint: EndpointState) -> bool:
    return endpoint.listed and endpoint.route.mode in _LISTED_MODES


def _model(endpoint: EndpointState) -> dict[str, Any]:
    model = _entry(endpoint.public_id)
    if endpoint.route.model:
        model["root"] = endpoint.route.model
    return model


def _entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "moorage"}


def _json(value: dict[str, Any]) -> Answer:
    return 200, _JSON, json.dumps(value).encode()


def _error(status: int, code: str, message: str) -> Answer:
    return status, _JSON, answers.error_body(status, code, message)

"""Paths that the gateway answers itself: the list of models, its health, its metrics, attribution of one request.

Not here: sending (`exchange`). Called by `frontend`; reads the hub, changes nothing.
"""

import hmac
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from moorage.decide.serving.routes import EndpointState
from moorage.gateway import answers, exposition
from moorage.gateway.fields import value_of
from moorage.gateway.heads import RequestHead

if TYPE_CHECKING:
    from moorage.gateway.hub import Hub

_LISTED_MODES = frozenset(("serve", "hold", "asleep", "starting"))
_JSON = "application/json"
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

    def answer(self, head: RequestHead) -> Answer:
        """The answer to one of these paths."""
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
            return self._metrics(value_of(head.lines, b"accept") or b"")
        if path.startswith("/moorage/"):
            return self._attribution(head)
        return self._models(path)

    def _models(self, path: str) -> Answer:
        if path == "/v1/models":
            router = self._hub.router
            models = [_model(endpoint) for endpoint in router.endpoints() if _is_listed(endpoint)]
            models += [_entry(binding.public_id) for binding in router.bindings()]
            return _json({"object": "list", "data": sorted(models, key=lambda model: str(model["id"]))})
        name = path.removeprefix("/v1/models/")
        endpoint = self._hub.router.find(name)
        binding = self._hub.router.bound(name) if endpoint is None else None
        if binding is not None:
            return _json(_entry(binding.public_id))
        if endpoint is None or not _is_listed(endpoint):
            return _error(404, "model_not_found", f"The model `{name}` does not exist or you do not have access to it.")
        return _json(_model(endpoint))

    def _metrics(self, accept: bytes) -> Answer:
        text = exposition.prometheus(self._seen())
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
        )

    def _attribution(self, head: RequestHead) -> Answer:
        if not hmac.compare_digest(value_of(head.lines, b"authorization") or b"", self._bearer):
            return _error(401, "unauthorized", "this path needs the gateway's token")
        prefix = "/moorage/requests/"
        wanted = unquote(head.line.path.removeprefix(prefix)).encode()
        record = (
            self._hub.counts.find(wanted, self._hub.clients, self._hub.router.generation)
            if head.line.path.startswith(prefix)
            else None
        )
        if record is None:
            return _error(404, "not_found", "no such request among the last ones of this gateway")
        return 200, _JSON, record.to_wire().model_dump_json(exclude_none=True).encode()


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

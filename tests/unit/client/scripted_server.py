"""A control plane that answers by script, and a clock that moves only when somebody waits."""

import httpx

from moorage.client import Client
from moorage.client.transports import BlockingTransport

URL = "http://control.test"


class FakeTime:
    """Seconds that pass by sleeping, and by answers that take their time."""

    def __init__(self):
        self.now = 1000.0
        self.slept = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def client_of(handler, clock=None, **given):
    """A client whose requests are answered by `handler(request)`."""
    clock = clock or FakeTime()
    transport = BlockingTransport(URL, {}, httpx.MockTransport(handler), monotonic=clock.monotonic, sleep=clock.sleep)
    return Client(URL, transport=transport, **given)


def deployment(phase, **fields):
    """A deployment as the API shows it."""
    ready = int(phase in ("ACTIVE", "UPDATING"))
    return {
        "kind": "Deployment",
        "id": "dep-1",
        "name": "gemma",
        "namespace": "default",
        "phase": phase,
        "spec": {"replicas": {"min": 0, "max": 1, "initial": 1}},
        "ready_replicas": ready,
        "serving": ready > 0,
        "desired_replicas": 0 if phase == "SCALED_TO_ZERO" else 1,
        "promotion_in_progress": False,
        "active_revision": "rev-2",
        "candidate_revision": None,
        "reason": {"code": "deploy.created", "message": "was created"},
        **fields,
    }


class Script:
    """Answers reads of one deployment with the given looks in turn; the last one stays.

    A look is a dict (200), a status, an exception to raise, or a function of the request.
    """

    def __init__(self, *looks, revision=None):
        self.looks = list(looks)
        self.taken = 0
        self.revision = revision or {"id": "rev-2", "number": 2, "state": "provisioning"}

    def __call__(self, request):
        path = request.url.path
        if request.method == "PUT":
            answer = {"deployment": "dep-1", "revision": "rev-2", "operation": "op-2", "changed": True}
            return httpx.Response(200, json=answer)
        if path.endswith("/revisions"):
            return httpx.Response(200, json={"items": [self.revision], "next": None})
        if "/operations/" in path:
            return httpx.Response(200, json={"id": "op-2", "operation": "apply", "state": "running"})
        look = self.looks[min(self.taken, len(self.looks) - 1)]
        self.taken += 1
        return self._answer(look, request)

    def _answer(self, look, request):
        if callable(look):
            look = look(request)
        if isinstance(look, httpx.Response):
            return look
        if isinstance(look, Exception):
            raise look
        if isinstance(look, int):
            return httpx.Response(look, json={"code": "internal", "message": "trouble", "retryable": look >= 500})
        return httpx.Response(200, json=look)

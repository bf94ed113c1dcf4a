"""Two revisions that are compared, in a real store, and small real HTTP servers behind their replicas.

The rows are written as the serving loop would leave them; the servers are as good, slow, failing or wrong as a test
says.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from moorage.clock import SystemClock
from moorage.decide.serving import synthetic
from moorage.decide.serving.guard import GuardDecision, Policy, comparable, judge
from moorage.domain.changes import Change, Create, Step, Update
from moorage.domain.nouns import Deployment, Noun, Replica, Revision
from moorage.domain.reasons import reason
from moorage.domain.states import ReplicaStatus, RevisionState
from moorage.store import open_store
from moorage.store.store import SqlStore

ACTIVE, CANDIDATE, DEPLOYMENT = "rev-active", "rev-candidate", "dep-compared"
EVIDENCE = f"{CANDIDATE}/0"


@dataclass
class Model:
    """How a server behaves.

    Attributes:
        lists: its models.
        delay_s: before the first token.
        fails: of each ten requests, which ones fail.
        streams: whether it can stream.
        usage: whether it takes `stream_options`.
        knows: the only model that it answers for; None: any.
        hangs: never answers.
    """

    lists: tuple[str, ...] = ("gemma",)
    delay_s: float = 0.0
    fails: tuple[int, ...] = ()
    streams: bool = True
    usage: bool = True
    knows: str | None = None
    hangs: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    most_at_once: int = 0
    now: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)


class Server:
    """One model server on a free port, as far as a sender of requests sees it."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.address = ""

    async def __aenter__(self) -> "Server":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.model.released.set()
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            size = next(
                (int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0
            )
            body = json.loads(await reader.readexactly(size)) if size else {}
            if head.startswith("GET"):
                listed = {"data": [{"id": name} for name in self.model.lists]}
                self._answer(writer, 200, json.dumps(listed))
            else:
                await self._complete(writer, body)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the sender went away
        finally:
            writer.close()

    async def _complete(self, writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
        model = self.model
        number = len(model.bodies)
        model.bodies.append(body)
        model.now += 1
        model.most_at_once = max(model.most_at_once, model.now)
        try:
            if model.hangs:
                await model.released.wait()
            if number % 10 in model.fails:
                self._answer(writer, 500, '{"error": "out of luck"}')
            elif model.knows is not None and body.get("model") != model.knows:
                self._answer(writer, 404, '{"error": "no such model"}')
            elif body.get("stream") and not model.streams:
                self._answer(writer, 400, '{"error": "stream is not supported"}')
            elif body.get("stream_options") and not model.usage:
                self._answer(writer, 422, '{"error": "unknown field"}')
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(model.released.wait(), model.delay_s)
                await self._tokens(writer, bool(body.get("stream")), bool(body.get("stream_options")))
        finally:
            model.now -= 1

    async def _tokens(self, writer: asyncio.StreamWriter, stream: bool, usage: bool) -> None:
        if not stream:
            self._answer(writer, 200, '{"choices": [{"text": "one two"}]}')
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for word in ("one", "two", "three"):
            writer.write(b"data: " + json.dumps({"choices": [{"text": word}]}).encode() + b"\n\n")
            await writer.drain()
        if usage:
            writer.write(b'data: {"choices": [], "usage": {"completion_tokens": 30}}\n\n')
        writer.write(b"data: [DONE]\n\n")

    @staticmethod
    def _answer(writer: asyncio.StreamWriter, status: int, text: str) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n{text}".encode())


class Compared:
    """The store with the two revisions in it."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.clock = SystemClock()
        self.http = httpx.AsyncClient(trust_env=False, verify=False, limits=httpx.Limits(max_keepalive_connections=0))

    @classmethod
    async def open(cls, folder: Path) -> "Compared":
        return cls(await open_store(f"sqlite:///{folder}/m.db", SystemClock()))

    async def close(self) -> None:
        await self.http.aclose()
        await self.store.close()

    async def compare(
        self,
        active: str,
        candidate: str,
        *,
        guard: Mapping[str, Any] | None = None,
        strategy: str = "none",
        model: Mapping[str, Any] | None = None,
        gateway: Mapping[str, Any] | None = None,
    ) -> None:
        """Write the rows of a candidate that is evaluated; `active` and `candidate` are the replicas' addresses."""
        rollout = {"candidate": CANDIDATE, "baseline": ACTIVE, "strategy": strategy, "evidence_id": EVIDENCE}
        spec = {"rollout": {"strategy": strategy, "guard": dict(guard or {})}, "gateway": dict(gateway or {})}
        deployment = Deployment(
            uid=DEPLOYMENT,
            name="compared",
            spec=spec,
            active_revision=ACTIVE,
            candidate_revision=CANDIDATE,
            rollout=rollout,
        )
        await self._create(deployment, "deploy.created")
        part = {"model": dict(model or {"id": "gemma"}), "runtime": {}}
        for number, uid in enumerate((ACTIVE, CANDIDATE), start=1):
            row = Revision(uid=uid, name=f"compared-{number}", deployment=DEPLOYMENT, number=number, spec=part)
            await self._create(row, "revision.created", digest="d", number=number)
        await self._step(Revision, ACTIVE, "provision", RevisionState.PROVISIONING, "promoted", RevisionState.ACTIVE)
        await self._step(
            Revision, CANDIDATE, "provision", RevisionState.PROVISIONING, "replica_ready", RevisionState.EVALUATING
        )
        for uid, address in ((ACTIVE, active), (CANDIDATE, candidate)):
            replica = Replica(
                uid=f"rep-{uid}", deployment=DEPLOYMENT, revision=uid, run=f"run-{uid}", address=address, routed=True
            )
            await self._create(replica, "replica.created")
            await self._step(Replica, replica.uid, "ready", ReplicaStatus.RUNNING)

    async def end(self) -> None:
        """The comparison is over."""
        row = await self.store.get(Deployment, DEPLOYMENT)
        assert row is not None
        update = Update("Deployment", DEPLOYMENT, row.version, fields={"rollout": None, "candidate_revision": None})
        await self.store.commit(Change((update,), "test"))

    async def revision(self, uid: str) -> Revision:
        row = await self.store.get(Revision, uid)
        assert row is not None
        return row

    async def judged(self) -> GuardDecision:
        """The guard's word on what is in the store."""
        deployment = await self.store.get(Deployment, DEPLOYMENT)
        assert deployment is not None
        active, candidate = await self.revision(ACTIVE), await self.revision(CANDIDATE)
        rollout = dict(deployment.spec["rollout"])
        policy = Policy.of(rollout["guard"])
        facts = synthetic.facts_of(deployment, active, candidate, candidate_ready=True)
        seen = comparable(active.evidence, candidate.evidence, rollout["strategy"], policy.minimum_requests)
        return judge(policy, *seen, facts)

    async def _create(self, row: Noun, code: str, **params: Any) -> None:
        await self.store.commit(Change((Create(row, reason(code, **params)),), "test"))

    async def _step(self, kind: type[Noun], uid: str, *pairs: str) -> None:
        row = await self.store.get(kind, uid)
        assert row is not None
        why = reason("replica.ready" if kind is Replica else "revision.evaluating")
        steps = tuple(Step(to, trigger, why) for trigger, to in zip(pairs[::2], pairs[1::2], strict=True))
        await self.store.commit(Change((Update(kind.kind, uid, row.version, steps),), "test"))

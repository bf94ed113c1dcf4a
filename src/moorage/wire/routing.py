"""Messages between the control plane and gateways, under `/api/v1/routing/…`.

A gateway long-polls `GET /routing/table?after=GENERATION&access=NUMBER&wait_s=25` (204 when nothing changed), keeps
the table on disk, and posts `GatewayReport` to `/routing/report`: at once when it applied a generation or when a
request waits for something (demand, a slice of a limit), else every second while anything is in flight, else every
`lease_s / 3`.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

PROTOCOL = 1


class Message(BaseModel):
    """Unknown fields are ignored, so that a newer peer can say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Target(Message):
    """One routable replica."""

    replica: str
    worker: str = ""
    machine: str = ""
    revision: str
    host: str
    port: int
    weight: int = 100


class RevisionRoute(Message):
    """One revision of an endpoint that may get requests, beside its targets.

    `by` tells how requests come to a candidate:
        share    by its share of the traffic (the active revision has the rest; a candidate without one has share 0).
        header   only requests that name it in `X-Moorage-Revision` (its number, name or uid).
        mirror   a copy of a request that the active revision answers; the copy's answer is thrown away.
    A candidate that cannot be reached, or has no free target, is passed over before the first byte: the active one
    answers. A request that names a revision is answered by no other.
    """

    revision: str
    number: int
    name: str = ""
    role: Literal["active", "candidate"] = "active"
    by: Literal["share", "header", "mirror"] = "share"
    share: float = 100.0
    """per cent of the requests (of `mirror`: that are copied)"""


class GatewayLimits(Message):
    """`gateway:` of the spec, in seconds and counts."""

    max_in_flight: int = 16
    max_queue: int = 100
    queue_timeout_s: float = 60.0
    drain_s: float = 60.0
    connect_timeout_s: float = 2.0
    first_byte_timeout_s: float = 600.0
    affinity: Literal["none", "session", "prefix"] = "none"
    retry: Literal["never", "idempotent", "always"] = "idempotent"
    """which requests are sent once more when a kept connection turns out closed before a byte of an answer came"""
    hold_comments_s: float | None = None
    """a held request that streams gets its head and an SSE comment after so long, and one each time it passes again"""


class RateLimits(Message):
    """At most so much; None: unlimited. Of requests and tokens in any 60 seconds, of requests in flight at once."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    in_flight: int | None = None


class EndpointRoute(Message):
    """One endpoint as the gateway must treat it.

    `mode`:
        serve    targets are ready: pick one; when all are full, queue.
        hold     a pausing handshake runs: hold new requests in the queue, answer nothing new, and report.
        asleep   at zero: hold the request and report demand; the control plane wakes it.
        starting no replica is ready yet (first start, wake, replacement): hold in the queue.
        failed   503 with `error` (the deployment failed for good).
        stopped  503 with `error` (stopped by a person).
    """

    namespace: str = "default"
    name: str
    deployment: str
    mode: Literal["serve", "hold", "asleep", "starting", "failed", "stopped"]
    model: str | None = None
    """what the upstream lists in /v1/models; another name in a body's `model` is written as this on its way"""
    aliases: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    revisions: tuple[RevisionRoute, ...] = ()
    """of the targets' revisions; empty: one revision, all targets alike"""
    evidence_id: str | None = None
    """while set, what clients meet is counted by revision; another id begins at zero"""
    limits: GatewayLimits = GatewayLimits()
    error: str | None = None
    error_code: str | None = None
    wake_failures: int = 0
    """rises by one at each failed wake: requests then held are answered 503 with `error`"""
    retry_after_s: float | None = None


class BoundRoute(Message):
    """One deployment behind an endpoint that people made, by its name in the same namespace."""

    deployment: str
    weight: int = 100


class Binding(Message):
    """An endpoint that people made (`kind: Endpoint`): a name, and the deployments that answer for it."""

    uid: str
    namespace: str = "default"
    name: str
    routes: tuple[BoundRoute, ...] = ()
    limits: RateLimits = RateLimits()
    """of each tenant key here, unless the key has limits of its own"""


class KeyRule(Message):
    """A client's key. The gateway knows only its digest."""

    uid: str
    name: str
    namespace: str
    digest: str
    """SHA-256 of the key's text, hexadecimal"""
    endpoints: tuple[str, ...] = ()
    """names in its namespace that it opens; empty: all"""
    expires_at: float | None = None
    limits: RateLimits = RateLimits()


class NamespaceRule(Message):
    """What holds for a namespace's endpoints. One that is not listed asks for no key and has no limit."""

    namespace: str
    keys: Literal["optional", "required"] = "optional"
    limits: RateLimits = RateLimits()
    """its quota, over all of its requests"""


class Access(Message):
    """Who may ask, and how much. Another number, lower or higher, replaces what was there."""

    number: int
    keys: tuple[KeyRule, ...] = ()
    namespaces: tuple[NamespaceRule, ...] = ()


class RoutingTable(Message):
    """All endpoints, with the generation that orders them. Generation = (incarnation, number); lower is ignored."""

    protocol: int = PROTOCOL
    incarnation: str
    number: int
    lease_s: float = 30.0
    endpoints: tuple[EndpointRoute, ...] = ()
    bindings: tuple[Binding, ...] = ()
    access: Access | None = None
    """None: the one whose number the gateway said is the newest"""


class SliceWant(Message):
    """What a gateway has and needs of one limit.

    It is told of in every report while anything of it is in use: what a report leaves out, the gateway gave back.

    `subject`: `namespace/NAME`, `key/UID`, or `key/UID@endpoint/UID` (a binding's limit; `key/-@…` without a key).
    `resource`: a field of `RateLimits`.
    """

    subject: str
    resource: Literal["requests_per_minute", "tokens_per_minute", "in_flight"]
    share: int = 0
    """what it keeps to since the last answer that it took"""
    used: int = 0
    """in the last 60 seconds (in flight: now)"""
    wanted: int = 0
    """refused or waiting beyond its share since the last report"""


class Slice(Message):
    """A gateway's share of a limit: it admits no more than this, until it is told otherwise or `hold_s` passed."""

    subject: str
    resource: Literal["requests_per_minute", "tokens_per_minute", "in_flight"]
    limit: int
    """of all gateways together"""
    share: int


class Usage(Message):
    """What was used of an endpoint with a key on one day (UTC) through one process of a gateway, since it started.

    Sums that only grow: whoever keeps them takes the larger ones, so that a repeated or late report changes nothing.
    Fields of the sums: `moorage.domain.usage.UsageSums`.
    """

    key: str
    """uid"""
    namespace: str = "default"
    endpoint: str
    """as the client named it; empty: none that there is and that the key opens"""
    day: str
    """2026-01-31"""
    requests: int = Field(ge=0)
    refused: int = Field(default=0, ge=0)
    failed: int = Field(default=0, ge=0)
    client_gone: int = Field(default=0, ge=0)
    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    counted_tokens: int = Field(default=0, ge=0)
    gateway: str | None = None
    incarnation: str | None = None
    """of a process that ended before it could report; None: of the one that reports"""


class PutAside(Message):
    """A replica in the table to which a gateway process sends nothing but single tries now, or would if it could."""

    replica: str
    why: str
    """unreachable (no connect), bad_answers (in a row), another_model (at its address), or kept_bad: bad answers
    in a row, but in use, since half of its revision's replicas stay"""
    tried_in_s: float | None = None
    """until one request may try it, 0 when the next one does; None: it is in use, or a newer table has to name it"""
    bad: int = Field(default=0, ge=0)
    """bad answers in a row, as this process counts them"""
    answered: str | None = None
    """the last of them: a status, reset (no answer), timeout (none in time) or cut (half of one)"""
    of: int = Field(default=0, ge=0)
    """replicas of its revision in the table; 0: not told"""


class EndpointActivity(Message):
    """What a gateway sees at one endpoint now."""

    namespace: str = "default"
    name: str
    in_flight: int = 0
    held: int = 0
    """requests waiting in the queue (for capacity, a hold or a wake)"""
    requests: int = 0
    """completed since the gateway started"""
    replicas: dict[str, int] = Field(default_factory=dict)
    """requests in flight per replica uid, replicas that were withdrawn but still stream included"""
    idle_s: float | None = None
    """seconds since the end of its last request; None when it had none"""
    oldest_s: dict[str, float] = Field(default_factory=dict)
    """age of the oldest request in flight per replica uid, of replicas that were withdrawn"""
    aside: tuple[PutAside, ...] = ()


class Evidence(Message):
    """What this gateway saw of one revision since the comparison `evidence_id` began: sums, so the last one wins.

    Histograms: bucket index (`moorage.domain.histogram`) -> count. Fields as `moorage.decide.serving.evidence.Seen`.
    """

    evidence_id: str
    deployment: str
    revision: str
    requests: int = Field(default=0, ge=0)
    errors: int = Field(default=0, ge=0)
    client_gone: int = Field(default=0, ge=0)
    ttft_us: dict[int, int] = Field(default_factory=dict)
    latency_us: dict[int, int] = Field(default_factory=dict)
    throughput_milli: dict[int, int] = Field(default_factory=dict)


class GatewayReport(Message):
    """Confirms a generation and renews the gateway's lease."""

    protocol: int = PROTOCOL
    gateway: str
    """id kept across restarts of that gateway"""
    incarnation: str
    """drawn at each start of the gateway process"""
    table_incarnation: str | None = None
    table_number: int = 0
    endpoints: tuple[EndpointActivity, ...] = ()
    """only endpoints that had traffic since this gateway started"""
    evidence: tuple[Evidence, ...] = ()
    """of the comparisons under way, those that changed since the last report that was answered"""
    address: str | None = None
    """`host:port` or a URL at which `/moorage/…` is answered for all processes of this gateway"""
    url: str | None = None
    """at which clients reach this gateway"""
    wants: tuple[SliceWant, ...] = ()
    """of every limit that it has a share of or needs one of"""
    sequence: int = 0
    """rises by one with each report of this incarnation; one that comes after a later one moves no slice"""
    slices_epoch: str = ""
    """of the last answer whose slices it took"""
    usage: tuple[Usage, ...] = ()
    """what grew since it was acknowledged; the rest follows in the next reports where it is much"""
    leaving: bool = False
    """its last report: nothing is in flight, and it admits nothing more"""
    processes: tuple[str, ...] = ()
    """ids of all processes of this gateway that run, this one's too, as its master knows; empty: it does not say"""


class GatewayReportAnswer(Message):
    """What the server says back."""

    lease_s: float = 30.0
    number: int = 0
    """newest generation, so that a gateway whose poll is stuck notices"""
    slices: tuple[Slice, ...] = ()
    """its share of every limit that the report spoke of"""
    slices_epoch: str = ""
    """which ledger answers: another one after each restart; empty: none does"""
    usage_sequence: int | None = None
    """a report of this incarnation whose usage is on disk, this one or an earlier one; None: none is known to be"""
    hold_s: float = 600.0
    """how long the ledger counts the shares of a gateway that is silent; it keeps to them 30 seconds less"""


class RequestRecord(Message):
    """Attribution of one request, kept by the gateway in a bounded ring and asked for by id."""

    request_id: str
    endpoint: str
    generation: int = 0
    revision: str | None = None
    replica: str | None = None
    worker: str | None = None
    machine: str | None = None
    queued_ms: float | None = None
    ttft_ms: float | None = None
    total_ms: float | None = None
    status: int | None = None
    bytes: int = Field(default=0, ge=0)
    key: str | None = None
    """name of the key that the client showed"""
    deployment: str | None = None
    tokens: dict[str, int] | None = None
    """{prompt, completion} as the answer told them; {counted} the events with content of a stream that told none"""
    retried: int | None = None
    """how often it was sent once more, because a kept connection turned out closed"""
    outcome: str | None = None
    """ok, refused, cut (the replica died in the middle), client_gone or upstream_error; of one that has not ended:
    held (it waits) or in_flight"""
    error: str | None = None
    """code of the error that the gateway answered in place of a model server"""
    model: str | None = None
    """the name that was asked for, where no endpoint goes by it; at most 200 characters"""

"""Parts that deployments and runs share: what is started, what it needs, and where it may go.

`ServerRuntime` (deployments) always has readiness and liveness; in `JobRuntime` (runs) both are optional.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from moorage.domain import ids
from moorage.wire.fields import Argv, AtLeastOne, Count, Cpu, Duration, Name, Part, Port, Size, TextMap, checked

Signal = Literal["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGKILL"]


def rooted(path: str) -> str:
    """`path` if it begins with a slash, else ValueError."""
    if not path.startswith("/"):
        raise ValueError(f"a path begins with /, as in /{path}")
    return path


def whole(path: str) -> str:
    """`path` if it is absolute, names one place, and is not the root, else ValueError."""
    normal = posixpath.normpath(rooted(path))
    if normal == "/" or ".." in path.split("/") or "\0" in path:
        raise ValueError(f"{path!r} does not name a place below / that something can be shown at")
    return normal


def _secret_reference(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the name of a secret is text, not {value!r}; put it in quotes")
    name, slash, key = value.partition("/")
    ids.check_name(name)
    if slash and not ids.SECRET_KEY.fullmatch(key):
        raise ValueError(f"{key!r} cannot be a key of a secret; write NAME, or NAME/KEY for one key of several")
    return value


SecretRef = Annotated[
    str,
    BeforeValidator(checked(_secret_reference, "secret")),
    WithJsonSchema({"type": "string", "description": "NAME, or NAME/KEY where the secret has several keys"}),
]
"""A secret of the namespace; without a key its `value`, or the only key that it has."""


def numbers_in(value: Any) -> Iterator[float]:
    """Every number inside plain values."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, int | float):
            yield one


class ConfigFile(Part):
    """A file written for the process before it starts."""

    path: str
    content: str

    _path = field_validator("path")(whole)


class Mount(Part):
    """A directory or file of the machine shown to the process."""

    source: str
    target: str
    read_only: bool = False

    _target = field_validator("target")(whole)


class ReadyRequest(Part):
    """A real request that must succeed before the server counts as ready."""

    path: str
    body: dict[str, Any] = Field(default_factory=dict)

    _path = field_validator("path")(rooted)

    @field_validator("body")
    @classmethod
    def _can_be_stored(cls, value: dict[str, Any]) -> dict[str, Any]:
        for number in numbers_in(value):
            if not (-(2**63) <= number < 2**63):  # nan is in no range
                raise ValueError("it holds a number that cannot be stored: use those of 64 bits, and finite ones")
        return value


class Ready(Part):
    """When a server counts as ready."""

    path: str = "/health"
    timeout: Duration = 1800.0
    stall: Duration = 300.0
    interval: Duration = 0.1
    warmup: Duration = 0.0
    request: ReadyRequest | None = None

    _path = field_validator("path")(rooted)

    @field_validator("interval")
    @classmethod
    def _some_interval(cls, seconds: float) -> float:
        if seconds < 0.01:
            raise ValueError("asking more often than every 10ms only slows the server's start down")
        return seconds


class Live(Part):
    """When a server that was ready counts as sick."""

    path: str = "/health"
    interval: Duration = 5.0
    failures: AtLeastOne = 3
    fail_after: Duration = 300.0

    _path = field_validator("path")(rooted)

    @field_validator("interval")
    @classmethod
    def _some_interval(cls, seconds: float) -> float:
        if seconds < 0.1:
            raise ValueError("probing more often than every 100ms takes time from requests")
        return seconds


class Stop(Part):
    """How a process is asked to end, and how long it may take."""

    signal: Signal = "SIGTERM"
    grace: Duration = 20.0


class Runtime(Part):
    """What is started and how."""

    runner: Literal["process", "podman", "docker"] = "process"
    command: Argv = Field(default_factory=list)
    image: str | None = None
    pull: Literal["missing", "always", "never"] = "missing"
    registry_secret: Name | None = None
    env: TextMap = Field(default_factory=dict)
    secrets: dict[str, SecretRef] = Field(default_factory=dict)
    configs: list[ConfigFile] = Field(default_factory=list)
    workdir: str | None = None
    mounts: list[Mount] = Field(default_factory=list)
    stop: Stop = Field(default_factory=Stop)

    @field_validator("env", "secrets")
    @classmethod
    def _variable_names(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            if not key or "=" in key or "\0" in key or any(c.isspace() for c in key):
                raise ValueError(
                    f"{key!r} cannot be the name of an environment variable: it needs a name without '=', blanks or NUL"
                )
            if "\0" in text:
                raise ValueError(f"the value of {key} has a NUL in it, which no variable can hold")
        return value

    @field_validator("command")
    @classmethod
    def _names_a_program(cls, value: list[str]) -> list[str]:
        if value and not value[0].strip():
            raise ValueError("its first word is empty, and names no program: [python3, -m, server]")
        if any("\0" in word for word in value):
            raise ValueError("an argument has a NUL in it, which no program can be given")
        return value

    @model_validator(mode="after")
    def _something_to_start(self) -> "Runtime":
        if self.runner == "process" and self.image is not None:
            raise ValueError("the process runner starts a command on the machine; for an image use runner: podman")
        if self.runner == "process" and not self.command:
            raise ValueError("command is missing: the process runner needs the arguments of the program to start")
        if self.runner != "process" and self.image is None:
            raise ValueError(f"image is missing: runner {self.runner} needs one")
        both = sorted(self.env.keys() & self.secrets.keys())
        if both:
            raise ValueError(f"{', '.join(both)} is set in env and in secrets; keep one")
        return self


class ServerRuntime(Runtime):
    """A deployment's runtime: a server, so it has readiness and liveness."""

    ready: Ready = Field(default_factory=Ready)
    live: Live = Field(default_factory=Live)


class JobRuntime(Runtime):
    """A run's runtime: readiness and liveness only where asked for."""

    ready: Ready | None = None
    live: Live | None = None


def _or_a_number(schema: dict[str, Any]) -> None:
    """`gpus: 2` in the published schema."""
    whole = dict(schema)
    schema.clear()
    schema["anyOf"] = [{"type": "integer", "minimum": 0}, whole]


class Gpus(Part):
    """GPUs on one machine. `gpus: 2` is short for `gpus: {count: 2}`; `vendor: null` means any."""

    count: Count = 1
    vendor: str | None = None
    models: list[str] = Field(default_factory=list)
    memory: Size = 0
    healthy_only: bool = False

    model_config = ConfigDict(json_schema_extra=_or_a_number)

    @model_validator(mode="before")
    @classmethod
    def _count_alone(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"count": value}
        return value


class Resources(Part):
    """What one worker needs on its machine. `memory: 0` sets nothing aside."""

    cpu: Cpu = 0.1
    memory: Size = 0
    gpus: Gpus = Field(default_factory=lambda: Gpus(count=0))


class Topology(Part):
    """How the machines of one run must lie to each other."""

    keep: Literal["machine", "rack"] | None = None
    max_machines: AtLeastOne | None = None
    spread: Literal["rack"] | None = None
    fabric: str | None = None
    min_gbps: float | None = Field(default=None, ge=0)
    patience: Duration = 600.0
    required: bool = False


class Placement(Part):
    """Which machines may be used."""

    machines: list[str] = Field(default_factory=list)
    labels: TextMap = Field(default_factory=dict)
    topology: Topology | None = None
    spread: Literal["machine"] | None = None


class Expose(Part):
    """A port of the worker that others may reach."""

    port: Port
    protocol: Literal["http", "tcp", "udp"] = "http"
    external: bool = False

    @model_validator(mode="after")
    def _what_can_be_relayed(self) -> "Expose":
        if self.external and self.protocol == "udp":
            raise ValueError("external ports pass connections on, and udp has none; expose it without `external`")
        return self


def each_once(exposed: Sequence[Expose]) -> Sequence[Expose]:
    """The list if no port is in it twice, else ValueError."""
    ports = [(e.port, e.protocol == "udp") for e in exposed]
    twice = sorted({port for port, _ in ports if ports.count((port, False)) > 1 or ports.count((port, True)) > 1})
    if twice:
        raise ValueError(f"port {twice[0]} is exposed twice")
    return exposed


class DriveUse(Part):
    """A drive shown to the worker; `place`: a copy on the worker's machine."""

    name: Name
    target: str
    place: bool = False
    read_only: bool = False

    _target = field_validator("target")(whole)


class Outbound(Part):
    """Where the worker may connect to."""

    allow: list[str] = Field(default_factory=list)

"""What one model is: `ModelSpec`, built in Python, or from a mapping shaped like a Deployment.

A spec says what a person wants; nothing of it is resolved here but names. Pure, apart from reading the mapping.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from moorage.domain.errors import InvalidSpec
from moorage.runners.library.settings import RestartOn, signal_number
from moorage.runners.port import MountIntent, Pull, RegistryAuth

if TYPE_CHECKING:
    from moorage.wire.deployment import Deployment

RunnerKind = Literal["process", "podman", "docker"]
RUNNERS = ("process", "podman", "docker")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model server.

    Args:
        command: its argv; `{port}`, `{host}`, `{model}`, `{name}` and `{gpus}` are filled in. May be empty for a
            container: the image's own.
        runner: what executes it.
        image, pull, registry: for containers; when to ask the registry and how to log in there.
        env: set for the server, values filled in like the command. A process also inherits this program's environment.
        inherit_env: False: a process gets `env` and nothing else.
        workdir: where it runs; a process runs where this program does unless told otherwise.
        source: the model's files; `{model}` in the command, else `model`.
        model, aliases: ids that its `/v1/models` must list before it counts as ready.
        gpus: indices of this machine's GPUs that it may use; empty: said nothing about.
        mounts: directories shown in a container.
        memory_bytes, cpu_milli: limits of a container; 0: none.
        port: a fixed one instead of one of the pool.
        ready_path: polled until it is healthy; None: it is running as soon as it executes (no HTTP server).
        ready_request: a request that must work besides: `{"path": …, "body": …}`.
        ready_timeout, warmup_delay, restart_limit, restart_delay, restart_on: for this model instead of the runner's.
        stop_signal, stop_timeout: how it is asked to end, and the seconds until it is killed.
    """

    command: Sequence[str] = ()
    runner: RunnerKind = "process"
    image: str | None = None
    pull: Pull = "missing"
    registry: RegistryAuth | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    inherit_env: bool = True
    workdir: str | None = None
    source: str | None = None
    model: str | None = None
    aliases: Sequence[str] = ()
    gpus: Sequence[int] = ()
    mounts: Sequence[MountIntent] = ()
    memory_bytes: int = 0
    cpu_milli: int = 0
    port: int | None = None
    ready_path: str | None = "/health"
    ready_request: Mapping[str, Any] | None = None
    ready_timeout: float | None = None
    warmup_delay: float | None = None
    restart_limit: int | None = None
    restart_delay: float | None = None
    restart_on: RestartOn | None = None
    stop_signal: str | None = None
    stop_timeout: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.command, str):
            raise InvalidSpec("command is one text", remedy='give a list: ["server", "--port", "{port}"]')
        object.__setattr__(self, "command", tuple(str(word) for word in self.command))
        if self.runner not in RUNNERS:
            raise InvalidSpec(f"runner is {self.runner!r}", remedy=f"it is one of {', '.join(RUNNERS)}")
        if self.runner == "process" and not self.command:
            raise InvalidSpec("command is missing", remedy="the process runner needs the arguments of a program")
        if self.runner == "process" and self.image is not None:
            raise InvalidSpec("the process runner takes no image", remedy='set runner to "podman" or "docker"')
        if self.runner != "process" and not self.image:
            raise InvalidSpec(f"image is missing: runner {self.runner} needs one", remedy="name an image")
        if self.ready_path is not None and not self.ready_path.startswith("/"):
            raise InvalidSpec(f"ready_path is {self.ready_path!r}", remedy="a path begins with /, as in /health")
        if self.stop_signal is not None:
            signal_number(self.stop_signal)

    @classmethod
    def of(cls, given: "ModelSpec | Deployment | Mapping[str, Any]") -> "ModelSpec":
        """Whatever describes a model as a spec.

        Args:
            given: a spec, a `moorage.Deployment`, or a mapping: with `runtime` shaped like a Deployment, else with the
                fields of this class.

        Raises:
            InvalidSpec: something in it is wrong; unknown keys are answered with the nearest known one.
        """
        if isinstance(given, ModelSpec):
            return given
        if isinstance(given, Mapping):
            return cls._of_deployment(_deployment(given)) if "runtime" in given else cls._of_fields(given)
        return cls._of_deployment(given)

    @classmethod
    def _of_fields(cls, given: Mapping[str, Any]) -> "ModelSpec":
        known = [one.name for one in fields(cls)]
        for key in given:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, 1)
                raise InvalidSpec(f"unknown key {key!r}", remedy=f"did you mean {near[0]}?" if near else None)
        return cls(**given)

    @classmethod
    def _of_deployment(cls, given: "Deployment") -> "ModelSpec":
        runtime, model = given.runtime, given.model
        if runtime.secrets or runtime.configs or runtime.registry_secret:
            raise InvalidSpec(
                "secrets and config files are kept by a control plane, and the runner library has none",
                remedy="pass the values in env, mount the files, and give registry= in Python",
            )
        return cls(
            command=runtime.command,
            runner=runtime.runner,
            image=runtime.image,
            pull=runtime.pull,
            env=runtime.env,
            workdir=runtime.workdir,
            source=model.source,
            model=model.id,
            aliases=model.aliases,
            gpus=tuple(range(given.resources.gpus.count)),
            mounts=[MountIntent(m.source, m.target, m.read_only) for m in runtime.mounts],
            memory_bytes=given.resources.memory if runtime.runner != "process" else 0,
            ready_path=runtime.ready.path,
            ready_request=runtime.ready.request.model_dump() if runtime.ready.request else None,
            ready_timeout=runtime.ready.timeout,
            warmup_delay=runtime.ready.warmup,
            stop_signal=runtime.stop.signal,
            stop_timeout=runtime.stop.grace,
        )

    def filled(self, text: str, *, name: str, host: str, port: int | None) -> str:
        """A text of the spec with its `{words}` filled in; other braces stay as they are."""
        words = {
            "port": "" if port is None else str(port),
            "host": host,
            "model": self.source or self.model or "",
            "name": name,
            "gpus": ",".join(str(index) for index in self.gpus),
        }
        for word, value in words.items():
            text = text.replace("{" + word + "}", value)
        return text


def _deployment(given: Mapping[str, Any]) -> "Deployment":
    from moorage.wire.deployment import Deployment  # pydantic is loaded only where a mapping asks for it

    return Deployment(**{"name": "model", **given})

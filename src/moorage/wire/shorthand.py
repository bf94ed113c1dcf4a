"""Documents made of what a person types instead of a file: `moor run -- CMD`.

Called by commands and the SDK; what it makes is checked like any other document.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from moorage.wire.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run of one group, as far as its options say.

    Args:
        name, namespace, labels: of the run.
        command: argv; `{rank}` and `{port}` are filled in on the machine.
        image: of a container; None starts the command on the machine itself.
        runner: `process`, `podman` or `docker`; None: podman for an image, else process.
        env, secrets: variables, and variables whose values are secrets of the namespace.
        workdir: where it starts.
        count: workers.
        gang: whether they start together or not at all.
        gpus, gpu_models: whole GPUs of each worker, and which models will do.
        cpu, memory: of each worker, as in a spec file; None: the default.
        retries: restarts allowed after a failure; 0 restarts nothing.
        time_limit: a duration; None: none.
        priority: higher goes first.
        machines, machine_labels: where it may run.
    """

    name: str
    command: Sequence[str]
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    runner: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    count: int = 1
    gang: bool = False
    gpus: int = 0
    gpu_models: Sequence[str] = ()
    cpu: str | None = None
    memory: str | None = None
    retries: int = 0
    time_limit: str | None = None
    priority: int = 0
    machines: Sequence[str] = ()
    machine_labels: Mapping[str, str] = field(default_factory=dict)


def run_document(job: Job) -> Run:
    """The run that these options ask for.

    Raises:
        InvalidSpec: something in it is wrong.
    """
    runtime: dict[str, Any] = {
        "runner": job.runner or ("podman" if job.image else "process"),
        "command": list(job.command),
        "image": job.image,
        "env": dict(job.env),
        "secrets": dict(job.secrets),
        "workdir": job.workdir,
    }
    gpus: dict[str, Any] = {"count": job.gpus, "models": list(job.gpu_models)}
    asked = {"cpu": job.cpu, "memory": job.memory}
    group = {
        "count": job.count,
        "runtime": runtime,
        "resources": {"gpus": gpus, **{name: value for name, value in asked.items() if value is not None}},
        "restart_policy": "OnFailure" if job.retries else "Never",
    }
    return Run.model_validate(
        {
            "name": job.name,
            "namespace": job.namespace,
            "labels": dict(job.labels),
            "groups": [group],
            "gang": job.gang,
            "restart": {"budget": job.retries},
            "time_limit": job.time_limit,
            "priority": job.priority,
            "placement": {"machines": list(job.machines), "labels": dict(job.machine_labels)},
        }
    )

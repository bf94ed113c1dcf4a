"""What comes before a worker's start: the complete intent, the fetch of its image, and why one could not be started.

Called by `preparing` and `held`; nothing of it outlives the start.
"""

from collections.abc import Callable
from pathlib import Path

from moorage.agent import launching
from moorage.agent.config import AgentConfig
from moorage.agent.given import NOTHING, Given, Refused
from moorage.agent.ledger import Attempt
from moorage.agent.limits import NoProgress
from moorage.domain.errors import ImageError, PortUnavailable, RunnerError
from moorage.domain.reasons import Reason, reason
from moorage.ports import Clock
from moorage.runners.port import ContainerIntent, Labels, LaunchIntent, MountIntent, PullProgress
from moorage.wire.agent import Assignment, Launch

EXCHANGE = "shared"
PULL_NEWS_S = 5.0
"""Progress of a pull is told so often at most: each time is a row of the worker's history."""


def exchange(folder: Path, launch: Launch) -> Path:
    """The directory in which worker and agent leave each other files; a container is shown this one only."""
    return folder if launch.runner == "process" else folder / EXCHANGE


def output_of(assignment: Assignment, config: AgentConfig) -> Path:
    """The directory that a rank of a run keeps across attempts on this machine."""
    return config.home / "output" / assignment.run / str(assignment.launch.rank)


def intent(
    assignment: Assignment, attempt: Attempt, config: AgentConfig, given: Given = NOTHING, *, has_gpus: bool = False
) -> LaunchIntent:
    """Everything that a start needs, with its directories made; `given` is what `providing` obtained for it.

    Args:
        has_gpus: whether this machine has any, so that a worker without is kept from them.

    Raises:
        OSError: a directory cannot be made.
    """
    launch, folder = assignment.launch, Path(attempt.folder)
    contained = launch.runner != "process"
    shared = exchange(folder, launch)
    output = given.output or output_of(assignment, config)
    output.mkdir(parents=True, exist_ok=True)
    if contained:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (shared, output):  # an image may run as anybody; the directory above keeps others on here out
            path.mkdir(exist_ok=True)
            path.chmod(0o777)
    place = launching.Place(config.host, attempt.port, shared, output, has_gpus, contained, given.model)
    return LaunchIntent(
        folder,
        attempt.cookie,
        launching.command(assignment, place),
        {**launching.environment(assignment, place, config.worker_env, given.secrets), **given.variables},
        launch.workdir,
        attempt.port,
        Labels(assignment.owner, assignment.worker, assignment.epoch, assignment.digest),
        _container(launch, shared, output, given) if contained else None,
        () if contained else given.mounts,
    )


def _container(launch: Launch, shared: Path, output: Path, given: Given) -> ContainerIntent:
    mounts = [*given.mounts]
    model = given.model or (Path(launch.source) if launch.source is not None else None)
    if model is not None:
        source = str(model.absolute())
        mounts.append(MountIntent(source, source, read_only=True))
    mounts += [MountIntent(str(p), str(p)) for p in (shared, output)]
    return ContainerIntent(
        image=launch.image or "",
        pull=launch.pull,
        mounts=tuple(mounts),
        gpus=launch.gpus,
        memory_bytes=launch.memory_bytes,
        cpu_share_milli=launch.cpu_milli,
        auth=given.auth,
        stop_signal=launch.stop_signal,
        pull_stall_s=launch.pull_stall_s,
    )


def why_not(cause: RunnerError | OSError, launch: Launch) -> Reason:
    """The reason for a start that did not come about."""
    if isinstance(cause, Refused):
        return cause.why
    if isinstance(cause, NoProgress):
        return reason("prepare.timed_out", step=cause.step, d=cause.limit_s)
    if isinstance(cause, OSError):
        return reason("setup.failed", feature="directories", error=str(cause))
    if isinstance(cause, PortUnavailable):
        return reason("setup.failed", feature="port", error=cause.message)
    if cause.code == "engine_unavailable":
        return reason("setup.failed", feature="container engine", error=cause.message)
    if isinstance(cause, ImageError):
        return _why_no_image(cause, launch)
    return reason("start.invalid" if cause.code == "start_invalid" else "create.failed", error=cause.message)


def _why_no_image(cause: ImageError, launch: Launch) -> Reason:
    if cause.code == "image_absent":
        return reason("image.absent")
    if cause.code == "pull_stalled":
        return reason("pull.stalled", d=launch.pull_stall_s, image=launch.image)
    return reason("image.pull_failed", error=cause.message, permanent=cause.permanent)


class PullNews:
    """Passes on the progress of a pull: at once when the registry is asked, and then every few seconds while it moves.

    Args:
        clock: for those seconds.
        tell: whom.
    """

    def __init__(self, clock: Clock, tell: Callable[[PullProgress], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._told_at: float | None = None

    def hear(self, progress: PullProgress) -> None:
        """The host tells of progress."""
        now = self._clock.monotonic()
        if self._told_at is None or now - self._told_at >= PULL_NEWS_S:
            self._told_at = now
            self._tell(progress)

"""What a runner asks of whatever executes model servers: plain processes, podman and docker all satisfy these two.

`Host` starts and finds again; `Hosted` is one thing started, and says through three futures what is known of it.
Nothing here restarts, checks readiness, reports or decides. Implemented by `process.ProcessHost` and
`containers.ContainerHost`, used by the agent and by the runner library; one contract suite holds all of them to it.

Errors: `PortUnavailable` (the intent's port is taken), `ImageError` (permanent or transient; code `image_absent`,
`pull_failed` or `pull_stalled`), else `RunnerError` with code `create_failed`, `start_invalid`, `name_taken` or
`engine_unavailable`. A command that could not be executed is no error of `start`: `exited` tells it (126 or 127).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from moorage.runners.identity import Exit
from moorage.runners.logfile import LogSlice

Pull = Literal["missing", "always", "never"]


@dataclass(frozen=True, slots=True)
class MountIntent:
    """A directory or file of the machine shown in a container, or to a process."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class RegistryAuth:
    """How to log in at a registry; never shown in a representation."""

    username: str = field(repr=False)
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ContainerIntent:
    """What only containers have.

    Args:
        image: reference, by tag or digest.
        pull: when to ask the registry.
        mounts: shown in the container; `source` exists.
        gpus: indices of this machine's GPUs; inside they are numbered from 0.
        memory_bytes: hard limit; 0: none.
        cpu_milli: CPU limit in thousandths of a core; 0: none.
        cpu_share_milli: weight against other containers when CPU is short, in thousandths of a core; 0: the engine's.
        auth: for the image's registry; None: anonymous, or what the engine itself knows.
        stop_signal: the engine's own, for somebody who stops the container by hand.
        pull_stall_s: a pull in which nothing moves for so long is given up; None: the host's own limit.
    """

    image: str
    pull: Pull = "missing"
    mounts: Sequence[MountIntent] = ()
    gpus: Sequence[int] = ()
    memory_bytes: int = 0
    cpu_milli: int = 0
    cpu_share_milli: int = 0
    auth: RegistryAuth | None = None
    stop_signal: str = "SIGTERM"
    pull_stall_s: float | None = None


@dataclass(frozen=True, slots=True)
class Labels:
    """Whose a container is, and which attempt.

    Args:
        owner: whose it is: uid of the deployment or run, or a name of the embedding program.
        identity: what is run, alike for each attempt: the worker's uid, or the model's name.
        epoch: which attempt; a later one removes an earlier one's container.
        digest: of what was asked for.
    """

    owner: str = ""
    identity: str = ""
    epoch: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class LaunchIntent:
    """What to run, complete: nothing is left to fill in.

    Args:
        folder: a directory of this attempt's own, kept by the caller until the tree is gone and the log is not wanted.
        cookie: random and unguessable; proves later which processes are these.
        argv: the command; in a container it may be empty: the image's own.
        env: its whole environment (the cookie is added; in a container, to the image's).
        workdir: where it runs; None: the directory of the caller, or the image's.
        port: where its server is going to listen: checked to be free before anything is started.
        labels: whose it is.
        container: what containers need besides; None for a plain process.
        mounts: shown to a plain process in a mount namespace of its own; a container has them in `container`.
    """

    folder: Path
    cookie: str
    argv: Sequence[str]
    env: Mapping[str, str] = field(repr=False)
    workdir: str | None = None
    port: int | None = None
    labels: Labels = field(default_factory=Labels)
    container: ContainerIntent | None = None
    mounts: Sequence[MountIntent] = ()


@dataclass(frozen=True, slots=True)
class PullProgress:
    """How far an image is: bytes done of those known so far."""

    image: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a start is going to use.

    Args:
        digest: of the image, as the registry knows it; None for a plain process, or an image made on this machine.
        pulled: whether anything was asked of the registry.
    """

    digest: str | None = None
    pulled: bool = False


class HostedIdentity(Protocol):
    """Who it is, as the ledger and reports carry it."""

    @property
    def pid(self) -> int:
        """First process of it as this machine sees it; 0 where the engine does not say."""
        ...

    @property
    def cgroup(self) -> str:
        """Directory of the cgroup that holds all of it and nothing else; empty where there is none."""
        ...

    @property
    def boot_id(self) -> str:
        """Start of the machine under which it was started."""
        ...

    def to_wire(self) -> dict[str, Any]:
        """As reports carry it."""
        ...


@dataclass(frozen=True, slots=True)
class CommandOrder:
    """A command to run beside something hosted.

    Args:
        argv: the command.
        tty: with a terminal of its own.
        stdin: whether anything will be written to it.
        rows, columns: of the terminal.
        term: what the terminal is.
    """

    argv: Sequence[str]
    tty: bool = False
    stdin: bool = True
    rows: int = 24
    columns: int = 80
    term: str | None = None


@dataclass(frozen=True, slots=True)
class CommandExit:
    """How such a command ended: its code as a shell shows it, and why it could not be executed (126, 127)."""

    code: int
    error: str = ""


class Command(Protocol):
    """A command that runs beside something hosted, and ends with it at the latest."""

    async def read(self) -> tuple[int, bytes] | None:
        """The next piece of its output: 1 (stdout, or its terminal) or 2, and bytes; None once there is no more."""
        ...

    async def write(self, content: bytes) -> None:
        """Give it input; returns once it is taken. What it does not want any more is dropped."""
        ...

    async def close_input(self) -> None:
        """There is no more input."""
        ...

    async def resize(self, rows: int, columns: int) -> None:
        """Its terminal has another size."""
        ...

    async def signal(self, number: int) -> None:
        """Send it a signal, and all in its process group; of a terminal, to what is in the foreground."""
        ...

    async def exit(self) -> CommandExit:
        """How it ended, once it has."""
        ...

    async def end(self, grace_s: float) -> None:
        """Nobody is connected to it any more: hang up, and after the grace in seconds kill it."""
        ...


class Hosted(Protocol):
    """One thing started.

    `exited` may be done long before `gone`; a stop, a crash and a loss all end with both.
    """

    running: "asyncio.Future[None]"
    """done once the command executes (or it is known that it never will: then `exited` is done too)"""
    exited: "asyncio.Future[Exit]"
    """how the command ended; done at once when it does"""
    gone: "asyncio.Future[None]"
    """done when nothing of it is left, proven"""
    evidence: list[str]
    """lines that say why this is believed to be what it is; for a log"""

    @property
    def folder(self) -> Path:
        """The directory of the intent; its log is there."""
        ...

    @property
    def identity(self) -> HostedIdentity | None:
        """Who it is, once that is known."""
        ...

    @property
    def alive(self) -> bool:
        """Whether the command itself was not seen to end."""
        ...

    @property
    def rebooted(self) -> bool:
        """Whether it was started before the machine's last start."""
        ...

    def seen_alive(self) -> bool:
        """An observation of the thing itself, now or within one probe period (2 s)."""
        ...

    async def stop(self, signal: int, grace_s: float) -> None:
        """Ask for the end: the signal, and SIGKILL to all of it after the grace in seconds.

        Returns when that is under way; `gone` tells the end. Calling again can only shorten the grace.
        """
        ...

    async def lines(self, *, lines: int = 200, after: int | None = None) -> LogSlice:
        """Lines of its log: the last so many, or those that follow the number `after`; `missed` are not kept any more.

        Works from the first moment on, and after the end for as long as the folder is there.
        """
        ...

    async def beside(self, order: CommandOrder) -> Command:
        """Run a command where it runs: with its environment, directory, devices, mounts and limits.

        Raises:
            RunnerError: it does not run, or its engine refuses (code `exec_failed`).
        """
        ...

    def close(self) -> None:
        """Stop watching. What runs goes on running."""
        ...


class Host(Protocol):
    """Starts things on this machine, and finds them again."""

    @property
    def name(self) -> str:
        """`process`, `podman` or `docker`."""
        ...

    async def prepare(self, intent: LaunchIntent, on_pull: Callable[[PullProgress], None] | None = None) -> Prepared:
        """Fetch what a start needs and does not have: an image, under its pull policy. Cancelling it ends the fetch.

        Args:
            intent: what will be started.
            on_pull: told of progress, first when the registry is asked.

        Raises:
            ImageError: permanent or transient.
            RunnerError: the engine cannot be reached.
        """
        ...

    async def start(self, intent: LaunchIntent) -> Hosted:
        """Start it. Returns once that is under way; the futures of the result tell the rest.

        The caller has written its own durable note of this attempt (folder and cookie) before, and awaited `prepare`.
        """
        ...

    async def adopt(self, folder: Path, cookie: str) -> Hosted | None:
        """Find again what was started in `folder` under `cookie`, whoever started it then.

        Returns:
            It, alive or not, with what is proven about it; None when it is proven that nothing was ever executed
            there and, from now on, nothing can be.

        Raises:
            RunnerError: the engine cannot be reached, so that nothing is proven.
        """
        ...

    async def aclose(self) -> None:
        """Let go of what is shared (connections, a spare shim). What runs goes on running."""
        ...

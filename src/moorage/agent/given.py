"""What a worker is given before its start beside its program, and the refusal where this machine cannot give it.

Plain values between `providing`, which obtains them, and `setting_up`, which puts them into the intent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from moorage.domain.errors import RunnerError
from moorage.domain.reasons import Reason
from moorage.runners.port import MountIntent, RegistryAuth


@dataclass(frozen=True, slots=True)
class Given:
    """What it is given.

    Args:
        secrets: variables whose values nobody else may see.
        variables: ours.
        mounts: seen by the worker only.
        auth: login at its image's registry.
        output: where its output directory is kept, where that is on a drive.
        model: where its model is on this machine, where that was fetched.
    """

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    variables: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[MountIntent, ...] = ()
    auth: RegistryAuth | None = None
    output: Path | None = None
    model: Path | None = None


NOTHING = Given()


class Refused(RunnerError):
    """This machine cannot give the worker what its spec asks for.

    Args:
        why: as the worker's failure.
    """

    code = "refused"

    def __init__(self, why: Reason) -> None:
        super().__init__(why.message)
        self.why = why

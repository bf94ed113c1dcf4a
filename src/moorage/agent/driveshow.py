"""The drives of one worker as it sees them: where each lies, a copy made where one is asked for, shown at its place.

Called by `providing`.
"""

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from moorage.agent.account import Account
from moorage.agent.drives import DriveBroken, copy_at, fill, kept_at
from moorage.agent.given import Refused
from moorage.agent.limits import ProgressLimit
from moorage.agent.link import LinkError
from moorage.agent.means import Means
from moorage.domain.errors import RunnerError
from moorage.domain.reasons import Reason, reason
from moorage.runners import mounting
from moorage.runners.port import MountIntent
from moorage.wire.agent import LaunchDrive


@dataclass(frozen=True, slots=True)
class Shown:
    """What a worker is given of its drives.

    Args:
        mounts: where they are seen.
        variables: `MOORAGE_DRIVE_NAME`, the path at which the worker finds each.
        output: its output directory, where that is kept on a drive.
    """

    mounts: tuple[MountIntent, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    output: Path | None = None


SHOWN = Shown()
"""Of a worker without drives."""


class DriveShow:
    """Shows one attempt its drives.

    Args:
        account: of the worker.
        means: what workers share.
        limit: of its preparation.
        tell: what it waits for.
    """

    def __init__(self, account: Account, means: Means, limit: ProgressLimit, tell: Callable[[Reason], None]) -> None:
        self._account = account
        self._means = means
        self._limit = limit
        self._tell = tell

    async def done(self) -> Shown:
        """Every drive, there and shown.

        Raises:
            Refused: this machine cannot show one of them.
        """
        launch = self._account.launch
        contained = launch.runner != "process"
        mounted = contained or await self._means.abilities.why_no_mounts() is None
        mounts: list[MountIntent] = []
        variables: dict[str, str] = {}
        output: Path | None = None
        for drive in launch.drives:
            folder = await self._folder(drive)
            if drive.read_only and not mounted:
                raise _refused(drive, "read_only takes mounts, which this machine has not for plain processes")
            mount = MountIntent(str(folder), drive.target, drive.read_only)
            if mounted:
                mounts.append(mount)
            if mounted and not contained:
                await asyncio.to_thread(self._make_point, mount)
            name = drive.name.upper().replace("-", "_")
            variables[f"MOORAGE_DRIVE_{name}"] = drive.target if mounted else str(folder)
            if drive.name == launch.output_drive:
                output = folder / launch.run_name / str(launch.rank)
        return Shown(tuple(mounts), variables, output)

    async def _folder(self, drive: LaunchDrive) -> Path:
        data, assignment = self._means.config.data_location, self._account.assignment
        if drive.origin is None:
            raise _refused(drive, "it does not exist (any more)")
        if drive.origin == self._means.desk.machine:
            return await self._own(drive, kept_at(data, assignment.namespace, drive.name))
        if not drive.place:
            raise _refused(drive, "it lies on another machine, and the spec takes no copy of it")
        self._limit.off()  # another worker of the run may be filling it, under a limit of its own
        self._tell(reason("prepare.drive_filling", d=drive.name, machine=self._means.config.name))
        async with self._means.filling(f"{assignment.run}/{drive.name}"):
            return await self._copy(drive, copy_at(data, assignment.run, drive.name))

    async def _own(self, drive: LaunchDrive, folder: Path) -> Path:
        """The drive itself, which this machine keeps; waited for while its disk is not there."""
        tries = 0
        self._limit.at(f"the drive {drive.name}")
        while True:
            try:
                await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
            except OSError as cause:
                self._tell(reason("prepare.volume", d=drive.name, why=str(cause)))
                tries += 1
                await self._means.desk.pause(tries)
            else:
                return folder

    async def _copy(self, drive: LaunchDrive, target: Path) -> Path:
        """The run's copy on this machine, made by the first of its workers that needs it."""
        attempt, tries = self._account.attempt, 0
        self._limit.at(f"filling the drive {drive.name}")
        while not await asyncio.to_thread(target.is_dir):
            await asyncio.to_thread(self._require_room, drive, target)
            pieces = self._means.desk.drive(drive.name, attempt.worker, attempt.epoch)
            try:
                await fill(target, pieces, self._limit.moved)
            except (DriveBroken, LinkError) as cause:
                self._account.log.warning("a drive is not filled yet", drive=drive.name, why=str(cause))
                tries += 1
                await self._means.desk.pause(tries)
            except OSError as cause:
                raise _refused(drive, str(cause)) from cause
        return target

    def _require_room(self, drive: LaunchDrive, target: Path) -> None:
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
        if free < drive.size_bytes:
            raise _refused(drive, f"{drive.size_bytes} bytes are needed at {target.parent}, and {free} are free")

    def _make_point(self, mount: MountIntent) -> None:
        try:
            mounting.make_points((mount,))
        except RunnerError as cause:
            raise Refused(reason("setup.failed", feature="mounts", error=cause.message)) from cause


def _refused(drive: LaunchDrive, why: str) -> Refused:
    return Refused(reason("setup.failed", feature=f"drive {drive.name}", error=why))

"""What a worker is given before its start beside its program: ports, secrets, a registry login, a certificate, config
files, mounts. Each thing that is not there yet is waited for under the preparation's limit, and said so.

Nothing secret is written to a disk here; what is, is in the worker's own folder, which nobody else may enter. Called by
`preparing`.
"""

import asyncio
from collections.abc import Iterable

from moorage.agent import certificates, words
from moorage.agent.account import Account
from moorage.agent.driveshow import SHOWN, DriveShow
from moorage.agent.given import Given, Refused
from moorage.agent.limits import ProgressLimit
from moorage.agent.means import Means
from moorage.agent.setting_up import exchange
from moorage.domain.errors import PortUnavailable, RunnerError
from moorage.domain.reasons import Reason, reason
from moorage.domain.states import WorkerState
from moorage.runners import mounting
from moorage.runners.holders import require_free
from moorage.runners.port import MountIntent, RegistryAuth
from moorage.wire.agent import (
    LaunchPort,
)
from moorage.wire.giving import SecretsAnswer

CONFIGS = "configs"
FILE_MODE = 0o444


class Providing:
    """Provides one attempt.

    Args:
        account: of the worker.
        means: what workers share.
        limit: of its preparation.
    """

    def __init__(self, account: Account, means: Means, limit: ProgressLimit) -> None:
        self._account = account
        self._means = means
        self._limit = limit
        self._told: Reason | None = None

    async def done(self) -> Given:
        """Everything, in the order in which it is said to be waited for.

        Raises:
            Refused: this machine cannot give it.
            RunnerError: something of the spec is wrong here, or nothing moved for too long.
        """
        launch = self._account.launch
        mounts = await self._mounts() if launch.mounts or launch.configs else ()
        shown = await DriveShow(self._account, self._means, self._limit, self._tell).done() if launch.drives else SHOWN
        variables = await self._ports() | shown.variables
        answer = await self._secrets()
        if launch.identity:
            variables |= await self._identity()
        login = _login(answer, launch.image or "")
        return Given(dict(answer.values), variables, (*shown.mounts, *mounts), login, shown.output)

    # Secrets

    async def _secrets(self) -> SecretsAnswer:
        launch, tries = self._account.launch, 0
        if not launch.secrets and launch.registry_secret is None:
            return SecretsAnswer()
        self._limit.at("waiting for its secrets")
        while True:
            answer = await self._means.desk.secrets(self._account.attempt.worker, self._account.attempt.epoch)
            if answer is not None and not answer.missing:
                return answer
            if answer is not None:
                self._tell(self._why_missing(*answer.missing[0]))
            tries += 1
            await self._means.desk.pause(tries)

    def _why_missing(self, name: str, key: str) -> Reason:
        launch = self._account.launch
        if name == launch.registry_secret and name not in {r.partition("/")[0] for r in launch.secrets.values()}:
            return reason("prepare.registry_secret", name=name)
        return reason("prepare.secret", name=name, key=key)

    # Ports

    async def _ports(self) -> dict[str, str]:
        """Check that its ports are free, have the external ones relayed, and say where each is reached."""
        ports: dict[str, str] = {}
        for exposed in self._account.launch.expose:
            self._limit.at(f"port {exposed.port}")
            await asyncio.to_thread(self._require_free, exposed)
            outside = await self._external(exposed) if exposed.external else exposed.port
            ports[str(exposed.port)] = f"{self._means.config.host}:{outside}"
        if ports:
            self._report(ports=ports)
        return {f"MOORAGE_PORT_{port}": address for port, address in ports.items()}

    def _require_free(self, exposed: LaunchPort) -> None:
        try:
            require_free(exposed.port, protocol="udp" if exposed.protocol == "udp" else "tcp")
        except PortUnavailable as cause:
            raise Refused(reason("setup.failed", feature=f"port {exposed.port}", error=cause.message)) from cause

    async def _external(self, exposed: LaunchPort) -> int:
        """A port of the pool, relayed to the worker's; where the pool is spent, waited for."""
        tries = 0
        while True:
            try:
                return await self._means.relays.open(self._account.attempt.worker, self._account.folder, exposed.port)
            except PortUnavailable:
                if tries == 0:
                    self._limit.at("waiting for an external port")
                self._tell(reason("prepare.external_port", port=exposed.port))
                tries += 1
                await self._means.desk.pause(tries)

    # Identity

    async def _identity(self) -> dict[str, str]:
        attempt, tries = self._account.attempt, 0
        self._limit.at("waiting for its identity certificate")
        while True:
            answer = await self._means.desk.identity(attempt.worker, attempt.epoch)
            if answer.why is None:
                folder = exchange(self._account.folder, self._account.launch) / certificates.FOLDER
                contained = self._account.launch.runner != "process"
                await asyncio.to_thread(certificates.write, folder, answer, contained=contained)
                return {"MOORAGE_IDENTITY_DIR": str(folder)}
            self._tell(reason("prepare.identity", why=answer.why))
            tries += 1
            await self._means.desk.pause(tries)

    # Files

    async def _mounts(self) -> tuple[MountIntent, ...]:
        launch = self._account.launch
        if launch.runner == "process" and (why := await self._means.abilities.why_no_mounts()) is not None:
            raise Refused(reason("setup.failed", feature="mounts", error=why))
        return await asyncio.to_thread(self._mounts_made)

    def _mounts_made(self) -> tuple[MountIntent, ...]:
        launch = self._account.launch
        asked = [MountIntent(m.source, m.target, m.read_only) for m in launch.mounts]
        mounting.check_sources(asked)
        mounts = (*asked, *self._configs())
        if launch.runner == "process":
            self._make_points(mounts)
        return mounts

    def _make_points(self, mounts: Iterable[MountIntent]) -> None:
        try:
            mounting.make_points(mounts)
        except RunnerError as cause:
            if cause.code == "start_invalid":
                raise
            raise Refused(reason("setup.failed", feature="mounts", error=cause.message)) from cause

    def _configs(self) -> list[MountIntent]:
        """Its config files, written in its own folder, to be seen at their paths."""
        folder = self._account.folder / CONFIGS
        mounts = []
        for number, config in enumerate(self._account.launch.configs):
            file = folder / str(number)
            try:
                folder.mkdir(mode=0o755, parents=True, exist_ok=True)
                file.unlink(missing_ok=True)
                file.write_text(config.content)
                file.chmod(FILE_MODE)
            except OSError as cause:
                raise Refused(reason("config.write_failed", path=config.path, error=str(cause))) from cause
            mounts.append(MountIntent(str(file), config.path, read_only=True))
        return mounts

    # Telling

    def _tell(self, why: Reason) -> None:
        """What it waits for now; once as long as that is the same."""
        if why != self._told:
            self._told = why
            self._report(ready=False, ready_why=why.to_wire())

    def _report(self, **news: object) -> None:
        account = self._account
        if account.attempt.state == WorkerState.PENDING:
            account.report([words.picked_up()])  # by itself: the reason of a report with steps is that of its steps
        account.report([], **news)


def _login(answer: SecretsAnswer, image: str) -> RegistryAuth | None:
    """The login for an image's registry; one that names a `server` is sent to no other."""
    login = answer.registry or {}
    if "password" not in login or login.get("server", image.partition("/")[0]) != image.partition("/")[0]:
        return None
    return RegistryAuth(login["username"], login["password"])

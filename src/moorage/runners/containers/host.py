"""The container host: what `runners.port.Host` asks for, on podman or docker.

A container is named after what it runs (`moorage-IDENTITY`), so that the engine itself refuses a second copy beside the
first; its labels say whose it is and which attempt. What is not provably ours is never touched.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from moorage.domain.errors import ImageError, RunnerError
from moorage.ports import Clock
from moorage.runners.containers import creating, records, unclaimed
from moorage.runners.containers.api import LABEL, LABEL_VALUE, EngineApi, EngineError
from moorage.runners.containers.hosted import REBOOTED, REMOVED, HostedContainer
from moorage.runners.containers.pulling import STALL_S, Puller, absent
from moorage.runners.containers.records import ContainerIdentity
from moorage.runners.containers.watching import EngineWatch
from moorage.runners.holders import require_free
from moorage.runners.identity import Exit, boot_id
from moorage.runners.port import ContainerIntent, LaunchIntent, Prepared, PullProgress

_ENDED = frozenset({"exited", "dead", "stopped", "removing"})


class ContainerHost:
    """Starts and adopts containers on one engine of this machine.

    Args:
        api: the engine; closed with this host.
        clock: for graces, polls and pauses.
        stall_s: seconds without progress after which a pull is given up.
    """

    def __init__(self, api: EngineApi, clock: Clock, *, stall_s: float = STALL_S) -> None:
        self._api = api
        self._clock = clock
        self._puller = Puller(api, clock, stall_s=stall_s)
        self.watch = EngineWatch(api, clock)

    @property
    def name(self) -> str:
        """As a spec's `runner` names it."""
        return self._api.name

    async def answers(self) -> bool:
        """Whether the engine is there now."""
        try:
            await self._api.ping()
        except RunnerError:
            return False
        return True

    async def prepare(self, intent: LaunchIntent, on_pull: Callable[[PullProgress], None] | None = None) -> Prepared:
        """Have the image there; see `runners.port.Host`."""
        return await self._puller.ensure(_wanted(intent), on_pull)

    async def start(self, intent: LaunchIntent) -> HostedContainer:
        """Create a container and have it started.

        Where the same attempt's container is there already it is adopted; an older attempt's is removed first.

        Raises:
            ImageError: the image is not there (any more).
            PortUnavailable: somebody listens on the intent's port.
            RunnerError: `start_invalid`, `name_taken`, `create_failed` or `engine_unavailable`.
        """
        wanted = _wanted(intent)
        _check_text(intent)
        _make_folder(intent.folder)
        name = creating.container_name(intent.labels, intent.cookie)
        known = await self._same_attempt(name, intent)
        if known is not None:
            return known
        if intent.port is not None:
            require_free(intent.port)
        image = await self._api.image(wanted.image)
        if image is None:
            raise absent(wanted.image) if wanted.pull == "never" else _vanished(wanted.image)
        body = creating.creation(self._api.name, intent, wanted, str(image["Id"]))
        container = await self._create(name, body)
        hosted = self._hosted(self._identify(container, name, image), intent.folder)
        hosted.identity.save(intent.folder)
        self.watch.add(hosted)
        hosted.start()
        return hosted

    async def adopt(self, folder: Path, cookie: str) -> HostedContainer | None:
        """Find a container again; see `runners.port.Host`."""
        known, how = records.load_identity(folder), records.load_exit(folder)
        if known is None:
            return await self._adopt_by_label(folder, cookie)
        hosted = self._hosted(known, folder)
        if how is not None:
            hosted.evidence.append("its end was written down before")
            hosted.recall(how, gone=(folder / records.GONE).exists())
            return hosted
        found = await self._api.inspect(known.container)
        if found is None:
            hosted.evidence.append(f"{self.name} has no container {known.container[:12]}")
            why = REBOOTED if hosted.rebooted else REMOVED
            hosted.recall(Exit(None, error=why, missing=not hosted.rebooted), gone=False)
            return hosted
        hosted.evidence.append(f"container {known.container[:12]} of this directory's record, labelled as ours")
        return await self._resume(hosted)

    async def labelled(self) -> tuple[unclaimed.Labelled, ...]:
        """Every container with our label, whoever started it; see `unclaimed.labelled`."""
        return await unclaimed.labelled(self._api)

    async def discard(self, container: str, grace_s: float) -> None:
        """End and remove one that is proven to be ours; see `unclaimed.discard`."""
        await unclaimed.discard(self._api, container, grace_s, self._clock)

    async def described(self, container: str) -> dict[str, Any] | None:
        """What the engine says of any container of it, ours or not; None: there is none.

        Raises:
            RunnerError: the engine does not answer.
        """
        return await self._api.inspect(container)

    async def stop_other(self, container: str, number: int, grace_s: float) -> None:
        """End a container that is not ours; see `unclaimed.stop_other`."""
        await unclaimed.stop_other(self._api, container, number, grace_s, self._clock)

    async def aclose(self) -> None:
        """Let go of the engine. What runs goes on running."""
        await self.watch.aclose()
        await self._api.aclose()

    # Names

    async def _same_attempt(self, name: str, intent: LaunchIntent) -> HostedContainer | None:
        """Settle whose the name is: free (None), this very attempt's, or an older one's, which is removed."""
        found = await self._api.inspect(name)
        if found is None:
            return None
        labels = _labels(found)
        wanted = creating.labels_of(intent)
        ours = all(labels.get(key) == wanted[key] for key in (LABEL, creating.OWNER, creating.IDENTITY))
        epoch = int(labels.get(creating.EPOCH) or 0) if ours else 0
        if not ours or epoch > intent.labels.epoch:
            raise self._name_taken(name, found, ours=ours)
        same_cookie = labels.get(creating.COOKIE) == intent.cookie
        if epoch == intent.labels.epoch and (same_cookie or found["State"]["Status"] not in _ENDED):
            hosted = self._hosted(self._identify(str(found["Id"]), name, None), intent.folder)
            hosted.identity.save(intent.folder)
            hosted.evidence.append(f"the container {name} of the same attempt was there already")
            return await self._resume(hosted)
        await self._api.remove(str(found["Id"]))
        return None

    def _name_taken(self, name: str, found: dict[str, Any], *, ours: bool) -> RunnerError:
        labels = _labels(found)
        if ours:
            who = f"a newer attempt (epoch {labels.get(creating.EPOCH)}) of the same worker"
        elif labels.get(LABEL) == LABEL_VALUE:
            who = f"another owner, {labels.get(creating.OWNER) or 'unnamed'}, that also runs Moorage"
        else:
            who = f"somebody else: image {found.get('Config', {}).get('Image') or 'unknown'}, without our labels"
        return RunnerError(
            f"{self.name} has a container {name} ({str(found['Id'])[:12]}, {found['State']['Status']}) of {who}",
            code="name_taken",
            remedy=f"look at it with `{self.name} inspect {name}`; rename or remove it if nobody needs it",
        )

    async def _create(self, name: str, body: dict[str, Any]) -> str:
        try:
            return await self._api.create(name, body)
        except EngineError as cause:
            if cause.unreachable:
                raise
            taken = cause.status == 409 or "already in use" in cause.message
            code = "name_taken" if taken else "create_failed"
            raise RunnerError(f"{self.name} could not create {name}: {cause.message}", code=code) from cause

    # Adoption

    async def _adopt_by_label(self, folder: Path, cookie: str) -> HostedContainer | None:
        """An attempt whose record was not written: created at most, since the record comes before the start."""
        rows = await self._api.listed(creating.COOKIE, cookie)
        ours = [row for row in rows if (row.get("Labels") or {}).get(LABEL) == LABEL_VALUE]
        if not ours:
            return None
        name = str((ours[0].get("Names") or [""])[0]).lstrip("/")
        hosted = self._hosted(self._identify(str(ours[0]["Id"]), name, None), folder)
        _make_folder(folder)
        hosted.identity.save(folder)
        hosted.evidence.append(f"container {hosted.container[:12]} carries this attempt's cookie")
        return await self._resume(hosted)

    async def _resume(self, hosted: HostedContainer) -> HostedContainer:
        self.watch.add(hosted)
        try:
            await hosted.resume()
        except EngineError:
            hosted.close()
            raise
        return hosted

    def _hosted(self, identity: ContainerIdentity, folder: Path) -> HostedContainer:
        return HostedContainer(self._api, identity, folder, self._clock, self.watch.remove)

    def _identify(self, container: str, name: str, image: dict[str, Any] | None) -> ContainerIdentity:
        digests = [str(d).partition("@")[2] for d in (image or {}).get("RepoDigests") or ()]
        made = ContainerIdentity(self._api.name, container, name, boot_id())
        return replace(made, digest=digests[0]) if digests else made


def _wanted(intent: LaunchIntent) -> ContainerIntent:
    if intent.container is None:
        raise RunnerError("a container needs an image", code="start_invalid", remedy="give runtime.image")
    return intent.container


def _check_text(intent: LaunchIntent) -> None:
    texts = [*intent.argv, *(f"{k}={v}" for k, v in intent.env.items()), intent.workdir or ""]
    if any("\0" in text for text in texts):
        raise RunnerError("an argument or variable has a NUL byte in it", code="start_invalid")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as cause:
        raise RunnerError(f"cannot make the directory {folder}: {cause}", code="create_failed") from cause


def _labels(found: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = (found.get("Config") or {}).get("Labels") or {}
    return labels


def _vanished(image: str) -> ImageError:
    return ImageError(f"{image} is not on this machine any more", permanent=False, code="pull_failed")

"""Images: had, fetched with progress under the pull policy, or refused with an error that says whether to try again.

The engines tell a failed pull as text only, so the text is sorted here, once: what a registry or a reference can never
make good is permanent; everything else, unknown texts included, may come right by itself. Called by `host`.
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable
from typing import Any

from moorage.domain.errors import ImageError
from moorage.ports import Clock
from moorage.runners.containers.api import EngineApi, EngineError
from moorage.runners.port import ContainerIntent, Prepared, PullProgress, RegistryAuth

STALL_S = 300.0
"""The lifecycle contract §2: a pull that moves nothing for so long has failed."""

_REFERENCE = re.compile(
    r"(?P<name>(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
    r"(?:/[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*)*)"
    r"(?::(?P<tag>[\w][\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_ID = re.compile(r"(?:sha256:)?[0-9a-f]{64}")
_TRANSIENT = re.compile(
    r"toomanyrequests|too many requests|rate limit|\b429\b|time.?out|deadline exceeded|connection (?:refused|reset)"
    r"|\bEOF\b|temporar|\b50[0234]\b|server error|service unavailable|bad gateway|no space left|broken pipe",
    re.IGNORECASE,
)
_PERMANENT = re.compile(
    r"manifest unknown|manifest for .* not found|name unknown|no such image|repository .*(?:not found|not exist)"
    r"|\bunauthorized\b|authentication required|\bdenied\b|\bforbidden\b|\b40[134]\b|\bnot found\b"
    r"|invalid (?:reference|tag|repository)|no matching manifest|no image found in .* for|unsupported|not supported"
    r"|invalid username/password|short-name",
    re.IGNORECASE,
)


def split(reference: str) -> tuple[str, str]:
    """Repository, and the tag or digest (`latest` where neither is given).

    Raises:
        ImageError: permanent: this is no image reference.
    """
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise ImageError(
            f"{reference!r} is not an image reference",
            permanent=True,
            code="pull_failed",
            remedy="write [REGISTRY/]NAME[:TAG] or NAME@sha256:DIGEST, the name in lower case",
        )
    return found["name"], found["digest"] or found["tag"] or "latest"


def is_permanent(message: str, status: int = 0) -> bool:
    """Whether asking for the same image again cannot help.

    Args:
        message: what the engine said.
        status: HTTP status of the engine's answer, where it had one of its own.
    """
    if _TRANSIENT.search(message) or status == 429:
        return False
    return bool(_PERMANENT.search(message)) or status in (400, 401, 403, 404)


class Puller:
    """Makes images present on one engine.

    Args:
        api: the engine.
        clock: for the stall limit.
        stall_s: seconds without any progress after which a pull is given up.
    """

    def __init__(self, api: EngineApi, clock: Clock, *, stall_s: float = STALL_S) -> None:
        self._api = api
        self._clock = clock
        self._stall_s = stall_s

    async def ensure(self, wanted: ContainerIntent, on_pull: Callable[[PullProgress], None] | None) -> Prepared:
        """Have the image, asking the registry as the policy says.

        Raises:
            ImageError: it cannot be had.
        """
        repository, version = ("", "") if _ID.fullmatch(wanted.image) else split(wanted.image)
        found = None if wanted.pull == "always" and repository else await self._api.image(wanted.image)
        if found is not None:
            return Prepared(_digest(found, repository))
        if wanted.pull == "never" or not repository:
            raise absent(wanted.image)
        await self._pull(wanted, repository, version, on_pull)
        found = await self._api.image(wanted.image)
        if found is None:
            raise _failed(wanted.image, "the engine says that it pulled it and does not have it", permanent=False)
        return Prepared(_digest(found, repository), pulled=True)

    async def _pull(
        self,
        wanted: ContainerIntent,
        repository: str,
        version: str,
        on_pull: Callable[[PullProgress], None] | None,
    ) -> None:
        layers = _Layers(wanted.image, on_pull)
        reading = asyncio.create_task(self._read(wanted, repository, version, layers))
        try:
            stall_s = self._stall_s if wanted.pull_stall_s is None else wanted.pull_stall_s
            await self._until_done(reading, layers, wanted.image, stall_s)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _until_done(self, reading: "asyncio.Task[None]", layers: "_Layers", image: str, stall_s: float) -> None:
        """Wait for the pull; give it up when nothing moves."""
        moved, since = layers.moves, self._clock.monotonic()
        while True:
            pause = asyncio.ensure_future(self._clock.sleep(stall_s / 10))
            try:
                await asyncio.wait({reading, pause}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
            if reading.done():
                return reading.result()
            if layers.moves != moved:
                moved, since = layers.moves, self._clock.monotonic()
            elif self._clock.monotonic() - since >= stall_s:
                raise ImageError(
                    f"nothing more of {image} came for {stall_s:g} s", permanent=False, code="pull_stalled"
                )

    async def _read(self, wanted: ContainerIntent, repository: str, version: str, layers: "_Layers") -> None:
        try:
            async with self._api.pull(repository, version, _auth_header(wanted.auth)) as lines:
                async for line in lines:
                    if line.strip():
                        layers.take(json.loads(line))
        except EngineError as cause:
            if cause.unreachable:
                raise
            raise _failed(wanted.image, cause.message, is_permanent(cause.message, cause.status)) from cause


class _Layers:
    """Progress summed over layers."""

    def __init__(self, image: str, on_pull: Callable[[PullProgress], None] | None) -> None:
        self._image = image
        self._on_pull = on_pull
        self._sizes: dict[str, tuple[int, int]] = {}
        self.moves = 0
        self._tell()

    def take(self, said: dict[str, Any]) -> None:
        """One line of the engine's answer; an error in it is raised."""
        error = said.get("error") or (said.get("errorDetail") or {}).get("message")
        if error:
            raise _failed(self._image, str(error), is_permanent(str(error)))
        self.moves += said.get("status") != "Waiting"
        detail, layer = said.get("progressDetail") or {}, said.get("id")
        total = int(detail.get("total") or 0)
        if not layer or said.get("status") not in ("Downloading", "Download complete", "Pull complete"):
            return
        known = self._sizes.get(layer, (0, 0))
        if total > 0:
            self._sizes[layer] = (min(int(detail.get("current") or 0), total), total)
        elif said["status"] != "Downloading":
            self._sizes[layer] = (known[1], known[1])
        if self._sizes.get(layer, known) != known:
            self._tell()

    def _tell(self) -> None:
        if self._on_pull is not None:
            done, total = (sum(s[i] for s in self._sizes.values()) for i in (0, 1))
            self._on_pull(PullProgress(self._image, done, total))


def absent(image: str) -> ImageError:
    """The image is not there and must not be fetched."""
    return ImageError(
        f"{image} is not on this machine, and pulling it is not allowed (pull: never)",
        permanent=True,
        code="image_absent",
        remedy="load it on the machine, or allow pulling it",
    )


def _failed(image: str, error: str, permanent: bool) -> ImageError:
    remedy = "check the name, the tag and the registry's login" if permanent else "the registry may answer later"
    return ImageError(f"cannot pull {image}: {error}", permanent=permanent, code="pull_failed", remedy=remedy)


def _digest(image: dict[str, Any], repository: str) -> str | None:
    """The registry's digest: that of this repository first, any other else."""
    found = [str(d) for d in image.get("RepoDigests") or ()]
    found.sort(key=lambda d: not d.partition("@")[0].endswith(repository))
    return found[0].partition("@")[2] if found else None


def _auth_header(auth: RegistryAuth | None) -> str | None:
    if auth is None:
        return None
    login = json.dumps({"username": auth.username, "password": auth.password})
    return base64.urlsafe_b64encode(login.encode()).decode()

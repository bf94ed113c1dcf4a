"""`ModelRunner`: keeps model servers running on this machine for as long as the program that embeds it lives.

The front of the library: it knows models by name and hands everything about one of them to `model.Model`. Safe to call
from any task of its event loop; not from other threads (see `moorage.runners.sync` for those).
"""

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from moorage.clock import SystemClock
from moorage.domain.errors import Conflict, InvalidSpec, ModelNotStarted, ModelShutdown
from moorage.domain.states import RunnerState
from moorage.ports import Clock
from moorage.runners.library import asking
from moorage.runners.library.asking import Api, Message
from moorage.runners.library.engines import Engines
from moorage.runners.library.feed import Feed
from moorage.runners.library.model import Model
from moorage.runners.library.parts import LeasedPorts, Parts
from moorage.runners.library.settings import RunnerSettings
from moorage.runners.library.spec import ModelSpec, RunnerKind
from moorage.runners.library.views import ModelInfo, StateChange
from moorage.runners.logfile import LogSlice
from moorage.runners.port import Host

REQUEST_TIMEOUT_S = 600.0
AT_REST = (RunnerState.STOPPED, RunnerState.ERROR)


class ModelRunner:
    """Starts, watches, restarts and ends model servers; forgets and ends all of them at `shutdown`.

    Args:
        settings: see `RunnerSettings`.
        clock: time; a test's own.
        hosts: what executes each kind of runner; made when first needed unless given.
        changed: single settings by name, over `settings`: `ModelRunner(restart_limit=2)`.

    Raises:
        InvalidSpec: a setting is unknown or impossible.
    """

    def __init__(
        self,
        settings: RunnerSettings | None = None,
        *,
        clock: Clock | None = None,
        hosts: dict[RunnerKind, Host] | None = None,
        **changed: Any,
    ) -> None:
        self.settings = _settings(settings or RunnerSettings(), changed)
        self._clock = clock or SystemClock()
        self._hosts = hosts
        self._models: dict[str, Model] = {}
        self._parts: Parts | None = None
        self._closed = False
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._shared()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    # Lifecycle

    async def start(self, name: str, spec: "ModelSpec | Mapping[str, Any] | Any" = None) -> RunnerState:
        """Have a model running; returns once it is.

        A running, healthy model is left alone, an unhealthy one is restarted; calls at the same time are one start. A
        model that is stopped or failed starts again in place, on the same port and with all its restarts.

        Args:
            name: what to call it.
            spec: what it is: a `ModelSpec`, a `moorage.Deployment` or a mapping. Needed the first time only; another
                one than before is taken for a model at rest.

        Raises:
            ModelShutdown: `shutdown` was called.
            InvalidSpec: the spec is missing or wrong.
            Conflict: it runs with another spec.
            ServerReadyTimeout, MaxRestartsExceeded: it did not get ready within its restarts.
            PortUnavailable, ImageError: it has no port, or no image.
            ModelNotStarted: it was stopped meanwhile, or ended by itself with exit code 0.
            RunnerError: it cannot be executed (`start_failed`), or its engine does not answer (`engine_unavailable`).
        """
        self.refuse()
        model = self._known_or_new(name, spec)
        await model.start()
        return model.state

    async def stop(self, name: str) -> RunnerState:
        """Stop a model and return once nothing of it is left; its state before. Stopping twice is the same as once.

        Raises:
            ModelNotStarted: there is no such model.
        """
        return await self._model(name).stop()

    async def stop_all(self) -> dict[str, RunnerState]:
        """Stop every model, at the same time; the state of each before."""
        models = list(self._models.values())
        before = await asyncio.gather(*(model.stop() for model in models))
        return {model.name: state for model, state in zip(models, before, strict=True)}

    async def restart(self, name: str) -> RunnerState:
        """Stop a model and start it again; returns once it runs. Raises as `start`."""
        self.refuse()
        await self._model(name).stop()
        return await self.start(name)

    async def shutdown(self) -> None:
        """Stop every model, end every watcher, remove containers, forget everything. Nothing starts afterwards."""
        if self._closing is None:
            self._closed = True
            self._closing = asyncio.ensure_future(self._shut_down())
        await asyncio.shield(self._closing)

    async def _shut_down(self) -> None:
        parts = self._parts
        if parts is None:
            return
        parts.closed = True
        await self.stop_all()
        for model in self._models.values():
            await model.forget()
        self._models.clear()
        await parts.engines.aclose()
        await parts.http.aclose()
        await parts.probes.aclose()
        parts.feed.close()
        if self.settings.home is None:
            await asyncio.to_thread(shutil.rmtree, parts.home, ignore_errors=True)

    # What is known

    def states(self) -> dict[str, RunnerState]:
        """Each model's state."""
        return {name: model.state for name, model in self._models.items()}

    def state(self, name: str) -> RunnerState:
        """One model's state.

        Raises:
            ModelNotStarted: there is no such model.
        """
        return self._model(name).state

    def info(self, name: str) -> ModelInfo:
        """All that is known of one model: port, pid, restarts, last failure, next restart.

        Raises:
            ModelNotStarted: there is no such model.
        """
        return self._model(name).info()

    def events(self) -> AsyncIterator[StateChange]:
        """Every change of state from this call on, until shutdown; a follower that is too slow is told `missed`."""
        return self._shared().feed.follow()

    async def logs(self, name: str, *, lines: int = 100, after: int | None = None) -> LogSlice:
        """Lines of a model's output, numbered over all its starts.

        Args:
            name: of the model.
            lines: how many at most; without `after` the last so many.
            after: those that follow this number: the last answer's `next_seq - 1` goes on where it ended. `missed` of
                the answer tells how many were asked for and are not kept any more.

        Raises:
            ModelNotStarted: there is no such model.
        """
        return await self._model(name).log.read(lines=max(0, lines), after=after)

    # Requests

    async def ainvoke(
        self,
        name: str,
        *,
        prompt: str | None = None,
        messages: Sequence[Message] | None = None,
        api: Api = "chat",
        timeout: float | None = REQUEST_TIMEOUT_S,
        **options: Any,
    ) -> dict[str, Any]:
        """Ask a model and return its whole answer, in OpenAI's form. Waits while the model is loading or restarting.

        Args:
            name: of the model.
            prompt: text; in a chat, one message of the user.
            messages: of a chat.
            api: `chat` or `completion`.
            timeout: seconds without anything from the server after which it is given up.
            options: further fields of the request (`max_tokens`, `temperature`, …).

        Raises:
            ModelNotStarted: it is stopped, stopping or unknown.
            MaxRestartsExceeded: it failed until its restarts were spent.
            RunnerError: it did not answer (`model_unreachable`) or answered with an error (`request_failed`).
        """
        model = await self._running(name)
        body = asking.body_of(model.spec.model, prompt, messages, api, options)
        return await asking.whole(self._shared().http, name, model.base_url + asking.PATHS[api], body, timeout)

    async def astream(
        self,
        name: str,
        *,
        prompt: str | None = None,
        messages: Sequence[Message] | None = None,
        api: Api = "chat",
        timeout: float | None = REQUEST_TIMEOUT_S,
        **options: Any,
    ) -> AsyncIterator[dict[str, Any]]:
        """As `ainvoke`, chunk by chunk as they come. A stream that breaks off raises (`stream_broken`)."""
        model = await self._running(name)
        body = asking.body_of(model.spec.model, prompt, messages, api, options)
        url = model.base_url + asking.PATHS[api]
        async for chunk in asking.streamed(self._shared().http, name, url, body, timeout):
            yield chunk

    async def request(
        self,
        name: str,
        method: str,
        path: str,
        *,
        timeout: float | None = REQUEST_TIMEOUT_S,
        **given: Any,
    ) -> httpx.Response:
        """Any request to a model's server; whatever it answers is returned.

        Args:
            name: of the model.
            method: as in HTTP.
            path: begins with a slash.
            timeout: seconds without anything from the server.
            given: as httpx takes them: `json`, `content`, `params`, `headers`.

        Raises:
            RunnerError: as `ainvoke`, but an answer is never an error.
        """
        if not path.startswith("/"):
            raise InvalidSpec(f"path is {path!r}", remedy="a path begins with /, as in /v1/models")
        model = await self._running(name)
        http = self._shared().http
        return await asking.request(http, name, method, model.base_url + path, timeout=timeout, **given)

    # Inside

    def _known_or_new(self, name: str, spec: Any) -> Model:
        wanted = None if spec is None else ModelSpec.of(spec)
        known = self._models.get(name)
        if known is None:
            if wanted is None:
                raise InvalidSpec(f"{name} is not known yet", remedy=f"give its spec: start({name!r}, spec)")
            known = self._models[name] = Model(name, wanted, self._shared())
        elif wanted is not None and wanted != known.spec:
            if known.state not in AT_REST:
                raise Conflict(
                    f"{name} is {known.state} with another spec", remedy=f"stop({name!r}) first", target=name
                )
            known.spec = wanted
        return known

    def _model(self, name: str) -> Model:
        found = self._models.get(name)
        if found is None:
            self.refuse()
            known = ", ".join(sorted(self._models)) or "none"
            raise ModelNotStarted(
                f"there is no model {name!r} (known: {known})", target=name, remedy=f"start({name!r}, spec)"
            )
        return found

    async def _running(self, name: str) -> Model:
        model = self._model(name)
        await model.until_running()
        return model

    def refuse(self) -> None:
        """Raise `ModelShutdown` when it was shut down."""
        if self._closed:
            raise ModelShutdown("the runner was shut down", remedy="make a new ModelRunner")

    def _shared(self) -> Parts:
        if self._parts is None:
            settings, owner = self.settings, f"library-{secrets.token_hex(8)}"
            # A directory of this runner's own also in a home that was given: starts are numbered from 1 in each.
            home = Path(tempfile.mkdtemp(prefix="moorage-")) if settings.home is None else settings.home / owner
            self._parts = Parts(
                settings=settings,
                clock=self._clock,
                ports=LeasedPorts(tuple(settings.ports)),
                engines=Engines(settings, self._clock, owner, self._hosts),
                feed=Feed(settings.event_buffer),
                http=_plain_client(httpx.Limits(max_connections=None)),
                probes=_plain_client(httpx.Limits(max_keepalive_connections=0)),
                home=home.absolute(),
                owner=owner,
            )
        return self._parts


def _plain_client(limits: httpx.Limits) -> httpx.AsyncClient:
    """For what runs on this machine: no TLS, so the system's authorities are not read."""
    return httpx.AsyncClient(trust_env=False, verify=False, limits=limits)


def _settings(base: RunnerSettings, changed: Mapping[str, Any]) -> RunnerSettings:
    known = {one.name for one in fields(RunnerSettings)}
    unknown = sorted(set(changed) - known)
    if unknown:
        raise InvalidSpec(f"unknown setting {unknown[0]!r}", remedy=f"known are {', '.join(sorted(known))}")
    return replace(base, **changed)

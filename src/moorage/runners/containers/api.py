"""The engine's HTTP API over its Unix socket: one method a call, engine errors as one exception, nothing decided.

Both engines speak docker's API; podman's own is used where docker's cannot say what is meant (creation with CDI
devices). Called by the modules beside this one only.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx

from moorage.domain.errors import RunnerError

EngineName = Literal["podman", "docker"]
LABEL = "moorage.managed-by"
LABEL_VALUE = "moorage"
ANSWER_TIMEOUT_S = 120.0
CONNECT_TIMEOUT_S = 5.0


class EngineError(RunnerError):
    """The engine answered with an error, or not at all.

    Args:
        status: HTTP status; 0: no answer.
    """

    code = "engine_error"

    def __init__(self, message: str, *, status: int = 0, **kw: Any) -> None:
        super().__init__(message, **kw)
        self.status = status

    @property
    def unreachable(self) -> bool:
        """Whether there was no answer, so that nothing is known of what it did."""
        return self.status == 0


class EngineApi:
    """One engine.

    Args:
        name: which one.
        socket: its Unix socket.
    """

    def __init__(self, name: EngineName, socket: Path) -> None:
        self.name = name
        self.socket = socket
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=4)
        self._http = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(socket), limits=limits, verify=False),  # no TLS on a Unix socket
            base_url="http://engine",
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    # Containers

    async def ping(self) -> None:
        """Nothing when it is there; to tell its version, podman would ask the package manager for each of its parts."""
        await self._call("GET", "/_ping")

    async def inspect(self, container: str) -> dict[str, Any] | None:
        """A container by id or name; None: there is none."""
        return await self._find(f"/containers/{container}/json")

    async def listed(self, label: str, value: str) -> list[dict[str, Any]]:
        """All containers with a label, ended ones too."""
        filters = json.dumps({"label": [f"{label}={value}"]})
        answer = await self._call("GET", "/containers/json", params={"all": "true", "filters": filters})
        found: list[dict[str, Any]] = answer.json()
        return found

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Make a container from a body of `creating`; its id."""
        if self.name == "podman":
            answer = await self._call("POST", "/v4.0.0/libpod/containers/create", json={"name": name, **body})
        else:
            answer = await self._call("POST", "/containers/create", params={"name": name}, json=body)
        return str(answer.json()["Id"])

    async def start(self, container: str) -> None:
        """Start it; one that runs is left as it is."""
        await self._call("POST", f"/containers/{container}/start")

    async def kill(self, container: str, signal: int) -> None:
        """Send a signal to its first process."""
        await self._call("POST", f"/containers/{container}/kill", params={"signal": str(signal)})

    async def remove(self, container: str) -> None:
        """Kill and remove it with its anonymous volumes; one that is not there is removed already."""
        # Podman would give it ten seconds first, and hears otherwise only on its own API.
        own = "/v4.0.0/libpod" if self.name == "podman" else ""
        params = {"force": "true", "v": "true", "timeout": "0"}
        try:
            answer = await self._call("DELETE", f"{own}/containers/{container}", params=params)
        except EngineError as cause:
            if cause.status != 404:
                raise
            return
        refused = next((row["Err"] for row in answer.json() if row.get("Err")), None) if own else None
        if refused:
            raise EngineError(str(refused), status=500)

    @asynccontextmanager
    async def logs(self, container: str, *, since: int, follow: bool) -> AsyncIterator[AsyncIterator[bytes]]:
        """Its output as framed bytes, each frame with its time in front, from `since` (seconds since the epoch) on."""
        params = {"stdout": "true", "stderr": "true", "timestamps": "true", "follow": "true" if follow else "false"}
        if since:
            params["since"] = str(since)
        async with self._stream("GET", f"/containers/{container}/logs", params=params, quiet=follow) as answer:
            yield answer.aiter_raw()

    @asynccontextmanager
    async def events(self) -> AsyncIterator[AsyncIterator[str]]:
        """What happens to our containers, one JSON object a line, for as long as the engine goes on."""
        filters = json.dumps({"type": ["container"], "label": [f"{LABEL}={LABEL_VALUE}"]})
        async with self._stream("GET", "/events", params={"filters": filters}, quiet=True) as answer:
            yield answer.aiter_lines()

    # Commands in a container

    async def exec_create(self, container: str, body: Mapping[str, Any]) -> str:
        """Prepare a command; its id."""
        return str((await self._call("POST", f"/containers/{container}/exec", json=body)).json()["Id"])

    async def exec_start(
        self, command: str, size: tuple[int, int] | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Start it, and be connected to it: after the answer's head the connection is its streams.

        Args:
            size: rows and columns of its terminal; None: it has none.
        """
        terminal = {"ConsoleSize": size, "h": size[0], "w": size[1]} if size else {}  # docker's words, podman's words
        body = json.dumps({"Detach": False, "Tty": size is not None, **terminal}).encode()
        head = (
            f"POST /exec/{command}/start HTTP/1.1\r\nHost: engine\r\nContent-Type: application/json\r\n"
            f"Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                reader, writer = await asyncio.open_unix_connection(self.socket)
                writer.write(head.encode() + body)
                told = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                status = int(told.split(" ", 2)[1])
                if status not in (101, 200):
                    await self._refused(reader, writer, status, told)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as cause:
            raise self._unreachable(cause) from cause
        return reader, writer

    async def _refused(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, status: int, head: str
    ) -> None:
        lengths = [line.partition(":")[2] for line in head.splitlines() if line.lower().startswith("content-length:")]
        content = await reader.readexactly(int(lengths[0])) if lengths else await reader.read(1 << 16)
        writer.close()
        raise EngineError(_message(httpx.Response(status, content=content)), status=status)

    async def exec_inspect(self, command: str) -> dict[str, Any]:
        """How it is."""
        found: dict[str, Any] = (await self._call("GET", f"/exec/{command}/json")).json()
        return found

    async def exec_resize(self, command: str, rows: int, columns: int) -> None:
        """Its terminal has another size."""
        await self._call("POST", f"/exec/{command}/resize", params={"h": str(rows), "w": str(columns)})

    # Images

    async def image(self, reference: str) -> dict[str, Any] | None:
        """An image that the engine has, by reference or id; None: it has not."""
        return await self._find(f"/images/{reference}/json")

    @asynccontextmanager
    async def pull(self, reference: str, tag: str, auth: str | None) -> AsyncIterator[AsyncIterator[str]]:
        """Have an image fetched; progress, and errors too, come as one JSON object a line."""
        headers = {"X-Registry-Auth": auth} if auth else {}
        params = {"fromImage": reference, "tag": tag}
        async with self._stream("POST", "/images/create", params=params, headers=headers, quiet=True) as answer:
            yield answer.aiter_lines()

    # How it is asked

    async def _find(self, path: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = (await self._call("GET", path)).json()
        except EngineError as cause:
            if cause.status == 404 or "no such container" in cause.message:  # podman, in the middle of a removal: 500
                return None
            raise
        return found

    async def _call(self, method: str, path: str, **given: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, path, **given)
        except httpx.HTTPError as cause:
            raise self._unreachable(cause) from cause
        if answer.status_code >= 400:
            raise EngineError(_message(answer), status=answer.status_code)
        return answer

    @asynccontextmanager
    async def _stream(self, method: str, path: str, *, quiet: bool, **given: Any) -> AsyncIterator[httpx.Response]:
        """An answer read as it comes; `quiet`: nothing may come for as long as it likes."""
        timeout = httpx.Timeout(None if quiet else ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        try:
            async with self._http.stream(method, path, timeout=timeout, **given) as answer:
                if answer.status_code >= 400:
                    await answer.aread()
                    raise EngineError(_message(answer), status=answer.status_code)
                yield answer
        except httpx.HTTPError as cause:
            raise self._unreachable(cause) from cause

    def _unreachable(self, cause: Exception) -> EngineError:
        return EngineError(
            f"{self.name} does not answer on {self.socket}: {cause or type(cause).__name__}",
            code="engine_unavailable",
            retryable=True,
            remedy=f"see that {self.name} runs and that this user may use its socket",
        )


def _message(answer: httpx.Response) -> str:
    """What the engine says, which is JSON in both."""
    try:
        said = answer.json()
    except ValueError:
        return answer.text.strip() or f"HTTP status {answer.status_code}"
    return str(said.get("message") or said.get("cause") or said)[:2000]

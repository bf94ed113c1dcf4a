"""The official `openai` client works as it is: its base address is the gateway's, its model an endpoint's name."""

import asyncio
import json
from collections.abc import AsyncIterator

import openai
import pytest
from gateway_rig import ModelServer, Rig, reply, until
from openai_server import WORDS, OpenAIServer

from moorage.decide.serving.routes import Limits, RouteSpec
from moorage.gateway.tokens import Tokens

TEXT = "".join(WORDS)
ASKED = [{"role": "user", "content": "count"}]
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


@pytest.fixture
def model(server: ModelServer) -> OpenAIServer:
    model = OpenAIServer()
    server.handler = model
    return model


@pytest.fixture
async def client(rig: Rig, server: ModelServer, model: OpenAIServer) -> AsyncIterator[openai.AsyncOpenAI]:
    rig.serve(server, name="m", max_in_flight=64)
    async with openai.AsyncOpenAI(base_url=base(rig), api_key="anything", max_retries=0) as client:
        yield client


def base(rig: Rig) -> str:
    return f"http://{rig.host}:{rig.port}/v1"


def last_tokens(rig: Rig, number: int = 1) -> list[Tokens | None]:
    return [record.tokens for record in rig.gateway.hub.counts.ring.records()[-number:]]


async def test_chat_whole_and_streamed(client: openai.AsyncOpenAI, rig: Rig, server: ModelServer) -> None:
    whole = await client.chat.completions.create(model="m", messages=ASKED)
    assert whole.choices[0].message.content == TEXT
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 3
    assert whole._request_id is not None, "the id to give to `moor inspect request`"
    stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
    assert "".join([part.choices[0].delta.content or "" async for part in stream]) == TEXT
    told = await client.chat.completions.create(
        model="m", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    usage = [part.usage async for part in told if part.usage]
    assert [each.prompt_tokens for each in usage] == [9]
    assert last_tokens(rig, 3) == [Tokens(9, 3), Tokens(None, 3, counted=True), Tokens(9, 3)]
    assert server.seen[0].headers["authorization"] == "Bearer anything", "the server may have a key of its own"


async def test_tools_go_through_both_ways(client: openai.AsyncOpenAI, server: ModelServer) -> None:
    whole = await client.chat.completions.create(model="m", messages=ASKED, tools=[TOOL], tool_choice="auto")
    [call] = whole.choices[0].message.tool_calls or []
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Oslo"})
    assert json.loads(server.seen[0].body)["tools"] == [TOOL]
    stream = await client.chat.completions.create(model="m", messages=ASKED, tools=[TOOL], stream=True)
    calls = [c for part in stream_parts(await drained(stream)) for c in part]
    assert [(c.function.name, json.loads(c.function.arguments)) for c in calls] == [("weather", {"city": "Oslo"})]


async def drained(stream):  # type: ignore[no-untyped-def]
    return [part async for part in stream]


def stream_parts(parts):  # type: ignore[no-untyped-def]
    return [part.choices[0].delta.tool_calls or [] for part in parts]


async def test_completions_embeddings_and_responses(client: openai.AsyncOpenAI, rig: Rig) -> None:
    text = await client.completions.create(model="m", prompt="count")
    assert text.choices[0].text == TEXT
    stream = await client.completions.create(model="m", prompt="count", stream=True)
    assert "".join([part.choices[0].text async for part in stream]) == TEXT
    vectors = await client.embeddings.create(model="m", input="count", encoding_format="float")
    assert vectors.data[0].embedding == [0.25, 0.5]
    response = await client.responses.create(model="m", input="count")
    assert response.output_text == TEXT
    events = await drained(await client.responses.create(model="m", input="count", stream=True))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == TEXT
    assert events[-1].type == "response.completed"
    told = [Tokens(9, 3), Tokens(None, 3, counted=True), Tokens(9, None), Tokens(9, 3), Tokens(9, 3)]
    assert last_tokens(rig, 5) == told


async def test_models_are_listed_and_found(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["m"]
    assert (await client.models.retrieve("m")).id == "m"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nobody")


async def test_errors_are_those_that_the_client_knows(client: openai.AsyncOpenAI, rig: Rig) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        await client.chat.completions.create(model="nobody", messages=ASKED)
    assert unknown.value.code == "model_not_found"
    assert "nobody" in unknown.value.message
    rig.apply(RouteSpec(name="m", mode="failed", error="the weights are gone", error_code="launch_failed"))
    with pytest.raises(openai.InternalServerError) as failed:
        await client.chat.completions.create(model="m", messages=ASKED)
    assert failed.value.status_code == 503
    assert "weights" in failed.value.message


async def test_errors_of_the_model_server_come_as_it_wrote_them(
    client: openai.AsyncOpenAI, model: OpenAIServer
) -> None:
    body = json.dumps({"error": {"message": "too long", "type": "invalid_request_error", "code": "length"}}).encode()
    model.fail = [reply(body, 400), reply(body, 401), reply(body, 429), reply(body, 422)]
    kinds = [openai.BadRequestError, openai.AuthenticationError, openai.RateLimitError, openai.UnprocessableEntityError]
    for kind in kinds:
        with pytest.raises(kind) as refused:
            await client.chat.completions.create(model="m", messages=ASKED)
        assert refused.value.code == "length"


async def test_a_full_queue_is_a_rate_limit_that_the_client_waits_out(
    rig: Rig, server: ModelServer, model: OpenAIServer
) -> None:
    limits = Limits(max_in_flight=1, max_queue=0)
    rig.apply(RouteSpec(name="m", mode="serve", targets=(server.target(),), limits=limits))
    async with openai.AsyncOpenAI(base_url=base(rig), api_key="x", max_retries=0) as once:
        stream = await once.chat.completions.create(model="m", messages=ASKED, stream=True, user="endless")
        with pytest.raises(openai.RateLimitError) as full:
            await once.chat.completions.create(model="m", messages=ASKED)
        assert int(full.value.response.headers["retry-after"]) >= 1
        counts = rig.gateway.hub.counts
        refusals = len(counts.ring.records())
        async with openai.AsyncOpenAI(base_url=base(rig), api_key="x", max_retries=5) as patient:
            waiting = asyncio.create_task(patient.chat.completions.create(model="m", messages=ASKED))
            await until(lambda: len(counts.ring.records()) > refusals, "a first refusal")
            await stream.close()
            assert (await waiting).choices[0].message.content == TEXT


async def test_a_stream_that_is_closed_ends_upstream_at_once(
    client: openai.AsyncOpenAI, rig: Rig, server: ModelServer, model: OpenAIServer
) -> None:
    stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True, user="endless")
    async for _ in stream:
        break
    assert model.endless == 1
    await stream.close()
    await until(lambda: model.endless == 0, "the model server to be told")
    await until(lambda: not rig.router.find("m").in_flight)
    assert rig.gateway.hub.counts.ring.records()[0].outcome == "client_gone"


async def test_a_cancelled_call_and_one_that_times_out_end_upstream_too(
    client: openai.AsyncOpenAI, rig: Rig, server: ModelServer, model: OpenAIServer
) -> None:
    call = asyncio.create_task(client.chat.completions.create(model="m", messages=ASKED, user="silent"))
    await until(lambda: len(server.seen) == 1)
    call.cancel()
    await until(lambda: model.cancelled == 1, "the model server to be told of the first")
    with pytest.raises(openai.APITimeoutError):
        await client.chat.completions.create(model="m", messages=ASKED, user="silent", timeout=0.2)
    await until(lambda: model.cancelled == 2, "and of the second")
    await until(lambda: not rig.router.find("m").in_flight)
    assert (await client.chat.completions.create(model="m", messages=ASKED)).choices[0].message.content == TEXT


async def test_fifty_at_once_all_get_their_own_answer(client: openai.AsyncOpenAI, rig: Rig) -> None:
    async def one(number: int) -> str:
        if number % 2:
            stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
            return "".join([part.choices[0].delta.content or "" async for part in stream])
        answer = await client.chat.completions.create(model="m", messages=ASKED)
        return answer.choices[0].message.content or ""

    assert await asyncio.gather(*(one(n) for n in range(50))) == [TEXT] * 50
    assert not rig.router.find("m").in_flight


async def test_the_client_of_threads_works_as_well(rig: Rig, server: ModelServer, model: OpenAIServer) -> None:
    rig.serve(server, name="m")

    def ask() -> str:
        with openai.OpenAI(base_url=base(rig), api_key="x") as client:
            parts = client.chat.completions.create(model="m", messages=ASKED, stream=True)
            return "".join(part.choices[0].delta.content or "" for part in parts)

    assert await asyncio.to_thread(ask) == TEXT

"""What the agent's log says of an answer that is an error."""

import httpx
import pytest

from moorage.agent.link import Link, LinkDown, LinkError, LinkStale
from moorage.wire.agent import Capacity, Join

JOIN = Join(name="box", incarnation="i", boot_id="b", capacity=Capacity(cpu_milli=1, memory_bytes=1))
TAKEN = {
    "code": "machine_name_taken",
    "category": "conflict",
    "message": "a machine named box is already joined",
    "remedy": "give this agent another name",
    "retryable": True,
}


async def said(answer: httpx.Response) -> LinkError:
    http = httpx.AsyncClient(transport=httpx.MockTransport(lambda request: answer))
    with pytest.raises(LinkError) as caught:
        await Link("http://control", http).join(JOIN)
    return caught.value


async def test_the_control_planes_own_words_are_shown_and_not_its_json() -> None:
    error = await said(httpx.Response(409, json=TAKEN))
    assert str(error) == "join: a machine named box is already joined. give this agent another name"
    assert isinstance(error, LinkStale)


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"[]", b'"text"', b'{"message": null}'])
async def test_an_answer_of_somebody_else_is_quoted(body: bytes) -> None:
    error = await said(httpx.Response(502, content=body))
    assert isinstance(error, LinkDown)
    assert str(error).startswith("join: 502 ")

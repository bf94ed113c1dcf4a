"""A process of a gateway that is there and serves nobody is replaced by its master."""

import os
import signal
from pathlib import Path

from gateway_process import gateway_process, is_alive
from gateway_rig import get, until


async def test_a_process_that_hangs_is_replaced_and_its_address_answers_again(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, hang_after_s=5.0) as gateway:
        (hung,) = gateway.status()["workers"]
        os.kill(hung, signal.SIGSTOP)
        waiting = await gateway.connect()
        waiting.send(get("/livez"))
        await until(lambda: not is_alive(hung))
        await until(lambda: gateway.status()["workers"] not in ([], [hung]))
        waiting.close()
        client = await gateway.connect()
        client.send(get("/livez"))
        assert (await client.answer()).status == 200
        assert [each["pid"] for each in gateway.named("worker.hung")] == [hung]
        assert "hung" in gateway.status()["last_death"]["how"]

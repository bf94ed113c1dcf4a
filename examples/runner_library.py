"""Two model servers kept by this program alone, one of them crashing: `python examples/runner_library.py`.

No control plane is needed. `server.py` beside this file stands for a real server; put yours in its place, as in
`["llama-server", "--port", "{port}", "-m", "gemma.gguf"]`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from moorage.runners import ModelRunner, ModelSpec

SERVER = Path(__file__).with_name("server.py")


async def tell(runner: ModelRunner) -> None:
    async for change in runner.events():
        print(f"  {change.model}: {change.source} → {change.target} ({change.reason.message})")


async def main() -> None:
    spec = ModelSpec([sys.executable, str(SERVER), "--port", "{port}"])
    async with ModelRunner(restart_delay=0.5) as runner:
        telling = asyncio.create_task(tell(runner))
        await asyncio.gather(runner.start("one", spec), runner.start("two", spec))
        for name in runner.states():
            print(f"{name} answers at {runner.info(name).address}")
        changes, pid = runner.events(), runner.info("one").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await anext(changes)  # the crash was seen; a request waits through the restart
        answer = await runner.ainvoke("one", prompt="still there?", max_tokens=8)
        print("one, after its crash:", answer["choices"][0]["message"]["content"])
    await telling


asyncio.run(main())

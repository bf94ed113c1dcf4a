"""Run as a program: writes to a store as fast as it can and prints what was acknowledged, until it is killed.

    python burst.py URL ROUND

Each line is `UID VERSION`, printed only after the commit answered. Each change also takes a GPU and writes a partner
row, so that a half-written change would show.
"""

import asyncio
import sys

from moorage.clock import SystemClock
from moorage.domain.changes import Change, Create, Hold, Step, Update
from moorage.domain.nouns import Worker
from moorage.domain.reasons import Reason, ReasonClass
from moorage.store import open_store

WRITERS = 32
WHY = Reason("burst", ReasonClass.PROGRESS, "written in a burst", {"filler": "x" * 200})
PATH = (("Preparing", "picked_up"), ("Pulling", "pulling"), ("Starting", "started"), ("Running", "running"))


async def main(url: str, number: str) -> None:
    store = await open_store(url, SystemClock())

    async def write(writer: int) -> None:
        count = 0
        while True:
            count += 1
            uid, partner = f"{number}-{writer}-{count}", f"{number}-{writer}-{count}-partner"
            rows = (Create(Worker(uid=uid), WHY), Create(Worker(uid=partner), WHY), Hold(f"m-{uid}", uid, 1, (0,)))
            await store.commit(Change(rows, "burst"))
            print(uid, 1, flush=True)
            for version, (state, trigger) in enumerate(PATH, 1):
                step = (Step(state, trigger, WHY),)
                both = (Update("Worker", uid, version, step), Update("Worker", partner, version, step))
                await store.commit(Change(both, "burst"))
                print(uid, version + 1, flush=True)

    await asyncio.gather(*(write(writer) for writer in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

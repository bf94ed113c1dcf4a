"""An installation on SQLite never pays for PostgreSQL: neither its driver nor its dialect is loaded."""

import subprocess
import sys
from pathlib import Path

from moorage.store import migrate

USED = """
import asyncio, sys
from moorage.clock import SystemClock
from moorage.domain.changes import Change, Create
from moorage.domain.nouns import Worker
from moorage.domain.reasons import reason
from moorage.store import open_store

async def main():
    store = await open_store(sys.argv[1], SystemClock())
    feed = store.follow(await store.cursor())
    await store.commit(Change((Create(Worker(uid="w1"), reason("worker.created")),), "test"))
    assert len(await anext(feed)) == 1
    await store.close()

asyncio.run(main())
print(*sorted(name for name in sys.modules if "psycopg" in name or "dialects.postgresql" in name))
"""


def test_a_store_on_sqlite_loads_neither_psycopg_nor_the_postgresql_dialect(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    migrate(url)
    done = subprocess.run([sys.executable, "-c", USED, url], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr

"""A worker's certificate is replaced whole, for its owner only, before it ends."""

import asyncio
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from moorage.agent import certificates
from moorage.clock import SystemClock
from moorage.control.authority import CERTIFICATE_TTL, Authority
from moorage.control.sealing import Sealer
from moorage.store import open_store
from moorage.wire.giving import IdentityAnswer


class HandClock:
    """Sleeps end when the test says so; the time is then what was waited for."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.slept: list[float] = []
        self.go = asyncio.Event()

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.go.wait()
        self.go.clear()
        self.at += seconds


class Desk:
    def __init__(self, answers: list[IdentityAnswer]) -> None:
        self.answers = answers
        self.asked = 0

    async def identity(self, worker: str, epoch: int) -> IdentityAnswer:
        self.asked += 1
        return self.answers.pop(0)


@pytest.mark.parametrize(("contained", "mode"), [(False, 0o600), (True, 0o644)])
def test_the_files_are_as_readable_as_their_reader_needs(tmp_path: Path, contained: bool, mode: int) -> None:
    answer = IdentityAnswer(certificate="c", key="k", authority="a")
    certificates.write(tmp_path / "identity", answer, contained=contained)
    certificates.write(tmp_path / "identity", answer, contained=contained)
    found = sorted((tmp_path / "identity").iterdir())
    assert [f.name for f in found] == ["ca.pem", "cert.pem", "key.pem"]
    assert {stat.S_IMODE(f.stat().st_mode) for f in found} == {mode}


async def test_a_certificate_is_renewed_after_two_thirds_and_asked_for_again_when_that_fails(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path}/m.db", SystemClock())
    clock = HandClock(1_800_000_000.0)
    authority: Any = Authority(store, clock, Sealer(tmp_path / "key"))
    issued = [await authority.issue("default", "run", "w", "127.0.0.1") for _ in range(2)]
    first, second = (IdentityAnswer(certificate=c, key=k, authority="a") for c, k in issued)
    certificates.write(tmp_path / "identity", first, contained=False)
    account: Any = SimpleNamespace(
        launch=SimpleNamespace(runner="process"),
        attempt=SimpleNamespace(worker="w", epoch=1),
        log=structlog.get_logger(),
    )
    desk: Any = Desk([IdentityAnswer(why="away"), second])
    renewing = asyncio.create_task(certificates.keep_fresh(account, tmp_path / "identity", desk, clock))

    async def until_sleeping(times: int) -> None:
        async with asyncio.timeout(60):
            while len(clock.slept) < times:
                await asyncio.sleep(0)

    await until_sleeping(1)
    assert desk.asked == 0
    assert clock.slept[0] == pytest.approx(CERTIFICATE_TTL.total_seconds() * 2 / 3, rel=0.01)
    clock.go.set()
    await until_sleeping(2)
    assert (desk.asked, clock.slept[1]) == (1, certificates.RETRY_S)
    assert (tmp_path / "identity" / "cert.pem").read_text() == first.certificate
    clock.go.set()
    async with asyncio.timeout(60):
        while (tmp_path / "identity" / "cert.pem").read_text() != second.certificate:
            await asyncio.sleep(0)
    renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)
    await store.close()

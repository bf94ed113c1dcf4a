"""Workers, agents and machines that die or fall silent, with real processes: never two counted copies, the late one is
stopped first, and a success stands.
"""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from whole_plane import WholePlane, alive, kill_9

from moorage.domain.nouns import Machine

WINDOW_AND_BACKOFF_S = 75.0


@pytest.fixture
async def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WholePlane]:
    it = WholePlane(tmp_path)
    await it.open(monkeypatch)
    yield it
    await it.close()


async def test_a_machine_cut_off_beyond_its_return_window_finds_its_work_elsewhere_and_ends_its_copy(plane):
    await plane.agent("a")
    await plane.submit()
    old = await plane.pid_of(1)
    await plane.worker_is("Running", epoch=1)
    await plane.agent("b")
    plane.agents["a"].send(signal.SIGSTOP)
    await plane.worker_is("Down", epoch=1)
    assert await plane.places() == set()
    plane.clock.ahead_s += WINDOW_AND_BACKOFF_S
    moved = await plane.worker_is("Running", epoch=3)
    assert moved.machine_name == "b"
    assert alive(old), "who is cut off cannot tell, and goes on"
    plane.agents["a"].send(signal.SIGCONT)
    await plane.until(lambda: not alive(old), "the old copy is ended")
    await plane.machine_is("a", "Ready")

    async def only_the_new() -> bool:
        return await plane.places() == {3}

    await plane.until(only_the_new, "the place of the old copy is free")
    now = await plane.worker_is("Running")
    assert (now.epoch, now.machine_name, alive(await plane.pid_of(3))) == (3, "b", True)
    assert "worker.returned" not in await plane.codes()


async def test_a_machine_that_comes_back_ends_its_late_copy_before_it_starts_the_next(plane):
    await plane.agent("a")
    await plane.submit()
    old = await plane.pid_of(1)
    await plane.worker_is("Running", epoch=1)
    plane.agents["a"].send(signal.SIGSTOP)
    await plane.worker_is("Down", epoch=1)
    plane.clock.ahead_s += WINDOW_AND_BACKOFF_S
    await plane.worker_is("Pending", epoch=2)  # there is no other machine: it stays so
    plane.agents["a"].send(signal.SIGCONT)
    await plane.pid_of(3)
    await plane.worker_is("Running", epoch=3)
    assert not alive(old)
    assert plane.beside == []


async def test_a_machine_back_within_its_return_window_keeps_the_same_process(plane):
    await plane.agent("a")
    await plane.submit()
    pid = await plane.pid_of(1)
    await plane.worker_is("Running", epoch=1)
    plane.agents["a"].send(signal.SIGSTOP)
    await plane.worker_is("Down", epoch=1)
    plane.agents["a"].send(signal.SIGCONT)
    await plane.worker_is("Running", epoch=1)
    assert alive(pid)
    assert await plane.places() == {1}
    assert (await plane.codes())[-1] == "worker.returned"


async def test_a_success_that_nobody_could_hear_stands(plane):
    """The agent dies, the program ends well, the machine is lost; what the agent finds later is what counts."""
    await plane.agent("a")
    await plane.submit()
    await plane.pid_of(1)
    await plane.worker_is("Running", epoch=1)
    await plane.agents["a"].kill()
    plane.tell_to_exit(1)
    await plane.worker_is("Down", epoch=1)
    await plane.agent("a")
    await plane.worker_is("Completed", epoch=1)
    await plane.run_is("Completed")
    plane.clock.ahead_s += WINDOW_AND_BACKOFF_S
    await plane.machine_is("a", "Ready")
    assert (await plane.worker_is("Completed")).epoch == 1
    assert await plane.places() == set()


@pytest.mark.parametrize("agent_too", [False, True])
async def test_a_killed_worker_is_started_again_whether_or_not_its_agent_died_with_it(plane, agent_too):
    await plane.agent("a")
    await plane.submit(restart={"backoff": 0.1})
    pid = await plane.pid_of(1)
    await plane.worker_is("Running", epoch=1)
    if agent_too:
        await plane.agents["a"].kill()
    kill_9(pid)
    if agent_too:
        await plane.agent("a")
    await plane.pid_of(3)
    again = await plane.worker_is("Running", epoch=3)
    assert again.restarts == 1
    assert dict(again.last_failure or {})["exit_code"] == 137
    assert plane.beside == []


async def test_a_removed_machine_ends_all_it_holds_and_its_name_may_join_anew(plane):
    agent = await plane.agent("a")
    await plane.submit()
    old = await plane.pid_of(1)
    before = (await plane.worker_is("Running", epoch=1)).machine
    await plane.graph.deps.commands.remove_machine("a", actor="person:p", key=None)
    await plane.worker_is("Pending", epoch=2)
    assert await agent.wait() == 0
    assert not alive(old)
    assert await plane.places() == set()
    await plane.agent("a")
    machines = await plane.store.find(Machine, name="a")
    assert sorted(m.state for m in machines) == ["Ready", "Removed"]
    assert {m.uid for m in machines if m.state == "Removed"} == {before}

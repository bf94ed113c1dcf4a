"""What every host of model servers must do: one suite for processes, podman and docker, on the real things."""

import asyncio
import os
import signal
import socket

import httpx
import pytest
from host_world import PATIENCE_S, end_of, until, within

from moorage.clock import SystemClock
from moorage.domain.errors import PortUnavailable, RunnerError
from moorage.runners.identity import shown_cookie
from moorage.runners.progress import observe
from moorage.runners.readiness import ReadinessCheck
from moorage.runners.shimming import procfs
from moorage.wire.agent import Ready
from tests.engines import BUSYBOX
from tests.ports import free_ports

DAEMON = "setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1000; done' >/dev/null 2>&1 & "
IGNORES_TERM = "trap '' TERM; echo up; while :; do sleep 0.05; done"
OBEYS_TERM = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"


def carriers(cookie):
    """Pids on this machine that were started under the cookie."""
    carrying = [number for number in procfs.numbers() if shown_cookie(number, cookie)]
    return [pid for number in carrying if (pid := procfs.ours(number))]


async def says(hosted, text):
    await until_async(hosted.lines, lambda found: text in found.lines)


async def until_async(ask, true):
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while not true(await ask()):
        assert asyncio.get_running_loop().time() < deadline, "did not come true"
        await asyncio.sleep(0.02)


# How it ended


@pytest.mark.parametrize("code", [0, 7, 125, 255])
async def test_an_exit_code_is_told_exactly(any_world, code):
    how = await end_of(await any_world.shell(f"exit {code}"))
    assert (how.code, how.signal, how.stopped, how.oom, how.error, how.missing) == (code, 0, False, False, "", False)


async def test_a_kill_from_outside_is_told_as_its_signal(any_world):
    hosted = await any_world.shell("exec sleep 1000")
    os.kill(hosted.identity.pid, signal.SIGKILL)
    how = await end_of(hosted)
    assert (how.code, how.signal, how.stopped, how.oom, how.missing) == (137, 9, False, False, False)


async def test_a_missing_binary_is_127_with_its_name(any_world):
    how = await end_of(await any_world.start("/no/such/binary"))
    assert how.code == 127
    assert "/no/such/binary" in how.error
    assert not how.executed


async def test_a_folder_is_no_program_and_told_as_126(any_world):
    how = await end_of(await any_world.start("/etc"))
    assert (how.code, how.executed) == (126, False)
    assert "/etc" in how.error


async def test_a_program_that_itself_exits_127_did_execute(any_world):
    how = await end_of(await any_world.shell("exit 127"))
    assert (how.code, how.executed) == (127, True)


async def test_an_argument_that_cannot_be_passed_is_refused_before_anything_starts(any_world):
    with pytest.raises(RunnerError, match="NUL"):
        await any_world.host.start(any_world.intent("echo", "a\0b"))


async def test_many_at_once_are_kept_apart(any_world):
    hosted = await asyncio.gather(*(any_world.shell(f"exit {n}") for n in range(1, 5)))
    ends = await asyncio.gather(*(end_of(h) for h in hosted))
    assert [e.code for e in ends] == [1, 2, 3, 4]


# What it gets


async def test_the_environment_and_working_directory_that_were_given_are_there(any_world):
    hosted = await any_world.shell('echo "$A:$(pwd)"', env={"A": "given"}, workdir="/tmp")
    await end_of(hosted)
    assert (await hosted.lines()).lines == ("given:/tmp",)


async def test_secrets_of_the_environment_are_not_left_on_disk_nor_shown(any_world):
    intent = any_world.intent("/bin/sh", "-c", "exec sleep 1000", env={"TOKEN": "hush-hush"})
    hosted = await any_world.launch(intent)
    await asyncio.sleep(0)
    for path in intent.folder.iterdir():
        assert not path.is_file() or b"hush-hush" not in path.read_bytes()
    assert "hush-hush" not in repr(hosted.identity) + str(hosted.identity.to_wire()) + str(hosted.evidence)


async def test_a_port_that_a_stranger_has_is_refused_with_who_has_it(any_world):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        intent = any_world.intent("/bin/sh", "-c", "exit 0", port=stranger.getsockname()[1])
        with pytest.raises(PortUnavailable, match=rf"already in use by .*\(pid {os.getpid()}\)"):
            await any_world.host.start(intent)


async def test_a_model_server_passes_the_same_readiness_check_on_each_host(any_world, tmp_path):
    (port,) = free_ports(1)
    root, server = "/www", "/bin/httpd"
    if any_world.name == "process":
        root, server = str(tmp_path / "www"), f"{BUSYBOX} httpd"
        (tmp_path / "www" / "v1").mkdir(parents=True)
        (tmp_path / "www" / "health").write_text('{"status": "ok"}')
        (tmp_path / "www" / "v1" / "models").write_text('{"data": [{"id": "tiny"}]}')
    waited = []
    serve = f"exec {server} -f -p 127.0.0.1:{port} -h {root}"
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        hosted = await any_world.shell(
            f"trap go=1 USR1; echo up; while [ -z $go ]; do sleep 0.05; done; {serve}", port=port
        )
        await says(hosted, "up")

        def tell(why):
            waited.append(why)
            os.kill(hosted.identity.pid, signal.SIGUSR1)

        wanted = Ready(model="tiny", timeout_s=PATIENCE_S, interval_s=0.05)
        base = f"http://127.0.0.1:{port}"
        check = ReadinessCheck(wanted, base, http, SystemClock(), lambda: observe(hosted))
        assert await check.wait(tell) is None
    assert [why.code for why in waited] == ["ready.waiting"]


async def test_a_server_that_crashes_before_it_is_ready_is_told_with_its_last_words(any_world):
    hosted = await any_world.shell("echo loading; sleep 0.2; echo 'cannot allocate' >&2; exit 13")
    assert (await within(hosted.exited)).code == 13
    assert set((await hosted.lines()).lines) == {"loading", "cannot allocate"}


# Stopping


async def test_a_stop_lets_a_server_end_by_itself_within_its_grace(any_world):
    hosted = await any_world.shell(OBEYS_TERM)
    await says(hosted, "up")
    await hosted.stop(signal.SIGTERM, PATIENCE_S)
    how = await end_of(hosted)
    assert (how.code, how.stopped) == (3, True)
    assert "bye" in (await hosted.lines()).lines


async def test_a_server_that_ignores_sigterm_is_killed_after_its_grace(any_world):
    hosted = await any_world.shell(IGNORES_TERM)
    await says(hosted, "up")
    await hosted.stop(signal.SIGTERM, 0.3)
    how = await end_of(hosted)
    assert (how.signal, how.stopped) == (9, True)


async def test_a_second_stop_shortens_the_grace_and_never_lengthens_it(any_world):
    hosted = await any_world.shell(IGNORES_TERM)
    await says(hosted, "up")
    await hosted.stop(signal.SIGTERM, 3600.0)
    await hosted.stop(signal.SIGTERM, 0.1)
    await hosted.stop(signal.SIGTERM, 3600.0)
    assert (await end_of(hosted)).signal == 9


async def test_a_stop_after_the_end_changes_nothing(any_world):
    hosted = await any_world.shell("exit 4")
    await end_of(hosted)
    await hosted.stop(signal.SIGTERM, PATIENCE_S)
    assert (await within(hosted.exited)).code == 4
    assert not (await within(hosted.exited)).stopped


async def test_a_daemon_in_a_session_of_its_own_does_not_survive_a_stop(any_world):
    intent = any_world.intent("/bin/sh", "-c", f"{DAEMON} echo up; while :; do sleep 0.05; done")
    hosted = await any_world.launch(intent)
    await until(lambda: len(carriers(intent.cookie)) > 1)
    await hosted.stop(signal.SIGTERM, 0.2)
    await end_of(hosted)
    assert carriers(intent.cookie) == []


async def test_a_daemon_does_not_survive_the_crash_of_its_server(any_world):
    intent = any_world.intent("/bin/sh", "-c", f"{DAEMON} sleep 0.3; exit 9")
    how = await end_of(await any_world.launch(intent))
    assert how.code == 9
    assert carriers(intent.cookie) == []


async def test_what_is_alive_is_seen_alive_and_what_has_ended_is_not(any_world):
    hosted = await any_world.shell("exec sleep 1000")
    assert hosted.alive
    assert hosted.seen_alive()
    assert not hosted.rebooted
    assert hosted.identity.to_wire()["pid"] == hosted.identity.pid > 0
    os.kill(hosted.identity.pid, signal.SIGKILL)
    await until(lambda: not hosted.seen_alive())
    await end_of(hosted)
    assert not hosted.alive


# Finding it again


async def test_it_survives_the_kill_of_its_owner_and_is_adopted_with_the_same_pid(any_world):
    intent, owner = await any_world.owned_by_another("echo up; exec sleep 1000")
    owner.kill()
    await owner.wait()
    adopted = await any_world.adopt(intent)
    assert adopted.alive
    assert adopted.seen_alive()
    assert adopted.evidence
    assert adopted.identity.pid in carriers(intent.cookie)
    await says(adopted, "up")
    await adopted.stop(signal.SIGTERM, 0.1)
    assert (await end_of(adopted)).stopped
    assert carriers(intent.cookie) == []


async def test_an_exit_while_nobody_owned_it_is_found_with_its_code(any_world):
    intent, owner = await any_world.owned_by_another("echo first; sleep 0.5; echo last; exit 21")
    owner.kill()
    await owner.wait()
    await until(lambda: not carriers(intent.cookie))
    adopted = await any_world.adopt(intent)
    how = await end_of(adopted)
    assert (how.code, how.stopped) == (21, False)
    await within(adopted.gone)  # the news of an end waits two seconds for its last words, its removal for all of them
    assert (await adopted.lines()).lines == ("first", "last")


async def test_an_adopted_one_that_ends_later_is_told_with_its_code(any_world):
    intent, owner = await any_world.owned_by_another("sleep 2; exit 22")
    owner.kill()
    await owner.wait()
    adopted = await any_world.adopt(intent)
    assert (await end_of(adopted)).code == 22


async def test_an_end_that_was_seen_before_is_told_again_after_another_restart(any_world):
    intent = any_world.intent("/bin/sh", "-c", "exit 23")
    await end_of(await any_world.launch(intent))
    any_world.new_host()
    assert (await end_of(await any_world.adopt(intent))).code == 23


async def test_an_attempt_that_never_started_is_proven_so(any_world):
    assert await any_world.adopt(any_world.intent("/bin/sh", "-c", "exit 0")) is None


# Its log


async def test_lines_are_numbered_and_read_from_the_end_or_after_a_number(any_world):
    hosted = await any_world.shell("i=1; while [ $i -le 20 ]; do echo line $i; i=$((i+1)); done")
    await end_of(hosted)
    last = await hosted.lines(lines=2)
    assert (last.lines, last.first_seq, last.next_seq, last.missed) == (("line 19", "line 20"), 19, 21, 0)
    some = await hosted.lines(lines=3, after=4)
    assert (some.lines, some.first_seq, some.next_seq) == (("line 5", "line 6", "line 7"), 5, 8)
    assert (await hosted.lines(after=20)).lines == ()


async def test_a_log_goes_on_without_a_gap_or_a_repeat_over_a_restart_of_its_reader(any_world):
    code = "i=1; while [ $i -le 300 ]; do echo $i; i=$((i+1)); sleep 0.01; done; exec sleep 1000"
    intent = any_world.intent("/bin/sh", "-c", code)
    first = await any_world.launch(intent)
    await says(first, "40")
    any_world.hosted.remove(first)
    first.close()
    any_world.new_host()
    again = await any_world.adopt(intent)
    await says(again, "300")
    assert (await again.lines(lines=1000)).lines == tuple(str(n) for n in range(1, 301))


async def test_a_flood_of_output_is_bounded_on_disk(any_world):
    line = "x" * 1000
    intent = any_world.intent("/bin/sh", "-c", f"yes {line} | head -n 70000; echo done")
    hosted = await any_world.launch(intent)
    await within(hosted.gone)
    kept = sum(p.stat().st_size for p in intent.folder.iterdir() if p.is_file())
    assert kept < (36 << 20)
    assert (await hosted.lines(lines=1)).lines == ("done",)
    if any_world.name == "process":  # an engine forgets at its own limit, before anybody can number what it forgets
        early = await hosted.lines(lines=1, after=0)
        assert early.missed == early.first_seq - 1 > 0

"""What every host of workers must do, shown on real processes."""

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from host_world import FAKE_MODEL, PATIENCE_S, end_of, until, within

from moorage.domain.errors import RunnerError
from moorage.runners import logfile
from moorage.runners.identity import alive, identity_from, read_fields
from moorage.runners.process import LaunchIntent
from moorage.runners.progress import observe
from moorage.runners.shimming import procfs
from moorage.runners.shimming.kernel import start_ticks, write_whole
from moorage.runners.shimming.log import LINE_BYTES_MAX, SEGMENT_BYTES

DAEMON = """
import os, sys, time, signal
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    while True:
        time.sleep(1000)
"""


async def daemon_of(path):
    await until(path.exists)
    pid = int(path.read_text())
    return pid, start_ticks(pid)


# How it ended


@pytest.mark.parametrize("code", [0, 1, 7, 125, 255])
async def test_an_exit_code_is_told_exactly(world, code):
    how = await end_of(await world.start("/bin/sh", "-c", f"exit {code}"))
    assert (how.code, how.signal, how.stopped, how.error) == (code, 0, False, "")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
async def test_a_signal_is_told_apart_from_an_exit_code(world, number):
    process = await world.start("/bin/sleep", "1000")
    os.kill(process.identity.pid, number)
    how = await end_of(process)
    assert (how.code, how.signal, how.stopped, how.oom) == (128 + number, number, False, False)


async def test_a_missing_binary_is_127_with_its_name(world):
    how = await end_of(await world.start("/no/such/binary"))
    assert how.code == 127
    assert "/no/such/binary" in how.error
    assert not how.executed


async def test_a_name_that_is_not_on_the_path_is_127(world):
    how = await end_of(await world.start("no-such-program-anywhere"))
    assert (how.code, how.executed) == (127, False)


async def test_a_file_that_is_not_executable_is_126(world, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    how = await end_of(await world.start(str(plain)))
    assert how.code == 126
    assert "ermission" in how.error


async def test_a_missing_working_directory_is_not_taken_for_a_missing_command(world):
    how = await end_of(await world.start("/bin/true", workdir="/no/such/folder"))
    assert how.error == "its working directory /no/such/folder does not exist on this machine"
    assert (how.code, how.executed) == (126, False)


async def test_a_working_directory_that_is_a_file_is_told_so(world, tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    how = await end_of(await world.start("/bin/true", workdir=str(plain)))
    assert how.error == f"its working directory {plain} is not a directory on this machine"


async def test_a_working_directory_that_may_not_be_entered_is_told_so(world, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    if os.access(closed, os.X_OK):
        pytest.skip("whoever may do everything may enter every directory")
    how = await end_of(await world.start("/bin/true", workdir=str(closed)))
    assert how.error == f"its working directory {closed} cannot be entered: permission denied"


async def test_a_program_that_itself_exits_127_did_execute(world):
    how = await end_of(await world.start("/bin/sh", "-c", "exit 127"))
    assert (how.code, how.executed) == (127, True)


async def test_an_argument_that_cannot_be_passed_is_refused_before_anything_starts(world):
    folder, cookie = world.folder()
    with pytest.raises(RunnerError, match="NUL"):
        await world.host.start(LaunchIntent(folder, cookie, ["/bin/echo", "a\0b"], {}))


async def test_many_at_once_are_kept_apart(world):
    processes = await asyncio.gather(*(world.start("/bin/sh", "-c", f"exit {n}") for n in range(1, 9)))
    ends = await asyncio.gather(*(end_of(p) for p in processes))
    assert [e.code for e in ends] == list(range(1, 9))


async def test_ended_shims_are_collected_and_leave_no_zombie_and_no_descriptor(world):
    first = await world.start("/bin/true")
    await end_of(first)
    before = len(list(Path("/proc/self/fd").iterdir()))
    shims = []
    for _ in range(5):
        process = await world.start("/bin/true")
        shims.append((process.identity.shim_pid, process.identity.shim_ticks))
        await end_of(process)
        process.close()
    await until(lambda: not any(start_ticks(pid) == ticks for pid, ticks in shims))
    await until(
        lambda: len(list(Path("/proc/self/fd").iterdir())) <= before + 1
    )  # the spare shim's pipe comes and goes


async def test_a_kill_for_memory_is_told_from_any_other_kill(world):
    group = Path("/sys/fs/cgroup/memory") / f"moorage-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(32 << 20))
    except OSError:
        pytest.skip("no memory cgroup that this user may make")
    try:
        eat = f"{sys.executable} -c 'x = bytearray(512 << 20)'"
        process = await world.start("/bin/sh", "-c", f"echo $$ > {group}/cgroup.procs && exec {eat}")
        how = await end_of(process)
        assert (how.signal, how.oom) == (signal.SIGKILL, True)
    finally:
        group.rmdir()


# What it is given


async def test_the_environment_is_exactly_what_was_given_and_the_cookie(world):
    process = await world.start("/usr/bin/env", env={"A": "b=c\nd"})
    await end_of(process)
    text = logfile.tail(process.folder)
    assert "A=b=c\nd" in text
    assert f"MOORAGE_COOKIE={process.cookie}" in text
    assert "HOME=" not in text


async def test_secrets_of_the_environment_are_not_left_on_disk(world):
    process = await world.start("/bin/sleep", "1000", env={"SECRET": "hunter2"})
    kept = [p for p in process.folder.iterdir() if p.is_file() and b"hunter2" in p.read_bytes()]
    assert kept == []


@pytest.fixture
def in_the_background():
    """As a script starts what it leaves behind: SIGINT and SIGQUIT ignored."""
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in (signal.SIGINT, signal.SIGQUIT)]
    yield
    for number, was in before:
        signal.signal(number, was)


async def test_signal_dispositions_are_the_defaults(in_the_background, world):
    process = await world.start("/bin/sh", "-c", "grep -E 'SigIgn|SigBlk' /proc/self/status")
    await end_of(process)
    sets = dict(line.split(":\t") for line in logfile.tail(process.folder).splitlines())
    libc = 1 << 31 | 1 << 32  # signals 32 and 33 are the C library's own: it lets nobody set them back
    assert int(sets["SigIgn"], 16) & ~libc == 0
    assert int(sets["SigBlk"], 16) & ~libc == 0


async def test_no_descriptor_of_ours_leaks_into_the_command(world):
    process = await world.start("/bin/sh", "-c", "ls -l /proc/self/fd")
    await end_of(process)
    targets = [line.split("-> ")[1] for line in logfile.tail(process.folder).splitlines() if "->" in line]
    assert all(t.startswith(("/dev/null", "pipe:", "/proc/")) for t in targets), targets
    assert len(targets) == 4  # 0, 1, 2, and the directory that ls itself reads


# Stopping


async def test_a_stop_lets_a_server_end_by_itself_within_its_grace(world):
    process = await world.python(
        "import signal,sys,time\nsignal.signal(15, lambda *_: sys.exit(3))\nprint('on')\ntime.sleep(1000)"
    )
    await until(lambda: logfile.tail(process.folder) == "on")
    await process.stop(signal.SIGTERM, PATIENCE_S)
    how = await end_of(process)
    assert (how.code, how.stopped) == (3, True)


async def test_a_server_that_ignores_sigterm_is_killed_after_its_grace(world):
    process = await world.python("import signal,time\nsignal.signal(15, signal.SIG_IGN)\nprint('on')\ntime.sleep(1000)")
    await until(lambda: logfile.tail(process.folder) == "on")
    await process.stop(signal.SIGTERM, 0.2)
    how = await end_of(process)
    assert (how.signal, how.stopped) == (signal.SIGKILL, True)


async def test_a_second_stop_shortens_the_grace_and_never_lengthens_it(world):
    process = await world.python("import signal,time\nsignal.signal(15, signal.SIG_IGN)\nprint('on')\ntime.sleep(1000)")
    await until(lambda: logfile.tail(process.folder) == "on")
    await process.stop(signal.SIGTERM, 1000.0)
    await process.stop(signal.SIGTERM, 0.0)
    await process.stop(signal.SIGTERM, 1000.0)
    assert (await end_of(process)).signal == signal.SIGKILL


async def test_a_wrapper_that_ends_first_does_not_cut_the_grace_of_the_server_behind_it(world, tmp_path):
    done = tmp_path / "done"
    server = tmp_path / "server.py"
    server.write_text(
        "import signal, sys, time\n"
        f"signal.signal(15, lambda *_: (time.sleep(0.5), open({str(done)!r}, 'w'), sys.exit(0)))\n"
        "print('on')\ntime.sleep(1000)\n"
    )
    process = await world.start("/bin/sh", "-c", f"{sys.executable} -u {server} & wait; true")
    await until(lambda: logfile.tail(process.folder) == "on")
    await process.stop(signal.SIGTERM, PATIENCE_S)
    await end_of(process)
    assert done.exists()


async def test_a_daemon_in_a_session_of_its_own_does_not_survive_a_stop(world, tmp_path):
    process = await world.start(sys.executable, "-c", DAEMON + "time.sleep(1000)", str(tmp_path / "pid"))
    pid, ticks = await daemon_of(tmp_path / "pid")
    await process.stop(signal.SIGTERM, 0.3)
    await end_of(process)
    assert not alive(pid, ticks)


async def test_a_daemon_does_not_survive_the_crash_of_its_server(world, tmp_path):
    process = await world.start(sys.executable, "-c", DAEMON + "time.sleep(1000)", str(tmp_path / "pid"))
    pid, ticks = await daemon_of(tmp_path / "pid")
    os.kill(process.identity.pid, signal.SIGKILL)
    how = await end_of(process)
    assert (how.signal, how.stopped) == (signal.SIGKILL, False)
    assert not alive(pid, ticks)


async def test_a_tree_that_keeps_forking_is_emptied(world):
    process = await world.start("/bin/sh", "-c", "while :; do /bin/sleep 1000 & /bin/true; done")
    await process.stop(signal.SIGTERM, 0.1)
    await end_of(process)
    assert not Path(process.identity.cgroup or "/none").exists()


# The owner's death


async def test_a_worker_survives_the_kill_of_its_owner_and_is_adopted_with_the_same_pid(world):
    folder, owner = await world.owned_by_another("/bin/sh", "-c", "sleep 1000; exit 4")
    owner.kill()
    await owner.wait()
    process = await world.adopt(folder)
    known = identity_from(read_fields((folder / "identity").read_text()))
    assert process.alive
    assert process.identity == known
    assert process.seen_alive()
    await process.stop(signal.SIGTERM, PATIENCE_S)
    how = await end_of(process)
    assert (how.signal, how.stopped) == (signal.SIGTERM, True)


async def test_an_exit_while_nobody_owned_it_is_found_with_its_code(world, tmp_path):
    go = tmp_path / "go"
    folder, owner = await world.owned_by_another("/bin/sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; exit 9")
    owner.kill()
    await owner.wait()
    go.touch()
    await until((folder / "gone").exists)
    process = await world.adopt(folder)
    assert process.exited.result().code == 9
    assert process.gone.done()


async def test_an_adopted_worker_that_ends_later_is_told_with_its_code(world, tmp_path):
    go = tmp_path / "go"
    folder, owner = await world.owned_by_another("/bin/sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done; exit 9")
    owner.kill()
    await owner.wait()
    process = await world.adopt(folder)
    assert process.alive
    go.touch()
    assert (await end_of(process)).code == 9


async def test_an_attempt_that_never_started_is_fenced_off_for_good(world):
    folder, cookie = world.folder()
    folder.mkdir()
    assert await world.adopt(folder) is None
    ran = folder / "ran"
    process = await world.host.start(LaunchIntent(folder, cookie, ["/usr/bin/touch", str(ran)], {}))
    assert (await end_of(process)).code == 0  # without a FIFO there was no fence: nothing could have been on its way
    other, cookie = world.folder()
    other.mkdir()
    os.mkfifo(other / "events")
    os.mkfifo(other / "control")
    assert await world.adopt(other) is None
    late = await world.host.start(LaunchIntent(other, cookie, ["/usr/bin/touch", str(other / "ran")], {}))
    await within(late.gone)
    assert not (other / "ran").exists()
    assert late.exited.result().code is None


async def test_after_a_reboot_everything_is_gone_and_nothing_is_signalled(world):
    process = await world.start("/bin/sleep", "1000")
    copy, _ = world.folder()
    world.cookies[copy] = process.cookie
    shutil.copytree(process.folder, copy, ignore=shutil.ignore_patterns("control", "events", "*.new"))
    fields = read_fields((copy / "identity").read_text()) | {"boot_id": "another-boot"}
    write_whole(str(copy / "identity"), "".join(f"{k}={v}\n" for k, v in fields.items()), sync=False)
    adopted = await world.adopt(copy)
    assert adopted.rebooted
    assert adopted.gone.done()
    assert adopted.exited.result().code is None
    await adopted.stop(signal.SIGKILL, 0.0)
    assert process.seen_alive()


async def test_a_pid_that_was_given_to_another_process_is_never_signalled(world):
    stranger = await asyncio.create_subprocess_exec("/bin/sleep", "1000")
    try:
        process = await world.start("/bin/true")
        await end_of(process)
        folder, _ = world.folder()
        world.cookies[folder] = process.cookie
        shutil.copytree(
            process.folder, folder, ignore=shutil.ignore_patterns("control", "events", "exit", "gone", "*.new")
        )
        fields = read_fields((folder / "identity").read_text())
        fields |= {"pid": str(stranger.pid), "shim_pid": str(stranger.pid), "cgroup": ""}
        write_whole(str(folder / "identity"), "".join(f"{k}={v}\n" for k, v in fields.items()), sync=False)
        adopted = await world.adopt(folder)
        await adopted.stop(signal.SIGKILL, 0.0)
        how = await end_of(adopted)
        assert how.code is None
        assert any("start ticks differ" in line for line in adopted.evidence)
        assert stranger.returncode is None
        assert alive(stranger.pid, start_ticks(stranger.pid))
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_process_with_right_ticks_and_no_cookie_is_watched_and_never_signalled(world):
    stranger = await asyncio.create_subprocess_exec("/bin/sleep", "1000")
    try:
        process = await world.start("/bin/true")
        await end_of(process)
        folder, _ = world.folder()
        world.cookies[folder] = process.cookie
        shutil.copytree(
            process.folder, folder, ignore=shutil.ignore_patterns("control", "events", "exit", "gone", "*.new")
        )
        fields = read_fields((folder / "identity").read_text())
        fields |= {"pid": str(stranger.pid), "start_ticks": str(start_ticks(stranger.pid)), "cgroup": ""}
        write_whole(str(folder / "identity"), "".join(f"{k}={v}\n" for k, v in fields.items()), sync=False)
        adopted = await world.adopt(folder)
        await adopted.stop(signal.SIGKILL, 0.0)
        await until(lambda: any("left alone" in line for line in adopted.evidence))
        assert stranger.returncode is None
        assert not adopted.gone.done()
    finally:
        stranger.kill()
        await stranger.wait()
    await within(adopted.gone)


# The shim's death


async def test_a_worker_whose_shim_was_killed_is_still_watched_and_its_whole_tree_stopped(world, tmp_path):
    process = await world.start(sys.executable, "-c", DAEMON + "time.sleep(1000)", str(tmp_path / "pid"))
    pid, ticks = await daemon_of(tmp_path / "pid")
    main = process.identity
    os.kill(main.shim_pid, signal.SIGKILL)
    await until(lambda: any("without its shim" in line for line in process.evidence))
    assert process.alive
    await process.stop(signal.SIGTERM, 0.2)
    how = await end_of(process)
    assert how.code is None
    assert not alive(pid, ticks)
    assert not alive(main.pid, main.start_ticks)


async def test_a_worker_whose_shim_was_killed_runs_on_and_its_end_is_seen_though_not_how_it_ended(world, tmp_path):
    os.mkfifo(tmp_path / "go")
    process = await world.start("/bin/sh", "-c", f"read line < {tmp_path}/go; exit 3")
    await within(process.running)
    os.kill(process.identity.shim_pid, signal.SIGKILL)
    await until(lambda: any("without its shim" in line for line in process.evidence))
    assert process.alive
    assert process.seen_alive()
    await asyncio.to_thread((tmp_path / "go").write_text, "go\n")
    how = await end_of(process)
    assert how.code is None
    assert not process.seen_alive()


# Logs


async def test_a_flood_of_output_is_bounded_on_disk_and_keeps_its_numbers(world):
    lines = 1_200_000
    process = await world.start("/bin/sh", "-c", f"seq -f 'line %012.0f of a long flood of lines' {lines}")
    await end_of(process)
    sizes = [p.stat().st_size for p in process.folder.glob("log.*")]
    assert len(sizes) == 2
    assert sum(sizes) <= 2 * (SEGMENT_BYTES + (1 << 16))
    last = logfile.read(process.folder, lines=1)
    assert (last.lines[0], last.first_seq) == (f"line {lines:012d} of a long flood of lines", lines)
    lost = logfile.read(process.folder, lines=1, after=0)
    assert lost.missed > 0
    assert lost.lines[0] == f"line {lost.first_seq:012d} of a long flood of lines"
    assert lost.first_seq == lost.missed + 1


async def test_a_flood_takes_no_memory_of_the_shim(world):
    process = await world.start("/bin/sh", "-c", "yes 'a line of a flood that does not end'")
    await until(lambda: len(list(process.folder.glob("log.*"))) == 2 and not (process.folder / "log.1").exists())
    resident = int(read_status(process.identity.shim_pid, "VmRSS"))
    assert resident < 24 * 1024


def read_status(pid, key):
    lines = Path(f"/proc/{procfs.number(pid)}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(key + ":"))


async def test_the_last_words_are_in_the_log_when_the_exit_is_told(world):
    for _ in range(5):
        process = await world.start("/bin/sh", "-c", "seq 3000; echo the last words; kill -9 $$")
        await within(process.exited)
        assert logfile.tail(process.folder).endswith("the last words")
        await within(process.gone)


async def test_output_without_line_ends_is_kept_and_bounded(world):
    process = await world.start("/bin/sh", "-c", f"head -c {3 * SEGMENT_BYTES} /dev/zero")
    await end_of(process)
    assert sum(p.stat().st_size for p in process.folder.glob("log.*")) <= 2 * (
        SEGMENT_BYTES + LINE_BYTES_MAX + (1 << 16)
    )


async def test_progress_of_a_load_is_seen_and_idling_is_not(world):
    code = (
        "import os,signal\nsignal.pthread_sigmask(0, [10])\nos.write(1, b'on\\n')\nsignal.sigwait([10])\n"
        "x=bytearray(64<<20)\nos.write(3, b'done')\nsignal.pause()"
    )
    told = world.base / "told"
    process = await world.start("/bin/sh", "-c", f'exec "{sys.executable}" -u -c "{code}" 3>{told}')
    await until(lambda: logfile.tail(process.folder) == "on")
    idle = observe(process)
    assert not observe(process).moved_since(idle)
    os.kill(process.identity.pid, signal.SIGUSR1)
    await until(lambda: told.read_text() == "done")
    loaded = observe(process)
    assert loaded.log == idle.log
    assert loaded.moved_since(idle)
    assert not observe(process).moved_since(loaded)


async def test_a_model_server_of_the_tests_runs_under_the_host(world):
    process = await world.start(sys.executable, FAKE_MODEL, "--port", "0", "--say", "hello")
    await until(lambda: "listening" in logfile.tail(process.folder))
    await process.stop(signal.SIGTERM, PATIENCE_S)
    assert (await end_of(process)).code == 0

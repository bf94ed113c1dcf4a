"""A worker's life as the control plane hears of it."""

import json
import os
import signal
import urllib.request
from pathlib import Path

import pytest
from agent_plane import until_true
from agent_work import job, server, stopping

from moorage.domain.reasons import reason
from moorage.runners.identity import alive
from moorage.runners.shimming.kernel import start_ticks
from moorage.wire.agent import Live, LogRequest, Ready
from tests.ports import free_range

W = "wrk-1"


async def test_a_program_that_ends_well_is_reported_step_by_step_and_gone(plane, make_agent):
    await make_agent().start()
    await plane.want(job("/bin/true"))
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W) == ["Preparing", "Starting", "Running", "Completed"]
    assert plane.codes(W)[-1] == "exited"
    assert [r.exit_code for r in plane.of(W) if r.steps][-1] == 0


async def test_every_code_reported_is_of_the_catalogue(plane, make_agent):
    await make_agent().start()
    await plane.want(job("/bin/sh", "-c", "exit 3"))
    await plane.until(lambda: plane.gone(W))
    for report in plane.of(W):
        for step in report.steps:
            reason(step.code, **step.params)


async def test_a_failure_carries_exit_code_and_the_last_lines(plane, make_agent):
    await make_agent().start()
    await plane.want(job("/bin/sh", "-c", "for i in $(seq 100); do echo line $i; done; exit 7"))
    await plane.until(lambda: plane.gone(W))
    last = plane.last(W)
    assert (last.steps[-1].to, last.steps[-1].trigger, last.exit_code) == ("Failed", "exited_nonzero", 7)
    assert last.log_tail is not None
    assert last.log_tail.splitlines() == [f"line {i}" for i in range(51, 101)]


async def test_a_missing_binary_is_told_from_a_program_that_exits_127(plane, make_agent):
    await make_agent().start()
    await plane.want(job("/no/such/server", worker="a"), job("/bin/sh", "-c", "exit 127", worker="b"))
    await plane.until(lambda: plane.gone("a") and plane.gone("b"))
    assert plane.path("a") == ["Preparing", "Failed"]
    assert plane.codes("a")[-1] == "start.failed"
    assert plane.last("a").exit_code == 127
    assert "/no/such/server" in plane.last("a").steps[-1].params["error"]
    assert plane.codes("b")[-1] == "exited"


async def test_a_file_that_cannot_be_executed_is_126(plane, make_agent, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    await make_agent().start()
    await plane.want(job(str(plain)))
    await plane.until(lambda: plane.gone(W))
    assert (plane.codes(W)[-1], plane.last(W).exit_code) == ("start.failed", 126)


async def test_a_server_is_ready_only_once_it_is_healthy_and_lists_its_model(plane, make_agent, tmp_path):
    await make_agent().start()
    go = tmp_path / "go"
    await plane.want(server("--ready-file", str(go)))
    await plane.until(lambda: plane.why_not_ready(W))
    assert not plane.ready(W)
    go.touch()
    await plane.until(lambda: plane.ready(W))
    assert plane.path(W) == ["Preparing", "Starting", "Running"]
    assert set(plane.why_not_ready(W)) == {"ready.waiting"}
    address = next(r.address for r in plane.of(W) if r.ready)
    with urllib.request.urlopen(f"http://{address}/v1/models") as answer:
        assert answer.status == 200


async def test_a_worker_gets_its_environment_and_placeholders(plane, make_agent):
    agent = make_agent(gpus="2xH100:80GiB")
    await agent.start()
    await plane.want(server("--say", "{name} {rank} {gpus} {other}", gpus=(1,), env={"TEST_PORT": "{port}"}))
    await plane.until(lambda: plane.ready(W))
    address = next(r.address for r in plane.of(W) if r.ready)
    with urllib.request.urlopen(f"http://{address}/stats") as answer:
        env = json.load(answer)["env"]
    assert env["CUDA_VISIBLE_DEVICES"] == "1"
    assert env["TEST_PORT"] == address.rpartition(":")[2]
    assert (env["MOORAGE_RUN"], env["MOORAGE_WORKER"], env["MOORAGE_EPOCH"]) == ("run-1", W, "1")
    assert Path(env["MOORAGE_OUTPUT_DIR"]).is_dir()
    lines = await plane.ask_log(LogRequest(id="l1", worker=W))
    assert lines.lines[0] == "job 0 1 {other}"
    assert len(plane.joins[0].capacity.gpus) == 2


async def test_a_server_killed_is_reported_with_its_signal(plane, make_agent):
    await make_agent().start()
    await plane.want(server())
    await plane.until(lambda: plane.ready(W))
    os.kill(plane.pid(W), signal.SIGKILL)
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W)[-1] == "Failed"
    assert plane.last(W).exit_code == 137
    assert plane.last(W).signal == 9
    assert plane.last(W).steps[-1].params == {"code": 137, "signal": 9}


async def test_a_server_of_the_wrong_model_fails_with_what_it_lists(plane, make_agent):
    await make_agent().start()
    await plane.want(server("--wrong-model", "other"))
    await plane.until(lambda: plane.gone(W))
    assert plane.codes(W)[-1] == "ready.wrong_model"
    assert plane.last(W).steps[-1].params == {"missing": "m", "listed": "other"}
    assert plane.ready(W) is False
    assert "listening" in (plane.last(W).log_tail or "")


async def test_a_server_that_never_gets_ready_fails_at_its_limit(plane, make_agent):
    await make_agent().start()
    await plane.want(server("--delay-ready", "1000", ready=Ready(model="m", timeout_s=0.7, interval_s=0.05)))
    await plane.until(lambda: plane.gone(W))
    assert plane.codes(W)[-1] == "ready.timed_out"
    assert plane.last(W).steps[-1].trigger == "failed"


async def test_a_load_without_progress_stalls_and_one_that_logs_goes_on(plane, make_agent, tmp_path):
    await make_agent().start()
    go = tmp_path / "go"
    check = Ready(model="m", timeout_s=600, stall_s=4, interval_s=0.05)
    await plane.want(
        server("--delay-ready", "1000", worker="silent", ready=check),
        server("--ready-file", str(go), "--log-progress", "0.1", worker="busy", ready=check),
    )
    await plane.until(lambda: plane.gone("silent"))
    assert plane.codes("silent")[-1] == "ready.stalled"
    assert plane.path("busy")[-1] == "Running"
    go.touch()
    await plane.until(lambda: plane.ready("busy"))


async def test_a_healthy_answer_with_an_error_fails_at_once(plane, make_agent):
    await make_agent().start()
    await plane.want(server("--health-status", "502"))
    await plane.until(lambda: plane.gone(W))
    assert plane.codes(W)[-1] == "ready.failed"
    assert plane.last(W).steps[-1].params["status"] == 502


async def test_a_missing_model_source_fails_before_anything_starts(plane, make_agent):
    await make_agent().start()
    await plane.want(server(source="/no/such/model.gguf"))
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W) == ["Preparing", "Failed"]
    assert plane.codes(W)[-1] == "model.fetch_failed"
    assert plane.last(W).steps[-1].params["permanent"] is True


async def test_ports_spent_is_a_clear_failure_and_a_freed_port_is_used_again(plane, make_agent):
    port, _ = free_range(1)
    await make_agent(ports=[port, port]).start()
    first = server(worker="a")
    await plane.want(first)
    await plane.until(lambda: plane.ready("a"))
    await plane.want(server(worker="b"))
    await plane.until(lambda: plane.gone("b"))
    assert plane.codes("b")[-1] == "setup.failed"
    await plane.want(stopping(first))
    await plane.until(lambda: plane.gone("a"))
    await plane.want(server(worker="c"))
    await plane.until(lambda: plane.ready("c"))


async def test_a_ready_server_that_stops_answering_is_withdrawn_and_then_given_up(plane, make_agent, tmp_path):
    await make_agent().start()
    live = Live(interval_s=0.05, failures=2, fail_after_s=0.6)
    await plane.want(server(live=live))
    await plane.until(lambda: plane.ready(W))
    pid = plane.pid(W)
    os.kill(pid, signal.SIGSTOP)  # a probe now hangs until its own limit
    try:
        await plane.until(lambda: plane.ready(W) is False)
        assert plane.why_not_ready(W)[-1] == "live.failing"
        await plane.until(lambda: "Failed" in plane.path(W))
        assert plane.codes(W)[-1] == "live.failed"
    finally:
        os.kill(pid, signal.SIGCONT)
    await plane.until(lambda: plane.gone(W))


@pytest.mark.parametrize("grace_s", [0.2])
async def test_a_stop_ends_the_whole_tree_even_of_a_server_that_ignores_it(plane, make_agent, tmp_path, grace_s):
    await make_agent().start()
    pidfile = tmp_path / "daemon.pid"
    it = server("--ignore-sigterm", "--fork-daemon", str(pidfile))
    await plane.want(it)
    await plane.until(lambda: plane.ready(W))
    daemon = int(pidfile.read_text())
    ticks = start_ticks(daemon)
    await plane.want(stopping(it, grace_s=grace_s))
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W)[-1] == "Cancelled"
    assert plane.last(W).gone
    assert plane.last(W).steps[-1].trigger == "stop_confirmed"
    assert not alive(daemon, ticks)


async def test_a_stop_for_a_worker_that_is_not_here_is_confirmed(plane, make_agent):
    await make_agent().start()
    await plane.want(stopping(job("/bin/true", epoch=4)))
    await plane.until(lambda: plane.gone(W))
    assert plane.path(W) == ["Cancelled"]


async def test_logs_follow_by_number_and_say_when_they_end(plane, make_agent):
    await make_agent().start()
    await plane.want(job("/bin/sh", "-c", "for i in 1 2 3 4; do echo l$i; done"))
    await plane.until(lambda: plane.gone(W))
    first = await plane.ask_log(LogRequest(id="1", worker=W, lines=2))
    assert (first.lines, first.first_seq, first.next_seq, first.ended) == (("l3", "l4"), 3, 5, True)
    after = await plane.ask_log(LogRequest(id="2", worker=W, lines=2, after=1))
    assert (after.lines, after.ended) == (("l2", "l3"), False)


async def test_the_previous_attempts_log_can_be_read(plane, make_agent):
    await make_agent().start()
    await plane.want(job("/bin/sh", "-c", "echo first", epoch=1))
    await plane.until(lambda: plane.gone(W))
    await plane.want(job("/bin/sh", "-c", "echo second", epoch=2))
    await plane.until(lambda: sum(r.gone for r in plane.of(W)) == 2)
    assert (await plane.ask_log(LogRequest(id="n", worker=W))).lines == ("second",)
    assert (await plane.ask_log(LogRequest(id="p", worker=W, previous=True))).lines == ("first",)


async def test_every_log_of_an_array_of_short_workers_is_there_for_who_reads_it_late_and_no_empty_output(
    plane, make_agent
):
    agent = make_agent()
    await agent.start()
    names = [f"wrk-{n}" for n in range(80)]
    for first in range(0, len(names), 20):
        batch = names[first : first + 20]
        code = "test $MOORAGE_WORKER != wrk-0 || echo kept > $MOORAGE_OUTPUT_DIR/result; echo said by $MOORAGE_WORKER"
        await plane.want(*(_of_run(job("/bin/sh", "-c", code, worker=name)) for name in batch))
        await plane.until(lambda batch=batch: all(map(plane.gone, batch)))
        for name in batch:
            await plane.drop(name)
    await until_true(lambda: len(list(agent.home.glob("workers/*/*/ended"))) == len(names))
    for name in names:
        told = await plane.ask_log(LogRequest(id=f"late-{name}", worker=name))
        assert (told.lines, told.absent) == ((f"said by {name}",), False)
    await until_true(lambda: len(list(agent.home.glob("output/*"))) == 1)
    assert [p.relative_to(agent.home / "output").as_posix() for p in agent.home.glob("output/*/*/*")] == [
        "run-wrk-0/0/result"
    ]


async def test_where_there_is_no_room_for_them_logs_go_and_that_is_said(plane, make_agent):
    agent = make_agent(logs_bytes=0)
    await agent.start()
    await plane.want(job("/bin/sh", "-c", "echo said", worker="wrk-1"))
    await plane.until(lambda: plane.gone("wrk-1"))
    await plane.drop("wrk-1")
    await until_true(lambda: not list(agent.home.glob("workers/*")))
    assert (await plane.ask_log(LogRequest(id="late", worker="wrk-1"))).absent


def _of_run(assignment):
    return assignment.model_copy(update={"run": f"run-{assignment.worker}"})

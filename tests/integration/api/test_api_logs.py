"""Logs come from the machine that has them, go on across processes, and never hang on one that is silent."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from api_world import Client, Exchange, World, poll_pause, until

from moorage.control.logrelay import RESEND_S, TIMEOUT_S
from moorage.domain.changes import Change, Step, Update
from moorage.domain.nouns import Deployment, Run, Worker
from moorage.domain.reasons import reason
from moorage.domain.states import WorkerState
from moorage.wire.agent import LogRequest

BASE = "/api/v1/namespaces/default"
NDJSON = {"accept": "application/x-ndjson"}


@dataclass
class LogAgent:
    """An agent that answers questions for logs from lists of lines, numbered from 1."""

    world: World
    machine: str
    client: Client
    logs: dict[str, list[str]] = field(default_factory=dict)
    previous: dict[str, list[str]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    earlier: dict[int, list[str]] = field(default_factory=dict)
    asked: list[LogRequest] = field(default_factory=list)

    async def serve(self) -> None:
        while True:
            for question in self.world.deps.logs.pending(self.machine):
                self.world.deps.logs.sent([question.id])
                self.asked.append(question)
                await self.client.ask("POST", f"/api/v1/agent/logs/{question.id}", body=self._answer(question))
            await poll_pause()
            self.world.clock.advance(0.1)

    def _answer(self, question: LogRequest) -> dict[str, Any]:
        if question.worker in self.lost:
            return {"ended": True, "absent": True}
        if question.attempt in self.earlier:
            whole = self.earlier[question.attempt][question.after or 0 :]
            first = (question.after or 0) + 1
            return {"lines": whole, "first_seq": first, "next_seq": first + len(whole), "ended": True}
        whole = (self.previous if question.previous else self.logs).get(question.worker, [])
        first = max(1, len(whole) - question.lines + 1) if question.after is None else question.after + 1
        lines = whole[first - 1 : first - 1 + question.lines]
        ended = question.worker in self.ended and first - 1 + len(lines) >= len(whole)
        return {"lines": lines, "first_seq": first, "next_seq": first + len(lines), "ended": ended}


async def scene(world: World) -> tuple[Deployment, LogAgent, "asyncio.Task[None]"]:
    await world.rows.machine("lab-1")
    row = Deployment(uid="dep-gemma", name="gemma", spec={"replicas": {"min": 0}})
    await world.rows.create(row)
    agent = LogAgent(world, "mch-lab-1", await world.agent("lab-1"))
    return row, agent, asyncio.create_task(agent.serve())


async def stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def shown(stream: Exchange, kind: str = "line") -> list[str]:
    return [d["line"] for d in map(json.loads, stream.text.splitlines()) if d["kind"] == kind]


async def test_the_last_lines_come_as_text_and_as_json(world: World) -> None:
    row, agent, serving = await scene(world)
    await world.rows.running_worker("wrk-1", row, "mch-lab-1")
    agent.logs["wrk-1"] = [f"line {i}" for i in range(300)]
    path = f"{BASE}/deployments/gemma/logs"
    text = await world.admin.get(f"{path}?lines=2")
    assert text.body == b"line 298\nline 299\n"
    assert text.headers["content-type"].startswith("text/plain")
    as_json = await world.admin.get(f"{path}?lines=1", headers=NDJSON)
    told = {"kind": "line", "worker": "wrk-1", "attempt": 1, "seq": 300, "at": None, "line": "line 299"}
    assert as_json.json == told
    assert (await world.admin.get(f"{path}?grep=99&lines=300")).body == b"line 99\nline 199\nline 299\n"
    for other in ("runs/wrk-1-run/logs?lines=1", "workers/wrk-1/logs?lines=1"):
        assert (await world.admin.get(f"{BASE}/{other}")).body == b"line 299\n"
    assert {q.epoch for q in agent.asked} == {1}
    await stop(serving)


async def test_logs_of_which_nothing_is_kept_are_an_error_and_with_others_a_remark(world: World) -> None:
    row, agent, serving = await scene(world)
    await world.rows.running_worker("wrk-1", row, "mch-lab-1")
    await world.rows.running_worker("wrk-2", row, "mch-lab-1")
    agent.logs["wrk-2"] = ["still here"]
    agent.lost.add("wrk-1")
    path = f"{BASE}/deployments/gemma/logs"
    some = await world.admin.get(path, headers=NDJSON)
    told = [json.loads(line) for line in some.body.splitlines()]
    assert (some.status, sorted(line["kind"] for line in told)) == (200, ["event", "line"])
    agent.lost.add("wrk-2")
    none = await world.admin.get(path, headers=NDJSON)
    assert (none.status, none.json["code"]) == (410, "log_not_kept")
    assert "is not kept on lab-1 any more" in none.json["message"]
    await stop(serving)


async def test_a_silent_machine_is_named_after_the_time_out(world: World) -> None:
    row, _, serving = await scene(world)
    await stop(serving)
    await world.rows.running_worker("wrk-1", row, "mch-lab-1")
    asking = world.admin.open("GET", f"{BASE}/deployments/gemma/logs")
    await until(lambda: world.deps.logs.pending("mch-lab-1") and world.clock.sleeping)
    while not asking.task.done():
        world.clock.advance(RESEND_S)
        await poll_pause()
    answer = await asking.answer()
    assert answer.status == 503
    assert answer.json["message"] == f"machine lab-1 did not ask for work within {TIMEOUT_S:g} s"
    assert answer.headers["retry-after"] == "5"
    assert world.deps.logs.pending("mch-lab-1") == ()


async def test_a_question_that_was_sent_and_not_answered_is_sent_again(world: World) -> None:
    woken: list[str] = []
    relay = world.deps.logs
    relay.on_change = woken.append
    asking = asyncio.create_task(relay.fetch("mch-1", "wrk-1", name="lab-1"))
    await until(lambda: relay.pending("mch-1") and world.clock.sleeping)
    relay.sent(q.id for q in relay.pending("mch-1"))
    assert relay.pending("mch-1") == ()
    world.clock.advance(RESEND_S)
    await until(lambda: len(woken) == 2)
    assert len(relay.pending("mch-1")) == 1
    assert relay.pending("mch-2") == ()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert relay.pending("mch-1") == ()


async def test_only_the_machine_that_was_asked_may_answer(world: World) -> None:
    row, _, serving = await scene(world)
    await stop(serving)
    await world.rows.running_worker("wrk-1", row, "mch-lab-1")
    asking = world.admin.open("GET", f"{BASE}/workers/wrk-1/logs")
    await until(lambda: world.deps.logs.pending("mch-lab-1"))
    question = world.deps.logs.pending("mch-lab-1")[0].id
    other, own = await world.agent("lab-2"), await world.agent("lab-1")
    forged = await other.ask("POST", f"/api/v1/agent/logs/{question}", body={"lines": ["forged"]})
    assert (forged.status, forged.json["code"]) == (404, "question_over")
    assert (await own.ask("POST", f"/api/v1/agent/logs/{question}", body={"lines": ["true"]})).status == 204
    assert (await asking.answer()).body == b"true\n"
    assert (await own.ask("POST", f"/api/v1/agent/logs/{question}", body={"lines": ["late"]})).status == 404


async def test_the_record_of_a_failure_is_shown_where_its_machine_is_silent(world: World) -> None:
    row, _, serving = await scene(world)
    await stop(serving)
    worker = await world.rows.running_worker("wrk-1", row, "mch-lab-1")
    failure = {"exit_code": 3, "log": "loading\nno such model\n"}
    await world.rows.step(worker, ("Failed", "exited_nonzero"), why=reason("exited", code=3), last_failure=failure)
    asking = world.admin.open("GET", f"{BASE}/deployments/gemma/logs")
    while not asking.task.done():
        world.clock.advance(1.0)
        await poll_pause()
    answer = await asking.answer()
    assert answer.status == 200
    head, *lines = answer.body.decode().splitlines()
    assert head.startswith("== machine lab-1 did not ask for work within 10 s; from the record")
    assert lines == ["loading", "no such model"]


async def test_what_never_started_has_no_log_and_says_how_to_ask_why(world: World) -> None:
    _, _, serving = await scene(world)
    answer = await world.admin.get(f"{BASE}/deployments/gemma/logs")
    assert answer.status == 404
    assert "moor why gemma" in answer.json["remedy"]
    await stop(serving)


async def test_previous_shows_the_one_that_ended_before(world: World) -> None:
    row, agent, serving = await scene(world)
    first = await world.rows.running_worker("wrk-1", row, "mch-lab-1")
    path = f"{BASE}/deployments/gemma/logs?previous=true"
    assert (await world.admin.get(path)).status == 404
    await world.rows.step(first, ("Failed", "exited_nonzero"), why=reason("exited", code=1))
    await world.rows.running_worker("wrk-2", row, "mch-lab-1")
    agent.logs = {"wrk-1": ["old"], "wrk-2": ["new"]}
    assert (await world.admin.get(path)).body == b"old\n"
    assert (await world.admin.get(f"{BASE}/deployments/gemma/logs")).body == b"new\n"
    await stop(serving)


async def test_following_goes_on_across_a_crash_a_pause_and_a_wake_and_ends_with_a_last_drain(world: World) -> None:
    row, agent, serving = await scene(world)
    first = await world.rows.running_worker("wrk-1", row, "mch-lab-1")
    agent.logs["wrk-1"] = ["a0", "a1"]
    stream = world.admin.open("GET", f"{BASE}/deployments/gemma/logs?follow=true", headers=NDJSON)
    await until(lambda: shown(stream) == ["a0", "a1"])
    agent.logs["wrk-1"] += ["a2"]
    await until(lambda: shown(stream) == ["a0", "a1", "a2"])

    agent.logs["wrk-1"] += ["a3: last words"]
    agent.ended.add("wrk-1")
    await world.rows.step(first, ("Failed", "exited_nonzero"), why=reason("exited", code=137))
    agent.logs["wrk-2"] = ["b0"]
    second = await world.rows.running_worker("wrk-2", row, "mch-lab-1")
    await until(lambda: shown(stream)[3:] == ["a3: last words", "b0"])
    ended, goes_on = [e for e in shown(stream, "event") if "wrk-" in e]
    assert ended.startswith("wrk-1 ended: Failed: Exited with code 137")
    assert goes_on == "goes on with wrk-2 on lab-1"
    assert not any("no longer kept" in e for e in shown(stream, "event"))

    agent.ended.add("wrk-2")
    await world.rows.step(second, ("Stopping", "stop_requested"), ("Cancelled", "stop_confirmed"))
    await world.rows.step(row, ("paused", "idle"), why=reason("deploy.idle"))
    await until(lambda: any(e.startswith("paused: Paused at zero") for e in shown(stream, "event")))
    await world.rows.step(row, ("created", "wake_request"), why=reason("deploy.wake_request"))
    agent.logs["wrk-3"] = ["c0"]
    third = await world.rows.running_worker("wrk-3", row, "mch-lab-1")
    await until(lambda: shown(stream)[-1] == "c0")

    await world.rows.step(row, ("stopped", "stop_requested"), why=reason("deploy.stopped"))
    agent.logs["wrk-3"] += ["c1: bye"]
    agent.ended.add("wrk-3")
    await world.rows.step(third, ("Stopping", "stop_requested"), ("Cancelled", "stop_confirmed"))
    answer = await stream.answer()
    assert answer.status == 200
    assert shown(stream) == ["a0", "a1", "a2", "a3: last words", "b0", "c0", "c1: bye"]
    assert shown(stream, "event")[-1] == "gemma is over: stopped: Stopped by a person"
    await stop(serving)


async def test_an_attempt_that_began_and_failed_between_two_looks_is_read_all_the_same(world: World) -> None:
    await world.rows.machine("lab-1")
    agent = LogAgent(world, "mch-lab-1", await world.agent("lab-1"), earlier={1: ["first", "failed"]})
    serving = asyncio.create_task(agent.serve())
    await world.rows.create(Run(uid="run-1", name="train"))
    worker = await world.rows.create(Worker(uid="wrk-1", name="train-0", run="run-1"))
    stream = world.admin.open("GET", f"{BASE}/runs/train/logs?follow=true", headers=NDJSON)
    await until(lambda: shown(stream, "heartbeat"))
    row = await world.rows.load(worker)
    placed = Update("Worker", row.uid, row.version, notes=(reason("worker.placed", machine="lab-1"),))
    up, down, again = (
        (WorkerState.PREPARING, "picked_up"),
        (WorkerState.FAILED, "failed"),
        (WorkerState.PENDING, "restart"),
    )
    steps = tuple(Step(to, trigger, reason("prepare.started")) for to, trigger in (up, down, again))
    await world.deps.store.commit(Change((placed,), "test"))
    row = await world.rows.load(worker)
    await world.deps.store.commit(Change((Update("Worker", row.uid, row.version, steps, {"attempt": 2}),), "test"))
    await until(lambda: shown(stream) == ["first", "failed"])
    await stream.hang_up()
    await stop(serving)


async def test_following_does_not_hang_when_machine_and_process_die_without_a_word(world: World) -> None:
    row, agent, serving = await scene(world)
    worker: Worker = await world.rows.running_worker("wrk-1", row, "mch-lab-1")
    agent.logs["wrk-1"] = ["a0"]
    stream = world.admin.open("GET", f"{BASE}/deployments/gemma/logs?follow=true", headers=NDJSON)
    await until(lambda: shown(stream) == ["a0"])
    await stop(serving)
    ticking = asyncio.create_task(tick(world))
    await until(lambda: any("machine lab-1" in e for e in shown(stream, "event")))
    await world.rows.step(worker, ("Down", "machine_lost"), why=reason("machine.lost"))
    await world.rows.step(row, ("stopped", "stop_requested"), why=reason("deploy.stopped"))
    assert (await stream.answer()).status == 200
    assert "is over" in shown(stream, "event")[-1]
    await stop(ticking)


async def tick(world: World) -> None:
    while True:
        world.clock.advance(0.5)
        await poll_pause()


async def test_following_waits_for_a_start_and_ends_with_the_server(world: World) -> None:
    _, _, serving = await scene(world)
    stream = world.admin.open("GET", f"{BASE}/deployments/gemma/logs?follow=true", headers=NDJSON)
    await until(lambda: shown(stream, "heartbeat"))
    world.deps.closing.set()
    assert (await stream.answer()).status == 200
    await stop(serving)


async def test_a_reader_that_goes_away_leaves_no_question_behind(world: World) -> None:
    row, _, serving = await scene(world)
    await stop(serving)
    await world.rows.running_worker("wrk-1", row, "mch-lab-1")
    stream = world.admin.open("GET", f"{BASE}/deployments/gemma/logs?follow=true")
    await until(lambda: world.deps.logs.pending("mch-lab-1"))
    await stream.hang_up()
    assert world.deps.logs.pending("mch-lab-1") == ()

"""The catalogue against the lifecycle contract: every code of it, with the params in its brackets, written out here."""

import re
from string import Formatter

import pytest

from moorage.domain.catalogue import ANOTHER_NAMESPACE, CATALOGUE, GROUPS
from moorage.domain.reasons import Reason, ReasonClass, ReasonType, reason, render

CODES = """
run.created run.planning run.workers_waiting run.cannot_plan[why] run.requeued[cause] run.starting[ready,total]
run.running[ready,total] run.serving[ready,total] run.completed run.group_completed[group]
run.worker_failed[worker,machine,reason] run.worker_lost[worker,machine,reason]
run.gang_member_failed[worker,machine,reason] run.workers_failed[k,n,first] run.time_limit[worker,d]
run.group_needed[group,worker,reason] run.queue_time[d] run.cancelled quota.reached[why]

worker.created prepare.network prepare.external_port prepare.volume[d,why] prepare.drive_filling[d,machine]
prepare.secret[name,key] prepare.registry_secret[name] prepare.identity[why] image.pulling[image,done,total]
image.pull_failed[error,permanent] image.absent model.fetching[source,done,total] model.fetch_failed[error,permanent]
gang.barrier container.started container.running create.failed[error] start.failed[error] start.timed_out[d]
start.invalid[error] prepare.timed_out[step,d] pull.stalled[d] exit.unknown machine.rebooted depends.failed[group]
depends.waiting_run[run,condition] depends.failed_run[run] restart.requested config.write_failed[path,error]
setup.failed[feature,error] container.missing exited[code] oom_killed heartbeat.late heartbeat.back heartbeat.expired
machine.lost machine.removed restart.policy[n,limit] restart.backoff[at] restart.exhausted[n,limit]
gang.restart[worker] preempt.requeued[run] worker.unplaced[machine]

stop.user[text] stop.default stop.preempted[run] stop.time_limit[d] stop.worker_time_limit stop.member_time_limit
stop.member_exhausted stop.worker_failed stop.run_failed stop.run_completed stop.run_cancelled stop.barrier_timeout
stop.drain[machine] stop.confirmed stop.machine_lost stop.machine_removed stop.unkillable[since]

place.no_machine_fits[ready,total] place.gang_not_whole[ready,total] place.min_not_whole[ready,total]
place.no_machines place.never_fits[why] place.data_location[machine]
quota.waiting[resource,used,asked,limit,gang] quota.never[resource,asked,limit,total]
depends.waiting[group,condition] array.limit[k] topology.patience[fabric,until,alternative]
queue.head[priority,starts_by] queue.head_unknown[priority] queue.behind_priority[run] queue.behind[run,starts_by?]
preempt.stopping[k,runs] preempt.waiting[k]

node.not_ready[state] node.no_capacity node.pressure[condition] node.refuses_runs[why] node.cordoned[why]
node.label_not_accepted node.not_selected node.lacks_label[k,v] node.no_rdma node.slow_fabric[gbps] node.holds_worker
node.cpu[need,free] node.memory[need,free] node.gpus[need,free] node.healthy_gpus[need,free,at_risk]
node.no_gpu_match[wanted] node.gpu_fault[index,fault] node.gpu_foreign[index,bytes] node.kept_machine[m]
node.kept_rack[r] node.no_rack_label node.max_machines[n] node.rack_used[r] node.drive_missing[drive]
node.drive_unusable[drive,why] node.drive_elsewhere[drive,machine,site] node.drive_no_room[drive,need,free]
node.no_outbound[why] node.no_sandbox[why] node.no_tool_gateway[why]

scale.up scale.down scale.held_stability scale.held_cooldown scale.at_min scale.at_max scale.no_capacity
scale.disabled scale.unqualified

candidate_not_ready compatibility_mismatch[expected,listed] error_rate_regression[metric,active,candidate,limit]
ttft_regression[metric,active,candidate,limit] latency_regression[metric,active,candidate,limit]
output_throughput_regression[metric,active,candidate,limit] quality_regression[metric,active,candidate,limit]
insufficient_requests ttft_unavailable evidence_unavailable quality_unavailable synthetic_unproven
within_policy guard_disabled guard_not_applicable no_baseline

deploy.created deploy.initial_zero deploy.rollout deploy.idle deploy.paused_by_person deploy.wake_request
deploy.wake_failed[error] deploy.failed_fatal[replica,reason] deploy.stopped deploy.deleting deploy.deleted
deploy.scaled[from,to] deploy.retry[at]

replica.created replica.queued replica.pulling replica.starting replica.ready replica.withdrawn[why] replica.routed
replica.draining[streams] replica.drained replica.scaled_down replica.replaced[by] replica.preempted[run]
replica.machine_drained[machine] replica.barrier_timeout replica.failed[reason]

revision.created revision.provisioning revision.evaluating revision.promoting revision.promoted revision.draining
revision.superseded revision.rolled_back[to] revision.rejected[decision?] revision.failed[why] revision.cancelled[by]
revision.lost_ready revision.decision_stale revision.capacity_gone

op.created op.leased op.lease_lost op.resumed[step] op.waiting[why] op.retry[at,error] op.attempts_exhausted
op.cancel_requested op.cancelled op.succeeded op.failed[error] op.needs_attention[evidence] op.resolved[how]

machine.joined machine.late machine.back machine.lease_expired machine.returned machine.reconciled[kept,stopped]
machine.rebooted machine.cordoned[why] machine.uncordoned machine.draining[until] machine.drained machine.removed
gateway.joined gateway.confirmed[generation] gateway.silent gateway.gone
"""

BEYOND = """
part.hung part.ended
namespace.removed namespace.set node.outside_pool quota.removed quota.set
worker.placed prepare.started gang.barrier_open worker.returned worker.late_report worker.deleted run.deleted
ready.waiting ready.failed ready.wrong_model ready.request_failed ready.timed_out ready.stalled ready.passed
live.failing live.failed node.no_engine node.no_mounts node.port_taken node.ports_spent machine.agent_restarted
deploy.unready run.stopping scale.steady scale.undecided gang.ended
deploy.ready deploy.pausing deploy.pause_aborted deploy.changed replica.not_ready replica.stopped replica.deleted
revision.deleted op.started op.step_done op.deleted worker.gone worker.earlier_ended
exec.started run.cancel_requested run.changed run.deleting run.expired run.schedule_made run.schedule_skipped
run.scheduled stop.disconnected
deploy.adopted deploy.upstream_ready deploy.upstream_unready deploy.upstream_gone deploy.upstream_stays
deploy.canary deploy.window_over deploy.sent_back revision.scored replica.candidate replica.revision_over op.certain
model.fetched node.no_models
machine.gpu_faulty machine.gpu_at_risk machine.gpu_foreign machine.gpu_ok machine.pressure machine.pressure_over
worker.gpu_fault worker.gpu_ok
key.issued key.limited key.set key.revoked key.deleted
endpoint.made endpoint.bound endpoint.limited endpoint.changed endpoint.deleted deploy.bound deploy.unbound
"""
"""Codes that the line needs and the contract does not list; a code that is in neither list is a mistake."""

CLASSES = {
    ReasonClass.FAILED: "run.worker_failed oom_killed start.failed restart.exhausted op.failed "
    "error_rate_regression image.pull_failed machine.lost deploy.failed_fatal replica.failed stop.time_limit",
    ReasonClass.WAITING: "place.no_machine_fits quota.waiting queue.behind prepare.secret gang.barrier restart.backoff "
    "insufficient_requests node.gpus deploy.retry op.waiting heartbeat.late",
    ReasonClass.IMPOSSIBLE: "place.never_fits quota.never node.no_gpu_match node.lacks_label node.drive_missing",
    ReasonClass.BY_PERSON: "stop.user deploy.stopped deploy.paused_by_person machine.cordoned run.cancelled",
    ReasonClass.PROGRESS: "run.running run.completed container.running deploy.created op.succeeded no_baseline",
}


def contract_codes() -> dict[str, tuple[set[str], set[str]]]:
    """Code → its required and its optional params."""
    out = {}
    for code, params in re.findall(r"([a-z_.]+)(?:\[([^\]]*)\])?", CODES):
        names = params.split(",") if params else []
        assert code not in out or code == "machine.rebooted" or code == "machine.removed"
        out[code] = ({n for n in names if not n.endswith("?")}, {n[:-1] for n in names if n.endswith("?")})
    return out


CONTRACT = contract_codes()


def sample(entry: ReasonType, names: tuple[str, ...]) -> dict[str, object]:
    """A value for each param; a number where the sentence shows a duration, a size or a time."""
    specs = {name: spec for _, name, spec, _ in Formatter().parse(re.sub(r"[\[\]]", "", entry.sentence)) if name}
    return {name: 90 if specs.get(name) else f"<{name}>" for name in names}


@pytest.mark.parametrize("code", sorted(CONTRACT))
def test_a_code_of_the_contract_is_there_with_its_params(code: str) -> None:
    required, optional = CONTRACT[code]
    entry = CATALOGUE[code]
    assert set(entry.params) == required
    assert optional <= set(entry.optional)


def test_no_code_is_there_that_is_written_nowhere() -> None:
    assert set(CATALOGUE) == set(CONTRACT) | set(BEYOND.split())


def test_the_reference_groups_hold_the_whole_catalogue_once() -> None:
    assert sorted(e.code for group in GROUPS.values() for e in group) == sorted(CATALOGUE)


@pytest.mark.parametrize("klass", list(ReasonClass))
def test_a_code_has_the_class_that_a_person_would_give_it(klass: ReasonClass) -> None:
    for code in CLASSES[klass].split():
        assert CATALOGUE[code].klass is klass, code


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_entry_reads_as_a_sentence_with_and_without_its_optional_params(code: str) -> None:
    entry = CATALOGUE[code]
    short = render(entry, sample(entry, entry.params))
    full = render(entry, sample(entry, entry.params + entry.optional))
    for text in (short, full):
        assert text == text.strip()
        assert re.match(r"[A-Z0-9<]", text)
        assert not re.search(r"[\[\]{}]|  |: ?$|\(\)|\.$| ,", text), text
    for name in entry.params:
        shown = f"{{{name}" in entry.sentence
        assert shown == (
            f"<{name}>" in short or "1m30s" in short or "90 B" in short or "1970" in short or "0.09" in short
        ), name


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_a_sentence_shows_no_param_that_the_entry_does_not_have(code: str) -> None:
    entry = CATALOGUE[code]
    shown = {name for _, name, _, _ in Formatter().parse(re.sub(r"[\[\]]", "", entry.sentence)) if name}
    assert shown <= set(entry.params) | set(entry.optional)
    assert not set(entry.params) & set(entry.optional)
    outside = re.sub(r"\[[^\]]*\]", "", entry.sentence)
    assert {name for _, name, _, _ in Formatter().parse(outside) if name} <= set(entry.params)


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_whatever_keeps_work_from_running_or_failed_says_what_to_do(code: str) -> None:
    entry = CATALOGUE[code]
    needs = entry.klass in {ReasonClass.FAILED, ReasonClass.IMPOSSIBLE}
    needs = needs or code.split(".")[0] in {"place", "node", "quota", "queue", "preempt"}
    if needs and code not in {"preempt.requeued", "quota.set", "quota.removed"}:
        assert entry.advice
    if entry.advice:
        assert re.search(r"[.`]$", entry.advice)
        assert entry.klass is not ReasonClass.PROGRESS


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_a_reason_survives_the_wire(code: str) -> None:
    entry = CATALOGUE[code]
    made = reason(code, **sample(entry, entry.params + entry.optional))
    assert Reason.from_wire(made.to_wire()) == made


def test_a_reason_without_a_required_param_is_refused() -> None:
    with pytest.raises(TypeError, match="missing"):
        reason("exited")
    with pytest.raises(TypeError, match="missing"):
        reason("exited", code=None)


def test_a_reason_with_an_unknown_param_is_refused() -> None:
    with pytest.raises(TypeError, match="unknown"):
        reason("exited", code=1, colour="red")


def test_a_reason_of_an_unknown_code_is_refused() -> None:
    with pytest.raises(KeyError):
        reason("exit")


def test_an_exit_with_code_zero_is_progress_and_any_other_a_failure_with_advice() -> None:
    good, bad = reason("exited", code=0), reason("exited", code=3)
    assert (good.klass, good.advice) == (ReasonClass.PROGRESS, None)
    assert (bad.klass, bad.message) == (ReasonClass.FAILED, "Exited with code 3")
    assert bad.advice
    assert reason("exited", code=137, signal=9).message == "Exited with code 137, killed by signal 9"


def test_numbers_are_shown_as_a_person_reads_them() -> None:
    assert reason("run.time_limit", worker="w", d=5400).message == "Worker w ran past its time limit of 1h30m"
    assert reason("node.memory", need=2**31, free=2**29).message.endswith("needs 2.0 GiB, 512.0 MiB free")
    assert reason("node.cpu", need=1500, free=500).message == "Not enough CPU cores: needs 1.5, 0.5 free"
    assert reason("restart.backoff", at=0).message == "Starts again at 1970-01-01 00:00:00 UTC"
    assert reason("image.pulling", image="i", done=5, total="unknown").message == "Pulling i: 5 B of unknown"
    assert reason("ready.wrong_model", expected="a", listed=["b", "c"]).message == (
        "Its server lists b, c and not the expected model a"
    )


def test_work_in_another_namespace_reads_well_where_a_name_would_stand() -> None:
    assert reason("queue.behind", run=ANOTHER_NAMESPACE).message == "Queued behind work in another namespace"


@pytest.mark.parametrize("text", ["{boom}", "[x]", "a{0}", "%s", "{d:duration}"])
def test_text_from_outside_is_shown_and_never_read_as_a_template(text: str) -> None:
    assert text in reason("start.failed", error=text).message

"""No document asks for more than a control plane bears or a store holds, and what is refused is told by its place."""

from typing import Any

import pytest

from moorage.domain import limits
from moorage.domain.errors import InvalidSpec
from moorage.wire.spec import document, normalise

GROUP: dict[str, Any] = {"runtime": {"command": ["x"]}}


def run(group: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    return normalise(document({"kind": "Run", "name": "t", "groups": [{**GROUP, **(group or {})}], **parts}))


def serve(**parts: Any) -> dict[str, Any]:
    return normalise(document({"kind": "Deployment", "name": "d", "runtime": {"command": ["x"]}, **parts}))


def refusal(make: Any, *args: Any, **parts: Any) -> dict[str, Any]:
    with pytest.raises(InvalidSpec) as caught:
        make(*args, **parts)
    (problem,) = caught.value.errors
    return problem


HUGE = 10**23


@pytest.mark.parametrize(
    ("group", "parts", "path"),
    [
        ({"count": limits.WORKERS_MAX + 1}, {}, "groups[0].count"),
        ({"count": 100_000_000}, {}, "groups[0].count"),
        ({"count": HUGE}, {}, "groups[0].count"),
        ({"total_gpus": limits.GPUS_TOTAL_MAX + 1}, {}, "groups[0].total_gpus"),
        ({"total_gpus": 8, "machines": HUGE}, {}, "groups[0].machines"),
        ({"resources": {"gpus": HUGE}}, {}, "groups[0].resources.gpus.count"),
        ({"resources": {"memory": HUGE}}, {}, "groups[0].resources.memory"),
        ({"resources": {"cpu": HUGE}}, {}, "groups[0].resources.cpu"),
        ({"expose": [{"port": HUGE}]}, {}, "groups[0].expose[0].port"),
        ({}, {"array": {"count": limits.WORKERS_MAX + 1}}, "array.count"),
        ({}, {"priority": HUGE}, "priority"),
        ({}, {"priority": -HUGE}, "priority"),
        ({}, {"restart": {"budget": HUGE}}, "restart.budget"),
        ({}, {"restart": {"backoff": float("inf")}}, "restart.backoff"),
        ({}, {"time_limit": float("nan")}, "time_limit"),
        ({}, {"time_limit": "99999999d"}, "time_limit"),
        ({}, {"ttl_after_finished": 1e300}, "ttl_after_finished"),
    ],
)
def test_a_number_of_a_run_that_is_too_large_is_refused_at_its_place(
    group: dict[str, Any], parts: dict[str, Any], path: str
) -> None:
    problem = refusal(run, group, **parts)
    assert problem["path"] == path
    assert "validation" not in problem["message"]
    assert "nput should" not in problem["message"]


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ({"replicas": {"min": limits.REPLICAS_MAX + 1}}, "replicas.min"),
        ({"replicas": {"max": HUGE}}, "replicas.max"),
        ({"replicas": {"workers": limits.WORKERS_MAX + 1}}, "replicas.workers"),
        ({"gateway": {"max_queue": HUGE}}, "gateway.max_queue"),
        ({"priority": HUGE}, "priority"),
        ({"scaling": {"target_in_flight": float("inf")}}, "scaling.target_in_flight"),
        ({"rollout": {"guard": {"ttft_percent": float("nan")}}}, "rollout.guard.ttft_percent"),
        ({"rollout": {"guard": {"minimum_requests": limits.GUARD_REQUESTS_MAX + 1}}}, "rollout.guard.minimum_requests"),
        ({"runtime": {"command": ["x"], "ready": {"request": {"path": "/", "body": {"a": [HUGE]}}}}},
         "runtime.ready.request.body"),
    ],
)  # fmt: skip
def test_a_number_of_a_deployment_that_is_too_large_is_refused_at_its_place(parts: dict[str, Any], path: str) -> None:
    assert refusal(serve, **parts)["path"] == path


def test_a_guard_that_asks_for_more_requests_than_could_be_sent_is_told_the_most() -> None:
    most = limits.GUARD_REQUESTS_MAX
    problem = refusal(serve, rollout={"guard": {"minimum_requests": 1_000_000}})
    assert problem["message"] == f"must be at most {most}, not 1000000"
    assert serve(rollout={"guard": {"minimum_requests": most}})["rollout"]["guard"]["minimum_requests"] == most


def test_the_workers_of_all_groups_count_together() -> None:
    most = limits.WORKERS_MAX
    groups = [{**GROUP, "name": "a", "count": most - 1}, {**GROUP, "name": "b", "count": 2}]
    told = refusal(run, groups=groups)["message"]
    assert (str(most + 1) in told, f"at most {most}" in told, limits.SPLIT_SPEC in told) == (True, True, True)
    assert len(run(groups=[groups[0], {**groups[1], "count": 1}])["groups"]) == 2
    assert run({"count": most})["groups"][0]["count"] == most


@pytest.mark.parametrize(
    "name", ["time_limit", "heartbeat_ttl", "barrier_timeout", "max_queue_time", "disconnect_after"]
)
def test_a_limit_of_no_time_is_refused_with_what_to_do_instead(name: str) -> None:
    problem = refusal(run, **{name: 0})
    assert problem["path"] == name
    assert "above 0" in problem["message"]


def test_a_worker_is_not_lost_for_a_silence_that_is_none() -> None:
    assert "1s" in refusal(run, heartbeat_ttl="10ms")["message"]
    assert run(heartbeat_ttl="1s")["heartbeat_ttl"] == 1.0


@pytest.mark.parametrize("name", ["ttl_after_finished", "preempt_grace"])
def test_where_no_time_means_at_once_it_is_allowed(name: str) -> None:
    assert run(**{name: 0})[name] == 0.0


def test_a_program_of_no_name_is_refused() -> None:
    for word in ("", "  "):
        assert "first word is empty" in refusal(run, {"runtime": {"command": [word, "x"]}})["message"]
        assert refusal(serve, runtime={"command": [word]})["path"] == "runtime.command"
    assert "NUL" in refusal(run, {"runtime": {"command": ["a", "b\0"]}})["message"]


@pytest.mark.parametrize("labels", [{"a b": "x"}, {"": "x"}, {"a": "x y"}, {"a": "-x"}, {"a": "x" * 64}, {"a\n": "x"}])
def test_labels_are_words_that_a_selector_can_name(labels: dict[str, str]) -> None:
    problem = refusal(run, labels=labels)
    assert problem["path"] == "labels"
    assert "letters, digits" in problem["message"]


def test_good_labels_stay_and_annotations_may_be_texts() -> None:
    good = {"team": "search", "moorage.io/tier": "a_b.c-1", "empty": ""}
    assert run(labels=good)["labels"] == good
    assert run(annotations={"note": "any text: ü!"})["annotations"] == {"note": "any text: ü!"}
    assert refusal(run, annotations={"a b": "x"})["path"] == "annotations"


@pytest.mark.parametrize("env", [{"A B": "1"}, {"A\t": "1"}, {"A=B": "1"}, {"A": "1\0"}, {"": "1"}])
def test_variables_that_no_process_can_be_given_are_refused(env: dict[str, str]) -> None:
    assert refusal(run, {"runtime": {"command": ["x"], "env": env}})["path"] == "groups[0].runtime.env"


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"groups": []}, "must not be empty"),
        ({"groups": [{**GROUP, "count": 0}]}, "must be at least 1, not 0"),
        ({"groups": [{**GROUP, "depends_on": ["one"]}]}, "write it as {group: GROUP, condition: running}"),
        ({"after": ["prep"]}, "write it as {run: RUN, condition: completed}"),
        ({"groups": [{**GROUP, "expose": [8080]}]}, "write it as {port: PORT, protocol: http, external: false}"),
        ({"groups": [{**GROUP, "count": "many"}]}, "must be a whole number, not 'many'"),
        ({"priority": "9" * 5000}, "must be"),
    ],
)
def test_a_mistake_is_told_in_our_words_with_how_to_write_it(parts: dict[str, Any], told: str) -> None:
    message = refusal(run, **parts)["message"]
    assert told in message
    assert len(message) < 200
